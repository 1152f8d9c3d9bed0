//! Attacks on the MCP endpoints of a gateway.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{
    super::{Service, Takes, Target, sized},
    ask_forever, devices, http_address, open,
};
use crate::cluster::TestCluster;

const MIB: usize = 1024 * 1024;
const PIXEL: &[u8] = include_bytes!("../../objects/pixel.png");
const REVISION: &str = "2026-07-28";

/// The message of a request of the first organisation.
fn message(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "noisy", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// A call of a tool of any device.
fn call_tool(cluster: &TestCluster, name: &str) -> RequestBuilder {
    let request = cluster.http.post(cluster.url("/mcp"));
    request
        .bearer_auth(&cluster.org.key)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", REVISION)
        .header("mcp-method", "tools/call")
        .header("mcp-name", name)
        .json(&message(
            "tools/call",
            json!({"name": name, "arguments": {}}),
        ))
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_for_invented_devices_leave_the_bus_to_others() {
    let target = Target::start(Service::Gateway, &[]).await;
    let cluster = &target.cluster;
    let attack = async {
        let devices = devices(cluster, sized(20, 1_000)).await;
        let mut asking = tokio::task::JoinSet::new();
        for number in 0..sized(16, 300) {
            let name = format!("noisy-{number:08x}__echo");
            asking.spawn(ask_forever(call_tool(cluster, &name)));
        }
        (devices, asking)
    };
    target
        .measure(
            "searches for invented devices",
            Takes::Share("mcp_device_searches"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_pictures_leave_memory_to_others() {
    let bytes = (sized(4, 48) * MIB).to_string();
    let setting = ("SWITCHBOARD_MCP_PICTURES_BYTES", &*bytes);
    let target = Target::start(Service::Gateway, &[setting]).await;
    let cluster = &target.cluster;
    let attack = async {
        let picture = upload_picture(cluster, sized(MIB / 2, 8 * MIB)).await;
        let body = message("resources/read", json!({"uri": picture})).to_string();
        let address = http_address(&cluster.gateway);
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
             MCP-Protocol-Version: {REVISION}\r\nMcp-Method: resources/read\r\nMcp-Name: {picture}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            cluster.org.key,
            body.len()
        );
        open(&address, sized(16, 64), request.as_bytes()).await
    };
    target
        .measure(
            "pictures that are not read",
            Takes::Share("mcp_pictures"),
            attack,
        )
        .await;
}

/// Uploads a picture of this size. Returns its URI.
async fn upload_picture(cluster: &TestCluster, bytes: usize) -> String {
    let mut picture = PIXEL.to_vec();
    picture.resize(bytes, 0);
    let url = format!("{}/v1/pictures", cluster.control.address("http_url"));
    let upload = cluster.http.request(Method::POST, url);
    let upload = upload.bearer_auth(&cluster.org.key).body(picture);
    let uploaded: Value = upload.send().await.unwrap().json().await.unwrap();
    let id = uploaded["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{uploaded}"));
    format!("switchboard://pictures/{id}")
}
