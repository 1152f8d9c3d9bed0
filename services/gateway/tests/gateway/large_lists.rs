//! Devices with large registrations: pages end by bytes, registrations are read only where they
//! are listed, and clients that do not read hold a share of the memory for responses.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_bus::DisconnectReason;
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::budget::{Kind, Owner};
use switchboard_store::{DeviceEvent, DeviceEventKind};
use switchboard_test_support::eventually::{eventually_some, eventually_true};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::{
    mcp_client::{exchange, modern, names},
    test_gateway::{Response, TestGateway, send},
};

/// The maximum size of the elements of a page, and of the JSON around them.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 + 64 * 1024;
/// A registration of nearly the size that a device may have.
const SERVICES_BYTES: usize = 250_000;
/// Devices stored at a time.
const BATCH: usize = 20;

/// The services of a device, unlike those of any other.
fn services(device: &str) -> String {
    let schema = json!({"enum": [device, "x".repeat(SERVICES_BYTES)]});
    json!({"echo": {"parameters": {"properties": {"a": schema}}}}).to_string()
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("toy-{at:03}")).collect()
}

/// Stores devices that were connected before.
async fn store_devices(gateway: &TestGateway, org: OrgId, ids: &[String]) {
    for ids in ids.chunks(BATCH) {
        let mut events = Vec::new();
        for id in ids {
            let event = |kind| DeviceEvent {
                device: DeviceKey {
                    org,
                    device: id.parse().unwrap(),
                },
                epoch: 1,
                at: chrono::Utc::now(),
                kind,
            };
            let services = services(id);
            events.extend([
                event(DeviceEventKind::Connected),
                event(DeviceEventKind::Registered {
                    digest: Digest::compute(services.as_bytes()),
                    services: Some(services),
                }),
                event(DeviceEventKind::Disconnected {
                    reason: DisconnectReason::IdleTimeout.as_str(),
                }),
            ]);
        }
        let stored = gateway.store.record_device_events(&events).await;
        stored.unwrap();
    }
}

async fn org_of(gateway: &TestGateway, key: &ApiKeySecret) -> OrgId {
    let key = gateway.store.api_key_by_hash(&key.hash()).await.unwrap();
    key.unwrap().org
}

fn listed_ids(page: &Value) -> Vec<String> {
    let devices = page["devices"].as_array().unwrap().iter();
    let id = |device: &Value| device["id"].as_str().unwrap().to_owned();
    devices.map(id).collect()
}

