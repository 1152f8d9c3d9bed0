//! Limits on replies of any size.

use serde_json::json;
use switchboard_completions::CompletionError;

use crate::{
    fake_provider::{Step, end, event, finish_chunk, head, piece, plain, text_chunk},
    fixture::request_from,
};

const MIB: usize = 1024 * 1024;

fn streamed(events: impl IntoIterator<Item = String>) -> Vec<Step> {
    let events = events.into_iter().map(|data| event(&data));
    std::iter::once(head())
        .chain(events)
        .chain([end()])
        .collect()
}

#[tokio::test]
async fn text_is_bounded() {
    let hundredth = text_chunk(&"x".repeat(MIB / 100));
    let outcome = request_from(streamed(vec![hundredth; 102])).await;
    let length: usize = outcome.texts.iter().map(String::len).sum();
    assert!(length <= MIB && length > MIB / 2, "{length}");
    let error = outcome.reply.unwrap_err();
    assert!(
        matches!(&error, CompletionError::Interrupted(reason) if reason.contains("1048576")),
        "{error}"
    );
}

#[tokio::test]
async fn calls_are_bounded() {
    let call = |index: usize, arguments: &str| {
        json!({"choices": [{"delta": {"tool_calls":
            [{"index": index, "id": format!("{index}"), "function": {"name": "f", "arguments": arguments}}]}}]})
        .to_string()
    };
    let many = request_from(streamed((0..33).map(|index| call(index, "{}")))).await;
    assert!(many.reply.unwrap_err().to_string().contains("32 calls"));
    let long = "x".repeat(1024);
    let long = request_from(streamed((0..65).map(|_| call(0, &long)))).await;
    assert!(long.reply.unwrap_err().to_string().contains("65536"));
    // The sum of all arguments is bounded, too.
    let full = "x".repeat(64 * 1024);
    let all = request_from(streamed((0..17).map(|index| call(index, &full)))).await;
    assert!(all.reply.unwrap_err().to_string().contains("1048576"));
}

#[tokio::test]
async fn names_and_ids_are_bounded() {
    let long = "x".repeat(2 * MIB);
    let call = json!({"choices": [{"delta": {"tool_calls":
        [{"index": 0, "id": long, "function": {"name": long, "arguments": "{}"}}]}}]});
    let events = [call.to_string(), finish_chunk("tool_calls")];
    let call = request_from(streamed(events)).await.reply().calls.remove(0);
    assert_eq!(call.name.len(), 256);
    assert!(!call.id.is_empty() && call.id.len() <= 256);
}

#[tokio::test]
async fn body_is_bounded() {
    let nothing = piece(format!(": {}\n\n", "x".repeat(MIB)).as_bytes());
    let stream: Vec<_> = std::iter::once(head())
        .chain(vec![nothing; 17])
        .chain([end()])
        .collect();
    let error = request_from(stream).await.reply.unwrap_err();
    assert!(error.to_string().contains("16777216"), "{error}");
    let line = piece(&vec![b'x'; MIB]);
    let stream: Vec<_> = std::iter::once(head()).chain(vec![line; 17]).collect();
    let error = request_from(stream).await.reply.unwrap_err();
    assert!(error.to_string().contains("16777216"), "{error}");
    let kind = "content-type: application/json\r\n";
    let whole = request_from(plain(200, kind, &" ".repeat(17 * MIB))).await;
    assert_eq!(whole.reply.unwrap_err().kind(), "unavailable");
}

#[tokio::test]
async fn error_response_is_bounded() {
    let endless = vec![
        Step::Send(b"HTTP/1.1 400 X\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()),
        piece("no ".repeat(16 * 1024).as_bytes()),
        Step::Hold,
    ];
    let error = request_from(endless).await.reply.unwrap_err();
    assert_eq!(error.kind(), "refused");
    assert!(error.to_string().len() < 400, "{error}");
    // A body without an end is not awaited.
    let silent = vec![
        Step::Send(b"HTTP/1.1 400 X\r\ncontent-length: 9\r\n\r\nno".to_vec()),
        Step::Hold,
    ];
    let error = request_from(silent).await.reply.unwrap_err();
    assert!(error.to_string().ends_with(": no"), "{error}");
}
