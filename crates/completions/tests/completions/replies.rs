//! Forms of replies.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use switchboard_completions::{FinishReason, Usage};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    fake_provider::{Step, end, event, finish_chunk, head, piece, plain, stream, text_chunk},
    fixture::{Fixture, REPLY_TIMEOUT, request, request_from},
};

/// A reply in OpenAI's form.
fn recorded(line_end: &str, separator: &str) -> String {
    let events = [
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x"}"#,
        r#"{"id":"c","choices":[{"index":0,"delta":{"content":"Grüß "},"finish_reason":null}],"usage":null}"#,
        r#"{"id":"c","choices":[{"index":0,"delta":{"content":"Gott 👋"},"finish_reason":null}],"usage":null}"#,
        r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#,
        r#"{"id":"c","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":0}}}"#,
        "[DONE]",
    ];
    let events = events.map(|data| format!("data:{separator}{data}{line_end}{line_end}"));
    format!(
        ": OPENROUTER PROCESSING{line_end}{line_end}{}",
        events.concat()
    )
}

#[tokio::test]
async fn reply_does_not_depend_on_the_piece_size() {
    for (line_end, separator) in [("\n", " "), ("\r\n", " "), ("\n", ""), ("\r\n", "")] {
        let body = recorded(line_end, separator);
        let sizes = [1, 2, 3, 7, 64, 1_000, body.len()];
        let scripts = sizes.map(|size| {
            let pieces = body.as_bytes().chunks(size).map(piece);
            std::iter::once(head())
                .chain(pieces)
                .chain([end()])
                .collect()
        });
        let fixture = Fixture::start(vec![scripts.to_vec()]).await;
        for size in sizes {
            let outcome = fixture.complete().await;
            // Texts that have arrived together are forwarded together.
            assert_eq!(
                outcome.texts.concat(),
                "Grüß Gott 👋",
                "{line_end:?} {size}"
            );
            let reply = outcome.reply();
            assert_eq!(reply.text, "Grüß Gott 👋");
            assert_eq!(reply.finish_reason, FinishReason::Stop);
            let usage = (reply.usage.prompt_tokens, reply.usage.completion_tokens);
            assert_eq!(usage, (12, 5));
            assert_eq!((reply.provider.as_str(), reply.calls.len()), ("a", 0));
        }
    }
}

#[tokio::test]
async fn text_is_forwarded_immediately() {
    let gate = Arc::new(Semaphore::new(0));
    let steps = vec![
        head(),
        event(&text_chunk("first")),
        Step::Wait(Arc::clone(&gate)),
        event(&text_chunk("second")),
        Step::Wait(Arc::clone(&gate)),
        event(&finish_chunk("stop")),
        event("[DONE]"),
        end(),
    ];
    let fixture = Fixture::start(vec![vec![steps]]).await;
    let texts = AtomicUsize::new(0);
    // The provider continues only after its text was received.
    let mut sink = |_: &str| {
        texts.fetch_add(1, Ordering::Relaxed);
        gate.add_permits(1);
    };
    let request = request();
    let reply = fixture
        .providers
        .complete(&request, Instant::now() + REPLY_TIMEOUT, &mut sink);
    let reply = timeout(REPLY_TIMEOUT, reply).await.unwrap().unwrap();
    assert_eq!(
        (reply.text.as_str(), texts.into_inner()),
        ("firstsecond", 2)
    );
}

#[tokio::test]
async fn connections_are_reused() {
    let gate = Arc::new(Semaphore::new(0));
    let mut ends_late = stream(&[&text_chunk("a"), &finish_chunk("stop")]);
    ends_late.pop();
    ends_late.extend([Step::Wait(Arc::clone(&gate)), end()]);
    let ends = || stream(&[&text_chunk("a"), &finish_chunk("stop")]);
    let fixture = Fixture::start(vec![vec![ends(), ends_late, ends()]]).await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        fixture.complete().await.reply();
        connections.push(fixture.fakes[0].connections());
    }
    // A connection whose body does not end is closed.
    assert_eq!(connections, [1, 1, 2]);
}

