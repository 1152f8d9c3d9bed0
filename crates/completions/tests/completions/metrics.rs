//! What is counted of whole and broken replies.
//! Never: a request that is not counted.

use prometheus::{Registry, TextEncoder};
use serde_json::json;
use switchboard_completions::{Ear, Usage};
use tokio::time::Instant;

use crate::{
    provider::{Act, event, head, plain, says, stream},
    stage::{LONG, Stage, entry, hello, listed},
};

#[tokio::test]
async fn requests_tokens_and_costs_are_counted() {
    let usage = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":4000,"completion_tokens":1000}}"#;
    let replies = vec![stream(&[&says("a"), usage]), stream(&[&says("a"), usage])];
    let mut stage = Stage::set(vec![vec![plain(400, "", "no")], replies]).await;
    let (refuses, mut replies) = (
        entry("a", stage.each[0].address),
        entry("b", stage.each[1].address),
    );
    replies["prices"] = json!({"prompt": 0.25, "completion": 2.0});
    stage.providers = listed(&json!([refuses, replies]));
    let registry = Registry::new();
    stage.providers.register(&registry).unwrap();
    let reply = stage.ask().await.reply();
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

/// Hears what replies take, and no words.
#[derive(Default)]
struct Purse(Vec<Usage>);

impl Ear for Purse {
    fn hear(&mut self, _words: &str) {}

    fn takes(&mut self, usage: &Usage) {
        self.0.push(*usage);
    }
}

#[tokio::test]
async fn what_a_broken_reply_takes_is_counted_too() {
    let usage =
        r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":4000,"completion_tokens":1000}}"#;
    let broken = vec![head(), event(&says("a")), event(usage), Act::Close];
    let mut stage = Stage::set(vec![vec![broken]]).await;
    let mut only = entry("a", stage.each[0].address);
    only["prices"] = json!({"prompt": 0.25, "completion": 2.0});
    stage.providers = listed(&json!([only]));
    let registry = Registry::new();
    stage.providers.register(&registry).unwrap();
    let mut purse = Purse::default();
    let deadline = Instant::now() + LONG;
    let request = hello();
    let reply = stage.providers.complete(&request, deadline, &mut purse);
    assert_eq!(reply.await.unwrap_err().kind(), "broken_off");
    let [used] = purse.0.as_slice() else {
        panic!("{:?}", purse.0);
    };
    assert_eq!((used.prompt_tokens, used.completion_tokens), (4_000, 1_000));
    assert!((used.cost - 0.003).abs() < 1e-12, "{used:?}");
    let text = TextEncoder::new().encode_to_string(&registry.gather());
    let text = text.unwrap();
    let line = r#"switchboard_completions_tokens_total{kind="completion",provider="a"} 1000"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}
