//! Budgets of a gateway: an organisation at its share leaves room for another one.

use bytes::Bytes;
use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use switchboard_bus::Answer;
use switchboard_catalog::UriTemplate;
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    id::{DeviceKey, OrgId, PictureId},
    schema::Digest,
};
use switchboard_runtime::budget::{Budget, Kind, Owner};
use switchboard_store::{NewPicture, Owner as Creator};
use switchboard_test_support::eventually::eventually_true;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    mcp_client::{exchange, modern, names, with_credential},
    test_gateway::{SERVICES, TestGateway, send},
};

/// An organisation that has nothing in use.
pub(crate) struct OtherOrg {
    pub(crate) id: OrgId,
    pub(crate) key: ApiKeySecret,
}

impl OtherOrg {
    pub(crate) async fn new(gateway: &TestGateway) -> Self {
        let key = gateway.foreign_key().await;
        let known = gateway.store.api_key_by_hash(&key.hash()).await.unwrap();
        let id = known.unwrap().org;
        Self { id, key }
    }

    pub(crate) async fn connect(&self, gateway: &TestGateway, id: &str) {
        let device = DeviceKey {
            org: self.id,
            device: id.parse().unwrap(),
        };
        let epoch = gateway.edge.bus.claim(&device).await.unwrap().epoch;
        let json = Bytes::from_static(SERVICES.as_bytes());
        let services = (Digest::compute(&json), &json);
        let announced = gateway.edge.bus.register(&device, epoch, None, services);
        announced.await.unwrap();
    }
}

/// Has the first organisation hold its share of a budget, so that its request over MCP waits. The
/// same request of the other organisation succeeds in the meantime.
async fn check_share(
    (gateway, other): (&TestGateway, &OtherOrg),
    (name, budget): (&str, Budget),
    (method, params): (&str, Value),
    has_succeeded: impl Fn(&Value) -> bool,
) {
    let ask = || modern(gateway, "/mcp", method, params.clone());
    let owner = Owner::Org(gateway.org.uuid());
    let share = budget.try_acquire(owner, budget.share()).unwrap();
    let mut asking = JoinSet::from_iter([exchange(ask())]);
    eventually_true("the organisation at its share waits", || {
        let mut reports = gateway.budgets.report().into_iter();
        let report = reports.find(|report| report.budget == name);
        report.is_some_and(|report| report.waiting == 1)
    })
    .await;
    let request = with_credential(ask(), other.key.expose_secret());
    let answer = exchange(request).await;
    assert!(has_succeeded(answer.result()), "{:?}", answer.result());
    assert!(asking.try_join_next().is_none(), "it still waits");
    drop(share);
    let answer = asking.join_next().await.unwrap().unwrap();
    assert!(has_succeeded(answer.result()), "{:?}", answer.result());
}

#[tokio::test]
async fn pictures_of_an_org_leave_room_for_others() {
    let gateway = TestGateway::start().await;
    let other = OtherOrg::new(&gateway).await;
    for org in [gateway.org, other.id] {
        let picture = NewPicture {
            id: PictureId::from_uuid(Uuid::now_v7()),
            name: "dot".to_owned(),
            uri: Some(UriTemplate::parse("test://dot").unwrap()),
            mime_type: "image/png",
            width: 1,
            height: 1,
            bytes: Bytes::from_static(b"\x89PNG"),
        };
        let added = gateway.store.add_picture(Creator::Org(org), picture);
        added.await.unwrap();
    }
    let (name, kind) = ("mcp_pictures", Kind::Brief);
    check_share(
        (&gateway, &other),
        // The gateway's own budget, whatever the capacity and the kind here.
        (name, gateway.budgets.bytes(name, 1, kind)),
        ("resources/read", json!({"uri": "test://dot"})),
        |result| result["contents"][0]["blob"] == "iVBORw==",
    )
    .await;
}

#[tokio::test]
async fn searches_of_an_org_among_its_devices_leave_room_for_others() {
    let gateway = TestGateway::start().await;
    let other = OtherOrg::new(&gateway).await;
    // The name is converted for a tool. The device is not stored: it is found on the bus.
    gateway.connect("live.one").await;
    other.connect(&gateway, "live.one").await;
    let listed = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let tool = names(listed.result())[0];
    let (name, kind) = ("mcp_device_searches", Kind::Brief);
    check_share(
        (&gateway, &other),
        (name, gateway.budgets.slots(name, 1, kind)),
        ("tools/call", json!({"name": tool, "arguments": {}})),
        |result| result["structuredContent"]["outcome"] == "succeeded",
    )
    .await;
}

#[tokio::test]
async fn repeated_async_call_is_replayed_without_a_slot() {
    let gateway = TestGateway::with_flags(&["--kept-calls-under-way", "4"]).await;
    gateway.connect("toy-1").await;
    let call = |key| {
        let call = gateway.call_request("toy-1", r#"{"service":"silent","mode":"async"}"#);
        send(call.header("idempotency-key", key))
    };
    let first = call("k").await;
    assert_eq!(first.status, 202, "{}", first.text);
    let repeated = call("k").await;
    assert_eq!(repeated.status, 202, "{}", repeated.text);
    assert_eq!(repeated.json["call_id"], first.json["call_id"]);
    let other = call("other").await;
    assert_eq!(other.status, 429, "{}", other.text);
    assert_eq!(other.json["delivered"], "no");
}

#[tokio::test]
async fn queues_of_an_org_leave_slots_to_others() {
    // One slot for each organisation. The sweep comes later than the end of the test.
    let flags = ["--kept-calls-under-way", "4", "--queue-sweep-ms", "600000"];
    let gateway = TestGateway::with_flags(&flags).await;
    let other = OtherOrg::new(&gateway).await;
    let queue = async |key: &ApiKeySecret, device: &str, service: &str| {
        let path = format!("/v1/devices/{device}/calls");
        let call = gateway.request_as(key, Method::POST, &path);
        let accepted = send(call.json(&json!({"service": service, "mode": "queued"}))).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        accepted.json["call_id"].as_str().unwrap().to_owned()
    };
    let call = async |key: &ApiKeySecret, id: &str, wait_ms: u32| {
        let path = format!("/v1/calls/{id}?wait_ms={wait_ms}");
        send(gateway.request_as(key, Method::GET, &path)).await.json
    };
    gateway.connect("toy-1").await;
    queue(&gateway.key, "toy-1", "silent").await;
    let (_, reply) = gateway.edge.next_unanswered().await;
    let waiting = queue(&gateway.key, "toy-2", "echo").await;
    gateway.connect("toy-2").await;
    let refused = "switchboard_budget_refused_total{budget=\"queued_calls\",scope=\"share\"} 0\n";
    eventually_true("a queue is refused", || {
        !gateway.metrics().contains(refused)
    })
    .await;

    let quick = queue(&other.key, "toy-2", "echo").await;
    other.connect(&gateway, "toy-2").await;
    let ended = call(&other.key, &quick, 9_000).await;
    assert_eq!(ended["outcome"], "succeeded", "{ended}");
    let waits = call(&gateway.key, &waiting, 0).await;
    assert_eq!(waits["state"], "queued", "{waits}");

    let answer = Answer::result(true, Bytes::from_static(b"{\"success\":true}"));
    gateway.edge.bus.answer(&reply, answer);
    let ended = call(&gateway.key, &waiting, 9_000).await;
    assert_eq!(ended["outcome"], "succeeded", "{ended}");
}