#[tokio::test]
async fn content_may_be_null_or_a_list() {
    let outcome = request_from(stream(&[
        r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":null}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"thinking","thinking":[]},{"type":"text","text":"b"}]}}]}"#,
        r#"{"choices":[{"delta":{"content":""}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"another choice"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"hm"},"finish_reason":null}]}"#,
        &finish_chunk("stop"),
    ]))
    .await;
    assert_eq!(outcome.texts.concat(), "ab");
    assert_eq!(outcome.reply().text, "ab");
}

#[tokio::test]
async fn last_usage_counts() {
    let usage = |prompt: u64, completion: u64| {
        json!({"choices": [{"delta": {"content": "a"}}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
        .to_string()
    };
    let end = finish_chunk("length");
    let events = [usage(9, 1), usage(9, 2), end];
    let reply = request_from(stream(&events.each_ref().map(String::as_str)))
        .await
        .reply();
    let tokens = (reply.usage.prompt_tokens, reply.usage.completion_tokens);
    assert_eq!(
        (tokens, reply.finish_reason),
        ((9, 2), FinishReason::Length)
    );
    let reply = request_from(stream(&[&text_chunk("a"), &finish_chunk("stop")]))
        .await
        .reply();
    assert_eq!(reply.usage, Usage::default());
}

#[tokio::test]
async fn end_of_a_reply_has_several_forms() {
    #[track_caller]
    fn check(reply: &switchboard_completions::Reply) {
        assert_eq!(
            (reply.text.as_str(), reply.finish_reason),
            ("a", FinishReason::Stop)
        );
    }
    let (text_chunk, finish_chunk) = (event(&text_chunk("a")), event(&finish_chunk("stop")));
    // `[DONE]` is missing.
    check(
        &request_from(vec![
            head(),
            text_chunk.clone(),
            finish_chunk.clone(),
            end(),
        ])
        .await
        .reply(),
    );
    // The reason is missing.
    check(
        &request_from(vec![head(), text_chunk.clone(), event("[DONE]"), end()])
            .await
            .reply(),
    );
    // The connection breaks after the finish reason.
    check(
        &request_from(vec![
            head(),
            text_chunk.clone(),
            finish_chunk.clone(),
            Step::Close,
        ])
        .await
        .reply(),
    );
    // Nothing follows the finish reason.
    check(
        &request_from(vec![
            head(),
            text_chunk.clone(),
            finish_chunk.clone(),
            Step::Hold,
        ])
        .await
        .reply(),
    );
    check(
        &request_from(vec![
            head(),
            text_chunk.clone(),
            event("[DONE]"),
            Step::Hold,
        ])
        .await
        .reply(),
    );
    // Invalid data follows the finish reason.
    check(
        &request_from(vec![head(), text_chunk, finish_chunk, event("{"), end()])
            .await
            .reply(),
    );
}

#[tokio::test]
async fn last_event_needs_no_empty_line() {
    let last = format!("data: {}", finish_chunk("content_filter"));
    let steps = vec![
        head(),
        event(&text_chunk("a")),
        piece(last.as_bytes()),
        end(),
    ];
    assert_eq!(
        request_from(steps).await.reply().finish_reason,
        FinishReason::Filtered
    );
}

#[tokio::test]
async fn reply_may_arrive_in_one_piece() {
    let body = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"all",
        "tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
        {"type":"function","function":{"name":"f","arguments":{"a":2}}}]},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let kind = "content-type: application/json; charset=utf-8\r\n";
    let outcome = request_from(plain(200, kind, body)).await;
    assert_eq!(outcome.texts, ["all"]);
    let reply = outcome.reply();
    assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
    assert_eq!(reply.usage.completion_tokens, 2);
    let arguments: Vec<_> = reply
        .calls
        .iter()
        .map(|call| json!(call.arguments))
        .collect();
    assert_eq!(
        json!(arguments),
        json!([{"Ok": {"a": 1}}, {"Ok": {"a": 2}}])
    );
    assert_eq!(reply.calls[0].id, "x");
}
