//! Who is asked first, for what, and how.
//! Never: an order by chance.

use std::net::SocketAddr;

use serde_json::json;
use switchboard_completions::{Config, Preferred, Providers, Request, Tool};

use crate::{
    provider::{plain, saying, stream},
    stage::{LONG, Stage, entry, hello, listed},
};

fn preferring(provider: &str) -> Request {
    Request {
        preferred: Some(Preferred {
            provider: provider.to_owned(),
            model: "special".to_owned(),
        }),
        ..hello()
    }
}

/// Provider `b` lists the model that is wished, at its own price.
fn listing(stage: &mut Stage) {
    let [a, mut b] = ["a", "b"].map(|name| {
        let place = usize::from(name == "b");
        entry(name, stage.each[place].address)
    });
    b["prices"] = json!({"prompt": 1, "completion": 1});
    b["models"] = json!([{"name": "special", "prices": {"prompt": 10, "completion": 20}}]);
    stage.providers = listed(&json!([a, b]));
}

#[tokio::test]
async fn a_preferred_provider_is_asked_first_and_for_that_model() {
    let refuses = plain(404, "", "no such model");
    let mut stage = Stage::set(vec![vec![saying("a")], vec![saying("b"), refuses]]).await;
    listing(&mut stage);
    let reply = stage.ask_for(&preferring("b"), LONG).await.reply();
    assert_eq!(reply.provider, "b");
    let reply = stage.ask_for(&preferring("b"), LONG).await.reply();
    assert_eq!(reply.provider, "a");
    assert_eq!(stage.each[1].last_asked().body["model"], "special");
    assert_eq!(stage.each[0].last_asked().body["model"], "model-a");
}

#[tokio::test]
async fn a_model_has_its_own_price_and_one_that_is_not_listed_is_not_asked() {
    let usage = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000000,"completion_tokens":1000000}}"#;
    let replies = || stream(&[usage]);
    let mut stage = Stage::set(vec![Vec::new(), vec![replies(), replies()]]).await;
    listing(&mut stage);
    let mut request = preferring("b");
    for (wished, expected, cost) in [("special", "special", 30.0), ("dearest", "model-b", 2.0)] {
        request.preferred.as_mut().unwrap().model = wished.to_owned();
        let reply = stage.ask_for(&request, LONG).await.reply();
        assert_eq!((reply.provider.as_str(), reply.usage.cost), ("b", cost));
        assert_eq!(stage.each[1].last_asked().body["model"], expected);
    }
}

#[tokio::test]
async fn a_preferred_provider_that_is_not_set_changes_nothing() {
    let stage = Stage::set(vec![vec![saying("a")], vec![saying("b")]]).await;
    let reply = stage.ask_for(&preferring("c"), LONG).await.reply();
    assert_eq!(reply.provider, "a");
    assert_eq!(stage.each[0].last_asked().body["model"], "model-a");
}

#[tokio::test]
async fn the_list_says_how_each_is_asked() {
    let mut stage = Stage::set(vec![vec![saying("a")]]).await;
    let mut one = entry("a", stage.each[0].address);
    // A variable that is set wherever tests run.
    one["key_env"] = json!("CARGO_PKG_NAME");
    one["limit_field"] = json!("max_completion_tokens");
    stage.providers = listed(&json!([one]));
    let request = Request {
        max_tokens: Some(7),
        tools: vec![Tool {
            name: "f".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        }],
        ..hello()
    };
    stage.ask_for(&request, LONG).await.reply();
    let asked = stage.each[0].last_asked();
    let head = asked.head.to_lowercase();
    assert!(
        head.starts_with("post /v1/chat/completions http/1.1"),
        "{head}"
    );
    assert!(head.contains("authorization: bearer switchboard-completions"));
    assert!(head.contains("content-type: application/json"));
    assert_eq!(
        asked.body,
        json!({
            "model": "model-a",
            "messages": [{"role": "user", "content": "hello"}],
            "max_completion_tokens": 7,
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            "tool_choice": "none",
        })
    );
}

fn by_flags(address: SocketAddr, key: &str) -> Config {
    Config {
        completions_endpoint: Some(format!("http://{address}/v1").parse().unwrap()),
        completions_model: Some("m".to_owned()),
        completions_key: Some(key.into()),
        ..Config::default()
    }
}

#[tokio::test]
async fn one_may_be_set_by_flags() {
    assert!(
        Providers::from_config(&Config::default())
            .unwrap()
            .is_none()
    );
    let mut stage = Stage::set(vec![vec![saying("a")]]).await;
    let config = by_flags(stage.each[0].address, "sk-1");
    stage.providers = Providers::from_config(&config).unwrap().unwrap();
    assert_eq!(stage.providers.names().collect::<Vec<_>>(), ["default"]);
    assert_eq!(stage.ask().await.reply().provider, "default");
    let head = stage.each[0].last_asked().head;
    assert!(head.contains("Bearer sk-1"), "{head}");
}

#[tokio::test]
async fn a_key_is_never_repeated() {
    let key = "sk-very-secret";
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {key}"}}}}"#);
    let fails = vec![plain(500, "", &body); 4];
    let mut stage = Stage::set(vec![[vec![plain(401, "", &body)], fails].concat()]).await;
    let config = by_flags(stage.each[0].address, key);
    stage.providers = Providers::from_config(&config).unwrap().unwrap();
    for _ in 0..2 {
        let said = format!("{:?}", stage.ask().await.reply);
        assert!(said.contains("Incorrect API key"), "{said}");
        assert!(!said.contains(key), "{said}");
    }
    assert!(!format!("{config:?} {:?}", stage.providers).contains(key));
}
