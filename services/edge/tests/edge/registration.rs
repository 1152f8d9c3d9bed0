//! Registrations: what is accepted, and that a refusal keeps the previous services in force.

use switchboard_edge::Config;
use switchboard_protocol::outcome::{Delivered, Outcome};

use crate::{
    device::LIGHT,
    node::{Node, check},
};

async fn is_callable(node: &Node, device: &mut crate::device::Device, service: &str) -> bool {
    let mut call = node.prepare("toy", r#"{"on":true}"#);
    call.service = service.into();
    let answer = node.call(call);
    // Either the call is refused by the edge, or it arrives at the device.
    tokio::select! {
        answer = answer => {
            check(&answer.unwrap(), Outcome::UnknownService, Delivered::No);
            false
        }
        frame = device.next() => {
            let id = frame.unwrap().call_id();
            device.result(&id, "done").await;
            true
        }
    }
}

#[tokio::test]
async fn refused_registration_keeps_the_previous_services() {
    async fn refused(device: &mut crate::device::Device, services: &str) {
        let answer = device.try_register(services).await;
        assert_eq!(answer["call_id"], "register");
        assert_eq!(answer["result"]["success"], false, "{services:.80}");
        assert!(!answer["result"]["error"].as_str().unwrap().is_empty());
    }
    let mut config = Config::default();
    config.schema.schema_max_services = 3;
    let node = Node::start(config).await;
    let mut device = node.lamp("toy").await;
    let one = r#"{"description":"d","parameters":{"type":"object"}}"#;
    refused(&mut device, &format!(r#"{{"a":{one},"a":{one}}}"#)).await;
    refused(
        &mut device,
        r#"{"a":{"description":"d","parameters":{"type":"wrong"}}}"#,
    )
    .await;
    refused(&mut device, "[]").await;
    let four = ["a", "b", "c", "d"]
        .map(|name| format!(r#""{name}":{one}"#))
        .join(",");
    refused(&mut device, &format!("{{{four}}}")).await;
    refused(&mut device, &reference_bomb()).await;
    let deep = format!("{}{}{}", r#"{"items":"#.repeat(40), "{}", "}".repeat(40));
    refused(
        &mut device,
        &format!(r#"{{"a":{{"description":"d","parameters":{deep}}}}}"#),
    )
    .await;
    assert!(is_callable(&node, &mut device, "light").await);
    node.metric_is("registrations_total", Some("accepted"), 1.0)
        .await;
}

#[tokio::test]
async fn registration_without_room_keeps_the_previous_services() {
    let node = Node::with_registration_bytes(2 * LIGHT.len() as u64).await;
    let mut device = node.lamp("toy").await;
    let description = "d".repeat(2 * LIGHT.len());
    let large =
        format!(r#"{{"a":{{"description":"{description}","parameters":{{"type":"object"}}}}}}"#);
    let answer = device.try_register(&large).await;
    assert_eq!(answer["result"]["success"], false, "{answer}");
    let error = answer["result"]["error"].as_str().unwrap();
    let limit = format!("at most {} bytes together", 2 * LIGHT.len());
    assert!(error.contains(&limit), "{error}");
    assert!(is_callable(&node, &mut device, "light").await);
    assert!(!is_callable(&node, &mut device, "a").await);
}

/// References that double at each of thirty steps.
fn reference_bomb() -> String {
    let steps = (0..30).map(|step| {
        let next = format!(r##"{{"$ref":"#/$defs/s{}"}}"##, step + 1);
        format!(r#""s{step}":{{"allOf":[{next},{next}]}}"#)
    });
    let defs = steps
        .chain([r#""s30":{"type":"object"}"#.to_owned()])
        .collect::<Vec<_>>()
        .join(",");
    let schema = format!(r##"{{"$ref":"#/$defs/s0","$defs":{{{defs}}}}}"##);
    format!(r#"{{"a":{{"description":"d","parameters":{schema}}}}}"#)
}

#[tokio::test]
async fn new_registration_replaces_the_previous_at_once() {
    let node = Node::start(Config::default()).await;
    let mut device = node.lamp("toy").await;
    assert!(is_callable(&node, &mut device, "light").await);
    device
        .register(&LIGHT.replace("\"light\"", "\"lamp\""))
        .await;
    assert!(!is_callable(&node, &mut device, "light").await);
    assert!(is_callable(&node, &mut device, "lamp").await);
    let key = node.device_key("toy");
    let presence = node.caller.find(&key).await.unwrap().unwrap();
    let services = node.caller.services(key.org, &presence).await;
    let services = services.unwrap().unwrap();
    assert!(crate::node::json(&services)["lamp"].is_object());
}

#[tokio::test]
async fn call_for_a_former_registration_is_refused() {
    let node = Node::start(Config::default()).await;
    let mut device = node.lamp("toy").await;
    let in_force = async || {
        let presence = node.caller.find(&node.device_key("toy")).await.unwrap();
        presence.unwrap().digest.unwrap()
    };
    let call = |registration| {
        let mut call = node.prepare("toy", r#"{"on":true}"#);
        call.registration = Some(registration);
        node.call(call)
    };
    let former = in_force().await;
    let answer = call(former);
    let id = device.next().await.unwrap().call_id();
    device.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    device
        .register(&LIGHT.replace("Switch the light", "Switch it"))
        .await;
    let now = in_force().await;
    assert_ne!(now, former);
    let refused = call(former).await.unwrap();
    check(&refused, Outcome::UnknownService, Delivered::No);
    // The next frame is that of the next call: the device received nothing of the refused one.
    assert!(is_callable(&node, &mut device, "light").await);
}

#[tokio::test]
async fn answer_repeats_the_call_id_of_the_register() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    let message = format!(r#"{{"type":"register","data":{{"call_id":"r1","services":{LIGHT}}}}}"#);
    let (kind, task) = (
        switchboard_protocol::frame::Kind::Control,
        switchboard_protocol::frame::TaskId::MCP,
    );
    device.send(kind, task, 0, message.as_bytes()).await;
    let answer = device.expect(kind).await.json();
    assert_eq!(answer["data"]["call_id"], "r1");
    assert_eq!(answer["data"]["result"]["success"], true);
}

#[tokio::test]
async fn registration_rate_is_limited() {
    let config = Config {
        device_register_burst: 3,
        device_register_every_ms: 60_000,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut device = node.device("toy").await;
    for service in ["a", "b", "c"] {
        device.register(&format!(r#"{{"{service}":{{}}}}"#)).await;
    }
    let answer = device.try_register(r#"{"d":{}}"#).await;
    assert_eq!(answer["result"]["success"], false);
    let error = answer["result"]["error"].as_str().unwrap();
    assert!(error.contains("Try again in"), "{error}");
    assert!(
        is_callable(&node, &mut device, "c").await,
        "the last accepted services must stay in force"
    );
    assert!(!is_callable(&node, &mut device, "d").await);
}
