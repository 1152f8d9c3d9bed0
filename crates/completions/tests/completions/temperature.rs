//! Models with a fixed temperature.

use serde_json::json;
use switchboard_completions::Request;

use crate::{
    fake_provider::{Step, plain, reply_with},
    fixture::{Fixture, REPLY_TIMEOUT, request},
};

fn rejects() -> Vec<Step> {
    let message = "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.";
    let error = json!({"message": message, "type": "invalid_request_error", "param": "temperature", "code": "unsupported_value"});
    plain(
        400,
        "content-type: application/json\r\n",
        &json!({ "error": error }).to_string(),
    )
}

fn with_temperature() -> Request {
    Request {
        temperature: Some(0.5),
        ..request()
    }
}

/// Which requests had a temperature.
fn temperatures_sent(fixture: &Fixture) -> Vec<bool> {
    let requests = fixture.fakes[0].requests.lock().unwrap();
    let temperatures_sent = requests
        .iter()
        .map(|requests| requests.body.get("temperature") == Some(&json!(0.5)));
    temperatures_sent.collect()
}

#[tokio::test]
async fn rejected_temperature_is_omitted_from_then_on() {
    let fixture = Fixture::start(vec![vec![rejects(), reply_with("1"), reply_with("2")]]).await;
    for expected in ["1", "2"] {
        assert_eq!(
            fixture
                .complete_with(&with_temperature(), REPLY_TIMEOUT)
                .await
                .texts,
            [expected]
        );
    }
    assert_eq!(temperatures_sent(&fixture), [true, false, false]);
}

#[tokio::test]
async fn other_rejection_keeps_the_temperature() {
    let fixture = Fixture::start(vec![vec![rejects(), rejects(), reply_with("a")]]).await;
    let error = fixture
        .complete_with(&with_temperature(), REPLY_TIMEOUT)
        .await
        .reply
        .unwrap_err();
    assert_eq!(error.kind(), "refused");
    assert_eq!(
        fixture
            .complete_with(&with_temperature(), REPLY_TIMEOUT)
            .await
            .texts,
        ["a"]
    );
    assert_eq!(temperatures_sent(&fixture), [true, false, true]);
}

#[tokio::test]
async fn request_without_temperature_is_sent_once() {
    let fixture = Fixture::start(vec![vec![rejects(), reply_with("a")]]).await;
    let error = fixture.complete().await.reply.unwrap_err();
    assert_eq!(error.kind(), "refused");
    assert_eq!(fixture.request_counts(), [1]);
}
