//! Replies that never end.
//! Never: memory without a bound.

use serde_json::json;
use switchboard_completions::CompletionError;

use crate::{
    provider::{Act, end, event, head, piece, plain, says, stops},
    stage::answered,
};

const MIB: usize = 1024 * 1024;

fn streamed(events: impl IntoIterator<Item = String>) -> Vec<Act> {
    let events = events.into_iter().map(|data| event(&data));
    std::iter::once(head())
        .chain(events)
        .chain([end()])
        .collect()
}

#[tokio::test]
async fn words_have_a_bound() {
    let hundredth = says(&"x".repeat(MIB / 100));
    let outcome = answered(streamed(vec![hundredth; 102])).await;
    let length: usize = outcome.heard.iter().map(String::len).sum();
    assert!(length <= MIB && length > MIB / 2, "{length}");
    let error = outcome.reply.unwrap_err();
    assert!(
        matches!(&error, CompletionError::BrokenOff(reason) if reason.contains("1048576")),
        "{error}"
    );
}

#[tokio::test]
async fn calls_have_a_bound() {
    let call = |index: usize, arguments: &str| {
        json!({"choices": [{"delta": {"tool_calls":
            [{"index": index, "id": format!("{index}"), "function": {"name": "f", "arguments": arguments}}]}}]})
        .to_string()
    };
    let many = answered(streamed((0..33).map(|index| call(index, "{}")))).await;
    assert!(many.reply.unwrap_err().to_string().contains("32 calls"));
    let long = "x".repeat(1024);
    let long = answered(streamed((0..65).map(|_| call(0, &long)))).await;
    assert!(long.reply.unwrap_err().to_string().contains("65536"));
    // All of them together, too.
    let full = "x".repeat(64 * 1024);
    let all = answered(streamed((0..17).map(|index| call(index, &full)))).await;
    assert!(all.reply.unwrap_err().to_string().contains("1048576"));
}

#[tokio::test]
async fn names_and_ids_have_a_bound() {
    let long = "x".repeat(2 * MIB);
    let call = json!({"choices": [{"delta": {"tool_calls":
        [{"index": 0, "id": long, "function": {"name": long, "arguments": "{}"}}]}}]});
    let events = [call.to_string(), stops("tool_calls")];
    let call = answered(streamed(events)).await.reply().calls.remove(0);
    assert_eq!(call.name.len(), 256);
    assert!(!call.id.is_empty() && call.id.len() <= 256);
}

#[tokio::test]
async fn a_body_has_a_bound() {
    let nothing = piece(format!(": {}\n\n", "x".repeat(MIB)).as_bytes());
    let stream: Vec<_> = std::iter::once(head())
        .chain(vec![nothing; 17])
        .chain([end()])
        .collect();
    let error = answered(stream).await.reply.unwrap_err();
    assert!(error.to_string().contains("16777216"), "{error}");
    let line = piece(&vec![b'x'; MIB]);
    let stream: Vec<_> = std::iter::once(head()).chain(vec![line; 17]).collect();
    let error = answered(stream).await.reply.unwrap_err();
    assert!(error.to_string().contains("16777216"), "{error}");
    let kind = "content-type: application/json\r\n";
    let whole = answered(plain(200, kind, &" ".repeat(17 * MIB))).await;
    assert_eq!(whole.reply.unwrap_err().kind(), "unavailable");
}

#[tokio::test]
async fn a_refusal_has_a_bound() {
    let endless = vec![
        Act::Send(b"HTTP/1.1 400 X\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()),
        piece("no ".repeat(16 * 1024).as_bytes()),
        Act::Hold,
    ];
    let error = answered(endless).await.reply.unwrap_err();
    assert_eq!(error.kind(), "refused");
    assert!(error.to_string().len() < 400, "{error}");
    // One that never ends is not waited for.
    let silent = vec![
        Act::Send(b"HTTP/1.1 400 X\r\ncontent-length: 9\r\n\r\nno".to_vec()),
        Act::Hold,
    ];
    let error = answered(silent).await.reply.unwrap_err();
    assert!(error.to_string().ends_with(": no"), "{error}");
}
