//! A gateway is the one address of a deployment: control and chat are behind it.

pub mod fake_service;
mod forwarding;
mod sessions;

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_test_support::{eventually::eventually, switchboard::Program};

use fake_service::Client;

use crate::{
    cluster::{ANY_PORT, TestCluster},
    provider::Provider,
    system::{ChatFixture, TestSystem},
};

const MIB: usize = 1024 * 1024;
const METRIC_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a gateway of a cluster that forwards to these services.
pub fn start_gateway(cluster: &TestCluster, arguments: &[&str]) -> Program {
    let arguments = [&["gateway", "--http-listen", ANY_PORT], arguments].concat();
    Program::start(&arguments, &cluster.environment())
}

/// Waits until a gateway has counted so many forwarded requests.
pub async fn forwarded(gateway: &Program, service: &str, outcome: &str, count: u32) {
    let url = format!("{}/metrics", gateway.address("admin_url"));
    let metrics = async || reqwest::get(&url).await.unwrap().text().await.unwrap();
    let labels = format!("outcome=\"{outcome}\",service=\"{service}\"");
    let line = format!("switchboard_gateway_forwarded_total{{{labels}}} {count}\n");
    eventually(METRIC_TIMEOUT, metrics, |text| text.contains(&line)).await;
}

/// One process for each service, and a gateway in front of them.
struct Deployment {
    fixture: ChatFixture,
    gateway: Program,
    /// Everything at the address of the gateway.
    system: TestSystem,
    _objects: tempfile::TempDir,
}

impl Deployment {
    async fn start() -> Self {
        let objects = tempfile::tempdir().unwrap();
        let folder = format!("file://{}", objects.path().display());
        let cluster = TestCluster::start_with(1, &[("SWITCHBOARD_OBJECTS", &folder)]).await;
        let fixture = ChatFixture::with_cluster(cluster, Provider::start().await, &[]);
        let (control, chat) = (&fixture.cluster.control, &fixture.chat);
        let (control, chat) = (control.address("http_url"), chat.address("http_url"));
        let urls = ["--control-url", &control, "--chat-url", &chat];
        let gateway = start_gateway(&fixture.cluster, &urls);
        fixture.cluster.await_ready(&gateway).await;
        let system = TestSystem {
            settings: gateway.address("http_url"),
            talk: gateway.address("http_url"),
            ..TestSystem::new(&fixture.cluster, &fixture.chat)
        };
        Self {
            fixture,
            gateway,
            system,
            _objects: objects,
        }
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.system.ask(Method::GET, path, &Value::Null).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_serves_the_whole_interface() {
    let deployment = Deployment::start().await;
    let system = &deployment.system;
    // The settings of control: create, read, change with a precondition, delete.
    let npc = system.npc(&json!({"name": "Bello"}), &["toy-1"]).await;
    let path = format!("/v1/npcs/{npc}");
    let (status, shown) = deployment.get(&path).await;
    assert_eq!((status, &shown["id"]), (StatusCode::OK, &json!(npc)));
    system.set_default_npc(&npc).await;
    let (status, org) = deployment.get("/v1/org").await;
    assert_eq!(
        (status, &org["default_npc_id"]),
        (StatusCode::OK, &json!(npc))
    );
    let other = system.npc(&json!({"name": "Other"}), &[]).await;
    let other = format!("/v1/npcs/{other}");
    let url = format!("{}{other}", system.settings);
    let request = system.http.delete(url).header("if-match", "*");
    let deleted = request.bearer_auth(&system.key).send();
    assert_eq!(deleted.await.unwrap().status(), StatusCode::NO_CONTENT);
    let (status, problem) = deployment.get(&other).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::NOT_FOUND, &json!("/problems/not_found"))
    );
    // The calls of the gateway, with a token of control.
    let mut device = system.device(0, "toy-1").await;
    device.register(&crate::cluster::echo_services()).await;
    let served = device.serve();
    let call = json!({"service": "echo", "params": {"text": "hi"}});
    let (status, called) = system
        .ask(Method::POST, "/v1/devices/toy-1/calls", &call)
        .await;
    assert_eq!(
        (status, &called["outcome"]),
        (StatusCode::OK, &json!("succeeded"))
    );
    drop(served);
    // The document has the paths of all services, and what is in none of them is not forwarded.
    let (_, document) = deployment.get("/openapi.json").await;
    for path in [
        "/v1/devices",
        "/v1/npcs/{id}",
        "/v1/npcs/{id}/chat",
        "/v1/orgs",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    let (status, problem) = deployment.get("/v1/nothing").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(
        problem["detail"]
            .to_string()
            .contains("switchboard gateway")
    );
    let (status, _) = system.ask(Method::PUT, "/v1/npcs", &json!({})).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_of_chat_is_streamed_and_ends_with_its_client() {
    let mut deployment = Deployment::start().await;
    let system = &deployment.system;
    let npc = system.npc(&json!({"name": "Bello"}), &[]).await;
    let mut events = system.events(&npc, &json!({"text": "A story"})).await;
    let mut completion = deployment.fixture.provider.next_request().await;
    // Each event arrives before the provider continues.
    for part in ["Once ", "upon ", "a time"] {
        completion.send_text(part).await;
        let text = events.expect_event("text").await;
        assert_eq!(text["text"].as_str().unwrap().trim(), part.trim());
    }
    completion.finish("stop").await;
    events.expect_event("end").await;
    assert_eq!(events.next().await, None);
    forwarded(&deployment.gateway, "chat", "answered", 1).await;
    // The client disconnects: chat closes its request to the provider.
    let mut events = system.events(&npc, &json!({"text": "Another one"})).await;
    let mut completion = deployment.fixture.provider.next_request().await;
    completion.send_text("Once upon a time").await;
    events.expect_event("text").await;
    drop(events);
    completion.wait_closed().await;
    forwarded(&deployment.gateway, "chat", "cancelled", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_reach_control_as_far_as_it_accepts_them() {
    let deployment = Deployment::start().await;
    let text = "Bello likes long stories. ".repeat(3 * MIB / 26);
    // `upload_book` fails unless control has the whole file: it compares the SHA-256.
    let book = deployment.system.upload_book("Stories", &text).await;
    assert_eq!(
        deployment.system.show_book(&book).await["size_bytes"],
        text.len()
    );
    // Other paths have smaller limits.
    let mut client = Client::connect(&deployment.gateway).await;
    let length = text.len();
    let head =
        format!("POST /v1/npcs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    client.send(head.as_bytes()).await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_service_is_named_and_the_others_go_on() {
    let mut deployment = Deployment::start().await;
    let npc = deployment.system.npc(&json!({"name": "Bello"}), &[]).await;
    deployment.fixture.cluster.control.kill();
    let url = format!("{}/v1/npcs/{npc}", deployment.system.settings);
    let http = &deployment.system.http;
    let refused = http.get(url).bearer_auth(&deployment.system.key).send();
    let refused = refused.await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["type"], "/problems/service_unavailable");
    assert_eq!(problem["service"], "control");
    let detail = problem["detail"].as_str().unwrap();
    for part in ["switchboard control", "not sent", "--control-url"] {
        assert!(detail.contains(part), "{detail}");
    }
    forwarded(&deployment.gateway, "control", "unavailable", 1).await;
    // The gateway stays ready, and chat is reached.
    deployment
        .fixture
        .cluster
        .await_ready(&deployment.gateway)
        .await;
    let hello = json!({"text": "Hello"});
    let mut events = deployment.system.events(&npc, &hello).await;
    let completion = deployment.fixture.provider.next_request().await;
    completion.reply("Hello!").await;
    events.expect_event("text").await;
}
