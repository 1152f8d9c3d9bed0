//! MCP with several gateways for one client: another gateway can cancel what the first one started.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::switchboard::Program;
use tokio::task::JoinSet;

use crate::cluster::{Org, TestCluster, echo_services};

const REVISION: &str = "2025-11-25";

/// A client of a revision with a handshake, at one of the gateways.
struct Client<'a> {
    cluster: &'a TestCluster,
    org: &'a Org,
    session: String,
}

impl Client<'_> {
    fn post(&self, url: &str, message: &Value) -> RequestBuilder {
        let request = self.cluster.http.post(url).bearer_auth(&self.org.key);
        request
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-session-id", &self.session)
            .json(message)
    }

    async fn cancel_turn(&self, url: &str, id: u64) {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        let answer = self.post(url, &message).send().await.unwrap();
        assert_eq!(answer.status(), 202);
    }
}

async fn outcome_of(request: RequestBuilder) -> Value {
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    answer["result"]["structuredContent"]["outcome"].clone()
}

#[tokio::test]
async fn i4_request_is_cancelled_at_any_gateway_by_its_sender_only() {
    let cluster = TestCluster::start(1).await;
    let gateway = Program::start(
        &["gateway", "--http-listen", "127.0.0.1:0"],
        &cluster.environment(),
    );
    let stranger = cluster.another_org("second").await;
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&echo_services()).await;
    let client = |org, session: &str| Client {
        cluster: &cluster,
        org,
        session: session.to_owned(),
    };
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let begun = client(&cluster.org, "none").post(&cluster.url("/mcp"), &hello);
    let begun = begun.send().await.unwrap();
    let session = begun.headers()["mcp-session-id"].to_str().unwrap();
    let own = client(&cluster.org, session);

    for (path, tool) in [("/mcp", "toy-1__echo"), ("/mcp/devices/toy-1", "echo")] {
        let call = async |device: &mut crate::device::Device, id: u64| {
            let params = json!({"name": tool, "arguments": {"text": "a"}});
            let message =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            let mut calling = JoinSet::new();
            calling.spawn(outcome_of(own.post(&cluster.url(path), &message)));
            let (call, ..) = device.next_call().await;
            (call, calling)
        };
        let (kept, mut kept_end) = call(&mut device, 1).await;
        let (taken_back, mut end) = call(&mut device, 2).await;
        let there = format!("{}{path}", gateway.address("http_url"));
        client(&stranger, session).cancel_turn(&there, 1).await;
        client(&cluster.org, "another").cancel_turn(&there, 1).await;
        own.cancel_turn(&there, 2).await;
        // The last message has arrived, so the earlier ones have too.
        let told = device.next(Kind::Control).await.json();
        assert_eq!(
            told,
            json!({"type": "cancel", "data": {"call_id": taken_back}})
        );
        assert_eq!(end.join_next().await.unwrap().unwrap(), "cancelled");
        device
            .answer(&kept, &json!({"success": true, "data": "a"}))
            .await;
        assert_eq!(kept_end.join_next().await.unwrap().unwrap(), "succeeded");
    }
}
