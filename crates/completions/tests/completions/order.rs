//! The order of providers, and the requests that they receive.

use std::net::SocketAddr;

use serde_json::{json, value::to_raw_value};
use switchboard_completions::{Config, ModelPreference, Providers, Request, Tool};

use crate::{
    fake_provider::{plain, reply_with, stream},
    fixture::{Fixture, REPLY_TIMEOUT, entry, providers_from, request},
};

fn request_for(provider: &str) -> Request {
    Request {
        preference: Some(ModelPreference {
            provider: provider.to_owned(),
            model: "special".to_owned(),
        }),
        ..request()
    }
}

/// Configures the requested model for provider `b`, with its own price.
fn configure_models(fixture: &mut Fixture) {
    let [a, mut b] = ["a", "b"].map(|name| {
        let place = usize::from(name == "b");
        entry(name, fixture.fakes[place].address)
    });
    b["prices"] = json!({"prompt": 1, "completion": 1});
    b["models"] = json!([{"name": "special", "prices": {"prompt": 10, "completion": 20}}]);
    fixture.providers = providers_from(&json!([a, b]));
}

#[tokio::test]
async fn preferred_provider_gets_the_model() {
    let rejects = plain(404, "", "no such model");
    let mut fixture =
        Fixture::start(vec![vec![reply_with("a")], vec![reply_with("b"), rejects]]).await;
    configure_models(&mut fixture);
    let reply = fixture
        .complete_with(&request_for("b"), REPLY_TIMEOUT)
        .await
        .reply();
    assert_eq!(reply.provider, "b");
    let reply = fixture
        .complete_with(&request_for("b"), REPLY_TIMEOUT)
        .await
        .reply();
    assert_eq!(reply.provider, "a");
    assert_eq!(fixture.fakes[1].last_request().body["model"], "special");
    assert_eq!(fixture.fakes[0].last_request().body["model"], "model-a");
}

#[tokio::test]
async fn models_have_prices_and_must_be_configured() {
    let usage = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000000,"completion_tokens":1000000}}"#;
    let replies = || stream(&[usage]);
    let mut fixture = Fixture::start(vec![Vec::new(), vec![replies(), replies()]]).await;
    configure_models(&mut fixture);
    let mut request = request_for("b");
    for (wished, expected, cost) in [("special", "special", 30.0), ("dearest", "model-b", 2.0)] {
        request.preference.as_mut().unwrap().model = wished.to_owned();
        let reply = fixture.complete_with(&request, REPLY_TIMEOUT).await.reply();
        assert_eq!((reply.provider.as_str(), reply.usage.cost), ("b", cost));
        assert_eq!(fixture.fakes[1].last_request().body["model"], expected);
    }
}

#[tokio::test]
async fn unknown_preferred_provider_is_ignored() {
    let fixture = Fixture::start(vec![vec![reply_with("a")], vec![reply_with("b")]]).await;
    let reply = fixture
        .complete_with(&request_for("c"), REPLY_TIMEOUT)
        .await
        .reply();
    assert_eq!(reply.provider, "a");
    assert_eq!(fixture.fakes[0].last_request().body["model"], "model-a");
}

#[tokio::test]
async fn list_determines_the_requests() {
    let mut fixture = Fixture::start(vec![vec![reply_with("a")]]).await;
    let mut one = entry("a", fixture.fakes[0].address);
    // A variable that is set in every test environment.
    one["key_env"] = json!("CARGO_PKG_NAME");
    one["limit_field"] = json!("max_completion_tokens");
    fixture.providers = providers_from(&json!([one]));
    let request = Request {
        max_tokens: Some(7),
        tools: vec![Tool {
            name: "f".to_owned(),
            description: String::new(),
            parameters: to_raw_value(&json!({"type": "object"})).unwrap().into(),
        }],
        ..request()
    };
    fixture.complete_with(&request, REPLY_TIMEOUT).await.reply();
    let requests = fixture.fakes[0].last_request();
    let head = requests.head.to_lowercase();
    assert!(
        head.starts_with("post /v1/chat/completions http/1.1"),
        "{head}"
    );
    assert!(head.contains("authorization: bearer switchboard-completions"));
    assert!(head.contains("content-type: application/json"));
    assert_eq!(
        requests.body,
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
async fn provider_can_be_set_by_flags() {
    assert!(
        Providers::from_config(&Config::default())
            .unwrap()
            .is_none()
    );
    let mut fixture = Fixture::start(vec![vec![reply_with("a")]]).await;
    let config = by_flags(fixture.fakes[0].address, "sk-1");
    fixture.providers = Providers::from_config(&config).unwrap().unwrap();
    assert_eq!(fixture.providers.names().collect::<Vec<_>>(), ["default"]);
    assert_eq!(fixture.complete().await.reply().provider, "default");
    let head = fixture.fakes[0].last_request().head;
    assert!(head.contains("Bearer sk-1"), "{head}");
}

#[tokio::test]
async fn key_is_never_repeated() {
    let key = "sk-very-secret";
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {key}"}}}}"#);
    let fails = vec![plain(500, "", &body); 4];
    let mut fixture = Fixture::start(vec![[vec![plain(401, "", &body)], fails].concat()]).await;
    let config = by_flags(fixture.fakes[0].address, key);
    fixture.providers = Providers::from_config(&config).unwrap().unwrap();
    for _ in 0..2 {
        let said = format!("{:?}", fixture.complete().await.reply);
        assert!(said.contains("Incorrect API key"), "{said}");
        assert!(!said.contains(key), "{said}");
    }
    assert!(!format!("{config:?} {:?}", fixture.providers).contains(key));
}