#[tokio::test]
async fn page_of_large_registrations_ends_by_bytes() {
    let gateway = TestGateway::start().await;
    let expected = ids(200);
    store_devices(&gateway, gateway.org, &expected).await;
    for id in &expected[..20] {
        gateway.connect_with(id, &services(id)).await;
    }
    let (mut found, mut path) = (Vec::new(), "/v1/devices?limit=200".to_owned());
    loop {
        let page = gateway.get(&path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.len() <= MAX_PAGE_BYTES, "{}", page.text.len());
        let ids = listed_ids(&page.json);
        assert!((10..=20).contains(&ids.len()) || found.len() + ids.len() == 200);
        let first = page.json["devices"][0]["services"].to_string();
        assert!(first.len() > SERVICES_BYTES, "the services are listed");
        found.extend(ids);
        match page.json["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/devices?limit=200&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(found, expected);
}

#[tokio::test]
async fn page_of_large_tools_ends_by_bytes() {
    let gateway = TestGateway::start().await;
    let ids = ids(30);
    store_devices(&gateway, gateway.org, &ids).await;
    let (mut found, mut params) = (Vec::new(), json!({}));
    loop {
        let page = exchange(modern(&gateway, "/mcp", "tools/list", params)).await;
        let result = page.result();
        assert!(result.to_string().len() <= MAX_PAGE_BYTES);
        assert!(result.to_string().len() > SERVICES_BYTES);
        found.extend(names(result).into_iter().map(str::to_owned));
        match result.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    let expected: Vec<String> = ids.iter().map(|id| format!("{id}__echo")).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn registration_is_read_only_where_it_is_listed() {
    let gateway = TestGateway::start().await;
    gateway.store_device("asleep").await;
    gateway.store_device("living.room:lamp").await;
    for id in ["toy-1", "living.room:lamp"] {
        gateway.connect(id).await;
    }
    let listed = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let lamp = names(listed.result())[1].to_owned();
    assert!(lamp.starts_with("living-"), "{lamp}");
    let another = TestGateway::start().await;
    another.store_device("living.room:lamp").await;
    another.connect("living.room:lamp").await;

    // While the table is locked, a query of registrations is not answered.
    for gateway in [&gateway, &another] {
        let lock = gateway.database.lock("registration_contents").await;
        let lock = lock.unwrap();
        for unknown in ["x-deadbeef__y", "toy-2__echo", "asleep-0a1b2c3d__echo"] {
            let params = json!({"name": unknown, "arguments": {}});
            let call = modern(gateway, "/mcp", "tools/call", params);
            assert_eq!(exchange(call).await.error_code(), -32602, "{unknown}");
        }
        let params = json!({"name": lamp, "arguments": {}});
        let called = exchange(modern(gateway, "/mcp", "tools/call", params)).await;
        assert_eq!(called.result()["structuredContent"]["outcome"], "succeeded");
        lock.release().await.unwrap();
    }
    let lock = another.database.lock("registration_contents").await;
    let page = another.get("/v1/devices").await;
    assert_eq!(listed_ids(&page.json), ["living.room:lamp"]);
    lock.unwrap().release().await.unwrap();
    let lock = gateway.database.lock("registration_contents").await;
    let called = gateway.call("asleep", r#"{"service":"echo"}"#).await;
    assert_eq!(called.json["outcome"], "offline", "{}", called.text);
    lock.unwrap().release().await.unwrap();
}

/// Sends a request for a list, reads the status of the response, and nothing more.
async fn slow_reader(gateway: &TestGateway, key: &ApiKeySecret) -> TcpStream {
    use secrecy::ExposeSecret as _;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let address = gateway.address().parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let head = format!(
        "GET /v1/devices?limit=200 HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        gateway.address(),
        key.expose_secret()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn slow_readers_hold_the_share_of_their_organisation() {
    let gateway = TestGateway::start().await;
    let ids = ids(20);
    store_devices(&gateway, gateway.org, &ids).await;
    let key = gateway
        .add_key(&switchboard_protocol::token::Scope::ALL)
        .await;
    let foreign = gateway.foreign_key().await;
    let foreign_org = org_of(&gateway, &foreign).await;
    store_devices(&gateway, foreign_org, &ids).await;

    // A page has nearly 4 MiB, the share of an organisation is 16 MiB.
    let mut readers = Vec::new();
    for _ in 0..4 {
        readers.push(slow_reader(&gateway, &key).await);
    }
    let list = async |key: &ApiKeySecret| -> Response {
        send(gateway.request_as(key, Method::GET, "/v1/devices?limit=200")).await
    };
    let refused = list(&key).await;
    assert_eq!(
        (
            refused.status,
            &refused.json["type"],
            &refused.json["budget"]
        ),
        (
            429,
            &json!("/problems/overloaded"),
            &json!("http_responses")
        ),
    );
    assert_eq!(refused.headers["retry-after"], "1");
    let tools = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let error = &tools.last()["error"];
    assert_eq!(error["code"], -32000, "{error}");
    let data = json!({"budget": "http_responses", "retry_after_ms": 1_000});
    assert_eq!(error["data"], data, "{error}");
    // Small responses and other organisations are served.
    let small = gateway.get("/v1/devices/toy-000").await;
    assert_eq!(small.status, 200);
    let other = list(&foreign).await;
    assert_eq!(other.status, 200);
    assert!(other.text.len() > 3 * 1024 * 1024, "{}", other.text.len());

    drop(readers);
    eventually_some("the share is returned", async || {
        Some(list(&key).await).filter(|page| page.status == 200)
    })
    .await;
    let tools = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    assert!(!names(tools.result()).is_empty());
}

#[tokio::test]
async fn large_page_of_calls_is_charged_to_its_organisation() {
    let gateway = TestGateway::start().await;
    // In JSON each character takes six bytes.
    let service = "\u{1}".repeat(256);
    let call = json!({"service": service, "mode": "queued"}).to_string();
    for _ in 0..50 {
        let queued = gateway.call("toy-1", &call).await;
        assert_eq!(queued.status, 202, "{}", queued.text);
    }
    let responses = gateway
        .budgets
        .bytes("http_responses", 1, Kind::quarter_of(1));
    let owner = Owner::Org(gateway.org.uuid());
    let share = responses.try_acquire(owner, responses.share()).unwrap();
    let refused = gateway.get("/v1/calls?limit=50").await;
    assert_eq!(
        (refused.status, &refused.json["budget"]),
        (429, &json!("http_responses"))
    );
    let small = gateway.get("/v1/calls?limit=1").await;
    assert_eq!(small.status, 200, "{}", small.text);
    drop(share);
    let page = gateway.get("/v1/calls?limit=50").await;
    assert_eq!(page.json["calls"].as_array().unwrap().len(), 50);
    assert!(page.text.len() > 64 * 1024, "{}", page.text.len());
}

/// Waits until the organisation holds more than this much of `http_responses`.
async fn responses_exceed(gateway: &TestGateway, bytes: usize) {
    eventually_true("the registrations are charged", || {
        let mut reports = gateway.budgets.report().into_iter();
        let report = reports.find(|report| report.budget == "http_responses");
        report.is_some_and(|report| report.used > bytes)
    })
    .await;
}

#[tokio::test]
async fn page_is_charged_while_it_is_assembled() {
    let gateway = TestGateway::start().await;
    store_devices(&gateway, gateway.org, &ids(8)).await;
    gateway.connect_with("waiting", &services("waiting")).await;
    // The last registration cannot be read yet, and the others have been read.
    let reads = gateway.budgets.slots("registration_reads", 1, Kind::Brief);
    for path in ["rest", "mcp"] {
        let slots = reads.try_acquire(Owner::System, reads.free()).unwrap();
        let listing = async {
            if path == "rest" {
                gateway.get("/v1/devices").await.status
            } else {
                let list = modern(&gateway, "/mcp", "tools/list", json!({}));
                exchange(list).await.status
            }
        };
        let waiting = async {
            responses_exceed(&gateway, 7 * SERVICES_BYTES).await;
            drop(slots);
        };
        let (status, ()) = tokio::join!(listing, waiting);
        assert_eq!(status, 200, "{path}");
    }
}

#[tokio::test]
async fn page_of_tools_ends_by_memory() {
    let gateway = TestGateway::start().await;
    // Parsed, each takes more than 6 MiB.
    let schemas = vec![r#"{"not":{}}"#; 10_000].join(",");
    for id in ids(3) {
        let services =
            format!(r#"{{"echo":{{"parameters":{{"$id":"{id}","allOf":[{schemas}]}}}}}}"#);
        gateway.connect_with(&id, &services).await;
    }
    let mut params = json!({});
    for id in ids(3) {
        let page = exchange(modern(&gateway, "/mcp", "tools/list", params)).await;
        assert_eq!(names(page.result()), [format!("{id}__echo")]);
        params = json!({"cursor": page.result()["nextCursor"]});
    }
    assert_eq!(params, json!({"cursor": null}));
}
