//! Failing providers, and failover to others.

use std::time::Duration;

use bytes::Bytes;
use switchboard_completions::{CompletionError, Message, Picture, Request};
use tokio::net::TcpListener;

use crate::{
    fake_provider::{
        Step, end, event, finish_chunk, head, piece, plain, reply_with, stream, text_chunk,
    },
    fixture::{Fixture, Outcome, REPLY_TIMEOUT, entry, providers_from, request_from},
};

const JSON: &str = "content-type: application/json\r\n";

/// Expects that the second provider replies after the first one follows these steps.
async fn assert_fails_over(steps: Vec<Step>) -> Fixture {
    let fixture = Fixture::start(vec![vec![steps], vec![reply_with("b")]]).await;
    let outcome = fixture.complete().await;
    assert_eq!(outcome.texts, ["b"]);
    assert_eq!(outcome.reply().provider, "b");
    assert_eq!(fixture.request_counts(), [1, 1]);
    fixture
}

#[tokio::test]
async fn server_error_fails_over() {
    for status in [500, 502, 503, 529, 408] {
        assert_fails_over(plain(status, "", "no")).await;
    }
}

#[tokio::test]
async fn rejection_fails_over() {
    let body = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
    // Statuses about credentials or the model start a cooldown; others concern one request.
    for (cooldowns, status) in [301, 400, 422]
        .map(|status| (false, status))
        .into_iter()
        .chain([401, 403, 404].map(|status| (true, status)))
    {
        let rejects = || plain(status, JSON, body);
        let replies = vec![reply_with("b"), reply_with("b")];
        let fixture = Fixture::start(vec![vec![rejects(), rejects()], replies]).await;
        for _ in 0..2 {
            assert_eq!(fixture.complete().await.reply().provider, "b");
        }
        let expected = if cooldowns { [1, 2] } else { [2, 2] };
        assert_eq!(fixture.request_counts(), expected, "{status}");
    }
}

#[tokio::test]
async fn unauthorized_provider_is_the_last_resort() {
    let rejects = vec![plain(401, "", "no"), reply_with("a"), reply_with("a")];
    let others = vec![reply_with("b"), plain(400, "", "no")];
    let fixture = Fixture::start(vec![rejects, others]).await;
    for expected in ["b", "a", "a"] {
        assert_eq!(fixture.complete().await.reply().provider, expected);
    }
    assert_eq!(fixture.request_counts(), [3, 2]);
}

#[tokio::test]
async fn only_provider_is_retried() {
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    let failing = [
        plain(502, "", "bad gateway"),
        plain(
            200,
            JSON,
            r#"{"error":{"message":"overloaded","code":502}}"#,
        ),
        vec![Step::Close],
        vec![head(), Step::Close],
        vec![head(), event(role), Step::Close],
        vec![head(), event(role), end()],
    ];
    for steps in failing {
        let fixture = Fixture::start(vec![vec![steps.clone(), reply_with("a")]]).await;
        assert_eq!(fixture.complete().await.texts, ["a"], "{steps:?}");
        assert_eq!(fixture.request_counts(), [2]);
    }
    let fails = vec![plain(502, "", "bad gateway"); 3];
    let fixture = Fixture::start(vec![[fails, vec![reply_with("a")]].concat()]).await;
    assert_eq!(fixture.complete().await.texts, ["a"]);
    // Invalid replies and rejections are not retried.
    for steps in [vec![head(), event("no JSON"), end()], plain(400, "", "no")] {
        let fixture = Fixture::start(vec![vec![steps, reply_with("a")]]).await;
        fixture.complete().await.reply.unwrap_err();
        assert_eq!(fixture.request_counts(), [1]);
    }
}

#[tokio::test]
async fn picture_is_encoded_for_each_provider() {
    let mut fixture = Fixture::start(vec![
        vec![plain(500, "", "no")],
        vec![reply_with("b"), reply_with("b")],
    ])
    .await;
    assert!(!fixture.providers.see_pictures());
    let mut list: Vec<_> = [("a", 0), ("b", 1)]
        .map(|(name, index)| entry(name, fixture.fakes[index].address))
        .to_vec();
    list[0]["sees_pictures"] = true.into();
    fixture.providers = providers_from(&list.into_iter().collect());
    assert!(fixture.providers.see_pictures());
    let request = Request {
        messages: vec![Message::UserPicture {
            text: "What is this?".to_owned(),
            picture: Picture {
                media_type: "image/gif".to_owned(),
                bytes: Bytes::from_static(b"GIF89a"),
                description: "[a dog]".to_owned(),
            },
        }],
        ..Request::default()
    };
    let reply = fixture.complete_with(&request, REPLY_TIMEOUT).await.reply();
    assert_eq!(reply.provider, "b");
    let content = |index: usize| {
        let request = fixture.fakes[index].last_request();
        request.body["messages"][0]["content"].clone()
    };
    let url = &content(0)[1]["image_url"]["url"];
    assert_eq!(url, "data:image/gif;base64,R0lGODlh");
    assert_eq!(content(1), "What is this?\n\n[a dog]");
}

