//! Metrics of complete and incomplete replies.

use prometheus::{Registry, TextEncoder};
use serde_json::json;
use switchboard_completions::{ReplySink, Usage};
use tokio::time::Instant;

use crate::{
    fake_provider::{Step, event, head, plain, stream, text_chunk},
    fixture::{Fixture, REPLY_TIMEOUT, entry, providers_from, request},
};

#[tokio::test]
async fn requests_tokens_and_cost_are_counted() {
    let usage = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":4000,"completion_tokens":1000}}"#;
    let replies = vec![
        stream(&[&text_chunk("a"), usage]),
        stream(&[&text_chunk("a"), usage]),
    ];
    let mut fixture = Fixture::start(vec![vec![plain(400, "", "no")], replies]).await;
    let (rejects, mut replies) = (
        entry("a", fixture.fakes[0].address),
        entry("b", fixture.fakes[1].address),
    );
    replies["prices"] = json!({"prompt": 0.25, "completion": 2.0});
    fixture.providers = providers_from(&json!([rejects, replies]));
    let registry = Registry::new();
    fixture.providers.register(&registry).unwrap();
    let reply = fixture.complete().await.reply();
    assert!(
        (reply.usage.cost - 0.003).abs() < 1e-12,
        "{:?}",
        reply.usage
    );
    let text = TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap();
    let lines = [
        r#"switchboard_completions_requests_total{outcome="refused",provider="a"} 1"#,
        r#"switchboard_completions_requests_total{outcome="complete",provider="b"} 1"#,
        r#"switchboard_completions_tokens_total{kind="prompt",provider="b"} 4000"#,
        r#"switchboard_completions_tokens_total{kind="completion",provider="b"} 1000"#,
        r#"switchboard_completions_requests_total{outcome="late",provider="b"} 0"#,
        r#"switchboard_completions_request_seconds_count{outcome="complete",provider="b"} 1"#,
        r#"switchboard_completions_cost_total{provider="b"} 0.003"#,
        r#"switchboard_completions_first_token_seconds_count{provider="b"} 1"#,
    ];
    for line in lines {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
}

/// A sink for the usage.
#[derive(Default)]
struct UsageSink(Vec<Usage>);

impl ReplySink for UsageSink {
    fn on_text(&mut self, _text: &str) {}

    fn on_usage(&mut self, usage: &Usage) {
        self.0.push(*usage);
    }
}

#[tokio::test]
async fn usage_of_an_incomplete_reply_is_counted() {
    let usage =
        r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":4000,"completion_tokens":1000}}"#;
    let broken = vec![head(), event(&text_chunk("a")), event(usage), Step::Close];
    let mut fixture = Fixture::start(vec![vec![broken]]).await;
    let mut only = entry("a", fixture.fakes[0].address);
    only["prices"] = json!({"prompt": 0.25, "completion": 2.0});
    fixture.providers = providers_from(&json!([only]));
    let registry = Registry::new();
    fixture.providers.register(&registry).unwrap();
    let mut sink = UsageSink::default();
    let deadline = Instant::now() + REPLY_TIMEOUT;
    let request = request();
    let reply = fixture.providers.complete(&request, deadline, &mut sink);
    assert_eq!(reply.await.unwrap_err().kind(), "broken_off");
    let [used] = sink.0.as_slice() else {
        panic!("{:?}", sink.0);
    };
    assert_eq!((used.prompt_tokens, used.completion_tokens), (4_000, 1_000));
    assert!((used.cost - 0.003).abs() < 1e-12, "{used:?}");
    let text = TextEncoder::new().encode_to_string(&registry.gather());
    let text = text.unwrap();
    let line = r#"switchboard_completions_tokens_total{kind="completion",provider="a"} 1000"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}
