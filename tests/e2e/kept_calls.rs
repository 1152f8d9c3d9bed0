//! Calls that outlive connections and processes: at most once, in order, and never more said than is known.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::{
    eventually::eventually,
    plant::{Plant, echo_services},
    program::Program,
};

const LONG: Duration = Duration::from_secs(15);

/// Another gateway beside the first.
fn second_gateway(plant: &Plant) -> Program {
    let arguments = ["gateway", "--http-listen", "127.0.0.1:0"];
    Program::start(&arguments, &plant.environment())
}

fn call(mode: &str, text: &str, timeout_ms: u64) -> Value {
    json!({"service": "echo", "mode": mode, "params": {"text": text}, "timeout_ms": timeout_ms})
}

/// Asks for a call that nobody waits for, and returns its id.
async fn keep(plant: &Plant, body: &Value) -> String {
    let (status, kept) = plant.call("toy-1", body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{kept}");
    kept["call_id"].as_str().unwrap().to_owned()
}

/// The same at one of several gateways.
async fn keep_at(plant: &Plant, gateway: &Program, n: usize) -> String {
    let body = call("queued", &n.to_string(), 5_000);
    let url = format!("{}/v1/devices/toy-1/calls", gateway.address("http_url"));
    let asked = plant.http.post(url).bearer_auth(&plant.org.key).json(&body);
    let kept: Value = asked.send().await.unwrap().json().await.unwrap();
    kept["call_id"].as_str().unwrap().to_owned()
}

/// The end of a call, as this gateway tells it.
async fn end_of(plant: &Plant, gateway: &Program, id: &str) -> Value {
    let url = format!("{}/v1/calls/{id}?wait_ms=2000", gateway.address("http_url"));
    let known = async || {
        let asked = plant.http.get(&url).bearer_auth(&plant.org.key).send();
        asked.await.unwrap().json::<Value>().await.unwrap()
    };
    eventually(LONG, known, |call| call["state"] == "ended").await
}

fn outcome(call: &Value) -> (&str, &str) {
    let text = |field: &str| call[field].as_str().unwrap_or_default();
    (text("outcome"), text("delivered"))
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_after_a_killed_gateway_a_call_is_lost_and_not_made_again() {
    for mode in ["async", "queued"] {
        let mut plant = Plant::start(1).await;
        let mut toy = plant.echo(0, "toy-1").await;
        let id = keep(&plant, &call(mode, "first", 5_000)).await;
        let (seen, _, _) = toy.next_call().await;
        assert_eq!(seen, id);
        // Not before: a queued call is sent by whichever gateway is first.
        let other = second_gateway(&plant);
        plant.gateway.kill();
        let url = format!("{}/v1/calls/{id}", other.address("http_url"));
        let asked = plant.http.get(&url).bearer_auth(&plant.org.key).send();
        let known: Value = asked.await.unwrap().json().await.unwrap();
        assert_eq!(outcome(&known), ("", "unknown"), "{mode}: {known}");
        let ended = end_of(&plant, &other, &id).await;
        assert_eq!(outcome(&ended), ("lost", "unknown"), "{mode}: {ended}");

        // Its connection ends and comes anew; what it hears next is the next call.
        plant.gateway = other;
        drop(toy);
        let mut toy = plant.echo(0, "toy-1").await;
        let next = keep(&plant, &call("queued", "next", 5_000)).await;
        let (seen, _, params) = toy.next_call().await;
        assert_eq!((&seen, &params["text"]), (&next, &json!("next")), "{mode}");
        toy.answer(&seen, &json!({"success": true, "data": 1}))
            .await;
        let ended = end_of(&plant, &plant.gateway, &next).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{mode}: {ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_what_waits_survives_a_restart_of_everything() {
    let mut plant = Plant::start(1).await;
    let token = plant.device_token("toy-1").await;
    let mut ids = Vec::new();
    for text in ["a", "b", "c"] {
        ids.push(keep(&plant, &call("queued", text, 5_000)).await);
    }
    plant.gateway.kill();
    plant.edges[0].kill();
    plant.redis.kill();
    plant.database.set_away(true).await.unwrap();
    plant.database.set_away(false).await.unwrap();
    plant.redis.restart();
    plant.gateway = second_gateway(&plant);
    plant.edges.clear();
    plant.add_edge().await;
    let mut toy =
        crate::device::Device::connect(&plant.edges[0].address("device_addr"), &token).await;
    toy.register(&echo_services()).await;
    let executed = toy.executed.clone();
    let _served = toy.serve();
    for id in &ids {
        let ended = end_of(&plant, &plant.gateway, id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{ended}");
    }
    let texts = executed.lock().unwrap().clone();
    let expected = ["a", "b", "c"].map(|text| json!({"text": text}));
    assert_eq!(texts, expected, "once each, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_an_end_waits_for_a_record_that_is_away() {
    for mode in ["async", "queued"] {
        let plant = Plant::start(1).await;
        let mut toy = plant.echo(0, "toy-1").await;
        let id = keep(&plant, &call(mode, "x", 20_000)).await;
        toy.next_call().await;
        plant.database.set_away(true).await.unwrap();
        toy.answer(&id, &json!({"success": true, "data": "kept"}))
            .await;
        let told = async || plant.gateway.logged();
        eventually(LONG, told, |log| log.contains("trying again until it can")).await;
        plant.database.set_away(false).await.unwrap();
        let ended = end_of(&plant, &plant.gateway, &id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{mode}: {ended}");
        assert_eq!(ended["result"]["data"], "kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_i18_two_gateways_deliver_a_queue_once_and_in_order() {
    let plant = Plant::start(2).await;
    let second = second_gateway(&plant);
    let mut ids = Vec::new();
    let mut texts = Vec::new();
    for n in 0..40 {
        let gateway = if n % 2 == 0 { &plant.gateway } else { &second };
        ids.push(keep_at(&plant, gateway, n).await);
        texts.push(json!({"text": n.to_string()}));
    }
    let toy = plant.echo(1, "toy-1").await;
    let executed = toy.executed.clone();
    let _served = toy.serve();
    // More come while the queue is emptied.
    for n in 40..80 {
        let gateway = if n % 2 == 0 { &plant.gateway } else { &second };
        ids.push(keep_at(&plant, gateway, n).await);
        texts.push(json!({"text": n.to_string()}));
    }
    for id in &ids {
        let ended = end_of(&plant, &second, id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{ended}");
    }
    assert_eq!(*executed.lock().unwrap(), texts, "once each, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_a_drained_gateway_puts_the_ends_of_its_calls_on_record() {
    let mut plant = Plant::start(1).await;
    let other = second_gateway(&plant);
    let mut toy = plant.echo(0, "toy-1").await;
    let under_way = keep(&plant, &call("async", "x", 20_000)).await;
    let (first, _, _) = toy.next_call().await;
    assert_eq!(first, under_way);
    let queued = keep(&plant, &call("queued", "y", 20_000)).await;
    let (second, _, _) = toy.next_call().await;
    assert_eq!(second, queued);
    plant.gateway.terminate();
    for id in [&under_way, &queued] {
        toy.answer(id, &json!({"success": true, "data": 1})).await;
    }
    assert_eq!(plant.gateway.exit_code(LONG).await, Some(0));
    for id in [&under_way, &queued] {
        let ended = end_of(&plant, &other, id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{ended}");
    }
}
