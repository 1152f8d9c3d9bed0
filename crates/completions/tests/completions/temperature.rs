//! Models that have a temperature of their own, and refuse to be told another.
//! Never: a temperature kept from a model that takes it.

use serde_json::json;
use switchboard_completions::Request;

use crate::{
    provider::{Act, plain, saying},
    stage::{LONG, Stage, hello},
};

fn refuses() -> Vec<Act> {
    let message = "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.";
    let error = json!({"message": message, "type": "invalid_request_error", "param": "temperature", "code": "unsupported_value"});
    plain(
        400,
        "content-type: application/json\r\n",
        &json!({ "error": error }).to_string(),
    )
}

fn warm() -> Request {
    Request {
        temperature: Some(0.5),
        ..hello()
    }
}

/// Which of the requests named a temperature.
fn named(stage: &Stage) -> Vec<bool> {
    let asked = stage.each[0].asked.lock().unwrap();
    let named = asked
        .iter()
        .map(|asked| asked.body.get("temperature") == Some(&json!(0.5)));
    named.collect()
}

#[tokio::test]
async fn a_model_that_refuses_a_temperature_is_asked_without_one_from_then_on() {
    let stage = Stage::set(vec![vec![refuses(), saying("1"), saying("2")]]).await;
    for expected in ["1", "2"] {
        assert_eq!(stage.ask_for(&warm(), LONG).await.heard, [expected]);
    }
    assert_eq!(named(&stage), [true, false, false]);
}

#[tokio::test]
async fn a_refusal_that_has_another_cause_is_not_remembered() {
    let stage = Stage::set(vec![vec![refuses(), refuses(), saying("a")]]).await;
    let error = stage.ask_for(&warm(), LONG).await.reply.unwrap_err();
    assert_eq!(error.kind(), "refused");
    assert_eq!(stage.ask_for(&warm(), LONG).await.heard, ["a"]);
    assert_eq!(named(&stage), [true, false, true]);
}

#[tokio::test]
async fn a_request_without_a_temperature_is_not_asked_twice() {
    let stage = Stage::set(vec![vec![refuses(), saying("a")]]).await;
    let error = stage.ask().await.reply.unwrap_err();
    assert_eq!(error.kind(), "refused");
    assert_eq!(stage.times_asked(), [1]);
}
