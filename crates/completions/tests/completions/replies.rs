//! Replies in all the shapes in which they come.
//! Never: a shape that no provider sends.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use switchboard_completions::{Finish, Usage};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    provider::{Act, end, event, head, piece, plain, says, stops, stream},
    stage::{LONG, Stage, answered, hello},
};

/// A reply as one of the big providers sends it.
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
async fn a_reply_is_the_same_wherever_it_is_cut() {
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
        let stage = Stage::set(vec![scripts.to_vec()]).await;
        for size in sizes {
            let outcome = stage.ask().await;
            assert_eq!(outcome.heard, ["Grüß ", "Gott 👋"], "{line_end:?} {size}");
            let reply = outcome.reply();
            assert_eq!(reply.text, "Grüß Gott 👋");
            assert_eq!(reply.finish, Finish::Stop);
            let usage = (reply.usage.prompt_tokens, reply.usage.completion_tokens);
            assert_eq!(usage, (12, 5));
            assert_eq!((reply.provider.as_str(), reply.calls.len()), ("a", 0));
        }
    }
}

#[tokio::test]
async fn words_are_heard_the_moment_they_arrive() {
    let gate = Arc::new(Semaphore::new(0));
    let acts = vec![
        head(),
        event(&says("first")),
        Act::Await(Arc::clone(&gate)),
        event(&says("second")),
        Act::Await(Arc::clone(&gate)),
        event(&stops("stop")),
        event("[DONE]"),
        end(),
    ];
    let stage = Stage::set(vec![vec![acts]]).await;
    let heard = AtomicUsize::new(0);
    // The provider goes on only when what it said was heard; else this never ends.
    let mut hear = |_: &str| {
        heard.fetch_add(1, Ordering::Relaxed);
        gate.add_permits(1);
    };
    let request = hello();
    let reply = stage
        .providers
        .complete(&request, Instant::now() + LONG, &mut hear);
    let reply = timeout(LONG, reply).await.unwrap().unwrap();
    assert_eq!(
        (reply.text.as_str(), heard.into_inner()),
        ("firstsecond", 2)
    );
}

#[tokio::test]
async fn connections_are_used_again() {
    let gate = Arc::new(Semaphore::new(0));
    let mut ends_late = stream(&[&says("a"), &stops("stop")]);
    ends_late.pop();
    ends_late.extend([Act::Await(Arc::clone(&gate)), end()]);
    let ends = || stream(&[&says("a"), &stops("stop")]);
    let stage = Stage::set(vec![vec![ends(), ends_late, ends()]]).await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        stage.ask().await.reply();
        connections.push(stage.each[0].connections());
    }
    // One whose body does not end is given up.
    assert_eq!(connections, [1, 1, 2]);
}

#[tokio::test]
async fn content_may_be_nothing_or_a_list() {
    let outcome = answered(stream(&[
        r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":null}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"thinking","thinking":[]},{"type":"text","text":"b"}]}}]}"#,
        r#"{"choices":[{"delta":{"content":""}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"another choice"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"hm"},"finish_reason":null}]}"#,
        &stops("stop"),
    ]))
    .await;
    assert_eq!(outcome.heard, ["a", "b"]);
    assert_eq!(outcome.reply().text, "ab");
}

#[tokio::test]
async fn the_last_usage_counts() {
    let usage = |prompt: u64, completion: u64| {
        json!({"choices": [{"delta": {"content": "a"}}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
        .to_string()
    };
    let end = stops("length");
    let events = [usage(9, 1), usage(9, 2), end];
    let reply = answered(stream(&events.each_ref().map(String::as_str)))
        .await
        .reply();
    let tokens = (reply.usage.prompt_tokens, reply.usage.completion_tokens);
    assert_eq!((tokens, reply.finish), ((9, 2), Finish::Length));
    let reply = answered(stream(&[&says("a"), &stops("stop")]))
        .await
        .reply();
    assert_eq!(reply.usage, Usage::default());
}

#[tokio::test]
async fn a_reply_may_end_without_the_word_for_it() {
    #[track_caller]
    fn check(reply: &switchboard_completions::Reply) {
        assert_eq!((reply.text.as_str(), reply.finish), ("a", Finish::Stop));
    }
    let (says, stops) = (event(&says("a")), event(&stops("stop")));
    // `[DONE]` is missing.
    check(
        &answered(vec![head(), says.clone(), stops.clone(), end()])
            .await
            .reply(),
    );
    // The reason is missing.
    check(
        &answered(vec![head(), says.clone(), event("[DONE]"), end()])
            .await
            .reply(),
    );
    // The connection breaks when all is said.
    check(
        &answered(vec![head(), says.clone(), stops.clone(), Act::Close])
            .await
            .reply(),
    );
    // Nothing comes any more when all is said.
    check(
        &answered(vec![head(), says.clone(), stops.clone(), Act::Hold])
            .await
            .reply(),
    );
    check(
        &answered(vec![head(), says.clone(), event("[DONE]"), Act::Hold])
            .await
            .reply(),
    );
    // What comes then is no use.
    check(
        &answered(vec![head(), says, stops, event("{"), end()])
            .await
            .reply(),
    );
}

#[tokio::test]
async fn the_last_event_may_lack_its_end() {
    let last = format!("data: {}", stops("content_filter"));
    let acts = vec![head(), event(&says("a")), piece(last.as_bytes()), end()];
    assert_eq!(answered(acts).await.reply().finish, Finish::Filtered);
}

#[tokio::test]
async fn a_reply_may_come_in_one_piece() {
    let body = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"all",
        "tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
        {"type":"function","function":{"name":"f","arguments":{"a":2}}}]},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let kind = "content-type: application/json; charset=utf-8\r\n";
    let outcome = answered(plain(200, kind, body)).await;
    assert_eq!(outcome.heard, ["all"]);
    let reply = outcome.reply();
    assert_eq!(reply.finish, Finish::ToolCalls);
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