#[tokio::test]
async fn refused_connection_fails_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let mut fixture = Fixture::start(vec![vec![reply_with("b")]]).await;
    let list = [
        entry("nobody", nobody),
        entry("b", fixture.fakes[0].address),
    ];
    fixture.providers = providers_from(&list.into_iter().collect());
    assert_eq!(fixture.complete().await.reply().provider, "b");
}

#[tokio::test]
async fn interruption_before_any_text_fails_over() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{"}}]}}]}"#;
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    assert_fails_over(vec![Step::Close]).await;
    assert_fails_over(vec![head(), Step::Close]).await;
    assert_fails_over(vec![head(), event(role), Step::Close]).await;
    assert_fails_over(vec![head(), event(role), end()]).await;
    assert_fails_over(vec![head(), event(call), Step::Close]).await;
    assert_fails_over(vec![head(), event("no JSON"), end()]).await;
    assert_fails_over(vec![head(), piece(b"nonsense\n\n"), end()]).await;
    assert_fails_over(vec![
        head(),
        piece(b"data: {\"choices\":[{\"delta\""),
        Step::Close,
    ])
    .await;
}

#[tokio::test]
async fn error_in_a_reply_fails_over() {
    let errors = [
        r#"{"error":{"message":"overloaded","code":502}}"#,
        r#"{"error":"overloaded"}"#,
        r#"{"error":{"message":"too much","code":429},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
        r#"{"error":{"message":"no such model","code":404}}"#,
    ];
    for error in errors {
        assert_fails_over(vec![head(), event(error), end()]).await;
        assert_fails_over(plain(200, JSON, error)).await;
    }
    assert_fails_over(plain(200, JSON, "{}")).await;
    assert_fails_over(plain(200, JSON, "<html>")).await;
}

#[tokio::test]
async fn interruption_after_text_does_not_fail_over() {
    let error = r#"{"error":{"message":"overloaded","code":502}}"#;
    let ends = [
        vec![Step::Close],
        vec![end()],
        vec![Step::Hold],
        vec![event(error), end()],
        vec![event("no JSON"), end()],
    ];
    for last in ends {
        let steps = [vec![head(), event(&text_chunk("a"))], last.clone()].concat();
        let pause = Duration::from_secs(3);
        let fixture =
            Fixture::with_idle_timeout(pause, vec![vec![steps], vec![reply_with("b")]]).await;
        let outcome = fixture.complete().await;
        assert_eq!(outcome.texts, ["a"]);
        let error = outcome.reply.unwrap_err();
        assert!(
            matches!(error, CompletionError::Interrupted(_)),
            "{last:?}: {error}"
        );
        assert_eq!(fixture.request_counts(), [1, 0]);
    }
}

#[tokio::test]
async fn error_states_the_reason_of_the_providers() {
    #[track_caller]
    fn check(outcome: Outcome, kind: &str, expected: &str) {
        let error = outcome.reply.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let rejects = || vec![plain(400, JSON, r#"{"error":{"message":"too long"}}"#)];
    let fails = || vec![plain(500, "", "out of order"); 4];
    check(
        request_from(rejects().remove(0)).await,
        "refused",
        "too long",
    );
    let alone = Fixture::start(vec![fails()]).await;
    check(alone.complete().await, "unavailable", "out of order");
    assert_eq!(alone.request_counts(), [4]);
    let both = Fixture::start(vec![rejects(), fails()]).await;
    check(both.complete().await, "unavailable", "out of order");
    assert_eq!(both.request_counts(), [1, 4]);
}

#[tokio::test]
async fn deadline_ends_the_completion() {
    let within = Duration::from_millis(300);
    let fixture = Fixture::start(vec![vec![vec![Step::Hold]]]).await;
    let silent = fixture.complete_within(within).await;
    assert_eq!(silent.reply, Err(CompletionError::TimedOut));
    let begun = vec![head(), event(&text_chunk("a")), Step::Hold];
    let fixture = Fixture::start(vec![vec![begun], vec![reply_with("b")]]).await;
    let begun = fixture.complete_within(Duration::from_secs(8)).await;
    assert_eq!(
        (begun.reply, begun.texts),
        (Err(CompletionError::TimedOut), vec!["a".to_owned()])
    );
    assert_eq!(fixture.request_counts(), [1, 0]);
    // No request is sent after the deadline.
    let fixture = Fixture::start(vec![vec![stream(&[&finish_chunk("stop")])]]).await;
    let over = fixture.complete_within(Duration::ZERO).await;
    assert_eq!(over.reply, Err(CompletionError::TimedOut));
    assert_eq!(fixture.request_counts(), [0]);
}
