//! Providers that fail, and who is asked in their place.
//! Never: a word heard twice.

use std::time::Duration;

use switchboard_completions::CompletionError;
use tokio::net::TcpListener;

use crate::{
    provider::{Act, end, event, head, piece, plain, saying, says, stops, stream},
    stage::{Outcome, Stage, answered, entry, listed},
};

const JSON: &str = "content-type: application/json\r\n";

/// The second provider replies in place of one that answers so.
async fn passed_on(acts: Vec<Act>) -> Stage {
    let stage = Stage::set(vec![vec![acts], vec![saying("b")]]).await;
    let outcome = stage.ask().await;
    assert_eq!(outcome.heard, ["b"]);
    assert_eq!(outcome.reply().provider, "b");
    assert_eq!(stage.times_asked(), [1, 1]);
    stage
}

#[tokio::test]
async fn the_next_one_is_asked_when_one_is_not_well() {
    for status in [500, 502, 503, 529, 408] {
        passed_on(plain(status, "", "no")).await;
    }
}

#[tokio::test]
async fn the_next_one_is_asked_when_one_refuses() {
    let body = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
    // What was said of one request leaves others alone; what holds for all of them does not.
    for (rests, status) in [301, 400, 422]
        .map(|status| (false, status))
        .into_iter()
        .chain([401, 403, 404].map(|status| (true, status)))
    {
        let refuses = || plain(status, JSON, body);
        let replies = vec![saying("b"), saying("b")];
        let stage = Stage::set(vec![vec![refuses(), refuses()], replies]).await;
        for _ in 0..2 {
            assert_eq!(stage.ask().await.reply().provider, "b");
        }
        let expected = if rests { [1, 2] } else { [2, 2] };
        assert_eq!(stage.times_asked(), expected, "{status}");
    }
}

#[tokio::test]
async fn one_whose_key_is_wrong_is_asked_when_nobody_else_is_left() {
    let refuses = vec![plain(401, "", "no"), saying("a"), saying("a")];
    let others = vec![saying("b"), plain(400, "", "no")];
    let stage = Stage::set(vec![refuses, others]).await;
    for expected in ["b", "a", "a"] {
        assert_eq!(stage.ask().await.reply().provider, expected);
    }
    assert_eq!(stage.times_asked(), [3, 2]);
}

#[tokio::test]
async fn the_only_one_is_asked_again_when_it_was_not_well_for_a_moment() {
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    let failing = [
        plain(502, "", "bad gateway"),
        plain(
            200,
            JSON,
            r#"{"error":{"message":"overloaded","code":502}}"#,
        ),
        vec![Act::Close],
        vec![head(), Act::Close],
        vec![head(), event(role), Act::Close],
        vec![head(), event(role), end()],
    ];
    for acts in failing {
        let stage = Stage::set(vec![vec![acts.clone(), saying("a")]]).await;
        assert_eq!(stage.ask().await.heard, ["a"], "{acts:?}");
        assert_eq!(stage.times_asked(), [2]);
    }
    let fails = vec![plain(502, "", "bad gateway"); 3];
    let stage = Stage::set(vec![[fails, vec![saying("a")]].concat()]).await;
    assert_eq!(stage.ask().await.heard, ["a"]);
    // What is no use is not asked for again, nor what was refused.
    for acts in [vec![head(), event("no JSON"), end()], plain(400, "", "no")] {
        let stage = Stage::set(vec![vec![acts, saying("a")]]).await;
        stage.ask().await.reply.unwrap_err();
        assert_eq!(stage.times_asked(), [1]);
    }
}

#[tokio::test]
async fn the_next_one_is_asked_when_nobody_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let mut stage = Stage::set(vec![vec![saying("b")]]).await;
    let list = [entry("nobody", nobody), entry("b", stage.each[0].address)];
    stage.providers = listed(&list.into_iter().collect());
    assert_eq!(stage.ask().await.reply().provider, "b");
}

#[tokio::test]
async fn the_next_one_is_asked_when_a_stream_breaks_off_before_any_word() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{"}}]}}]}"#;
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    passed_on(vec![Act::Close]).await;
    passed_on(vec![head(), Act::Close]).await;
    passed_on(vec![head(), event(role), Act::Close]).await;
    passed_on(vec![head(), event(role), end()]).await;
    passed_on(vec![head(), event(call), Act::Close]).await;
    passed_on(vec![head(), event("no JSON"), end()]).await;
    passed_on(vec![head(), piece(b"nonsense\n\n"), end()]).await;
    passed_on(vec![
        head(),
        piece(b"data: {\"choices\":[{\"delta\""),
        Act::Close,
    ])
    .await;
}

#[tokio::test]
async fn the_next_one_is_asked_when_an_error_comes_as_a_reply() {
    let errors = [
        r#"{"error":{"message":"overloaded","code":502}}"#,
        r#"{"error":"overloaded"}"#,
        r#"{"error":{"message":"too much","code":429},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
        r#"{"error":{"message":"no such model","code":404}}"#,
    ];
    for error in errors {
        passed_on(vec![head(), event(error), end()]).await;
        passed_on(plain(200, JSON, error)).await;
    }
    passed_on(plain(200, JSON, "{}")).await;
    passed_on(plain(200, JSON, "<html>")).await;
}

#[tokio::test]
async fn a_reply_is_never_begun_anew_once_a_word_was_heard() {
    let error = r#"{"error":{"message":"overloaded","code":502}}"#;
    let ends = [
        vec![Act::Close],
        vec![end()],
        vec![Act::Hold],
        vec![event(error), end()],
        vec![event("no JSON"), end()],
    ];
    for last in ends {
        let acts = [vec![head(), event(&says("a"))], last.clone()].concat();
        let pause = Duration::from_secs(3);
        let stage = Stage::hurried(pause, vec![vec![acts], vec![saying("b")]]).await;
        let outcome = stage.ask().await;
        assert_eq!(outcome.heard, ["a"]);
        let error = outcome.reply.unwrap_err();
        assert!(
            matches!(error, CompletionError::BrokenOff(_)),
            "{last:?}: {error}"
        );
        assert_eq!(stage.times_asked(), [1, 0]);
    }
}

#[tokio::test]
async fn what_all_of_them_say_is_said() {
    #[track_caller]
    fn check(outcome: Outcome, kind: &str, expected: &str) {
        let error = outcome.reply.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let refuses = || vec![plain(400, JSON, r#"{"error":{"message":"too long"}}"#)];
    let fails = || vec![plain(500, "", "out of order"); 4];
    check(answered(refuses().remove(0)).await, "refused", "too long");
    let alone = Stage::set(vec![fails()]).await;
    check(alone.ask().await, "unavailable", "out of order");
    assert_eq!(alone.times_asked(), [4]);
    let both = Stage::set(vec![refuses(), fails()]).await;
    check(both.ask().await, "unavailable", "out of order");
    assert_eq!(both.times_asked(), [1, 4]);
}

#[tokio::test]
async fn a_deadline_is_the_end() {
    let within = Duration::from_millis(300);
    let stage = Stage::set(vec![vec![vec![Act::Hold]]]).await;
    let silent = stage.ask_within(within).await;
    assert_eq!(silent.reply, Err(CompletionError::Late));
    let begun = vec![head(), event(&says("a")), Act::Hold];
    let stage = Stage::set(vec![vec![begun], vec![saying("b")]]).await;
    let begun = stage.ask_within(Duration::from_secs(8)).await;
    assert_eq!(
        (begun.reply, begun.heard),
        (Err(CompletionError::Late), vec!["a".to_owned()])
    );
    assert_eq!(stage.times_asked(), [1, 0]);
    // Nobody is asked when it is over already.
    let stage = Stage::set(vec![vec![stream(&[&stops("stop")])]]).await;
    let over = stage.ask_within(Duration::ZERO).await;
    assert_eq!(over.reply, Err(CompletionError::Late));
    assert_eq!(stage.times_asked(), [0]);
}
