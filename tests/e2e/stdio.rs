//! `switchboard stdio` as a desktop client uses it: the session of the reference, its table of
//! errors, and its notes.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::switchboard::Program;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{cluster::TestCluster, device::Device, results::check_tool_result};

/// Upper bound for one line.
const LINE_TIMEOUT: Duration = Duration::from_secs(15);
const SEARCH: &str = r#"{"web_search":{"description":"Search the web using DuckDuckGo","parameters":
    {"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}}"#;

/// A call of the device's only tool.
fn search(id: &Value, query: &Value) -> String {
    let params = json!({"name": "web_search", "arguments": {"query": query}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// The client's side of one session.
struct Conversation {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Conversation {
    fn begin(cluster: &TestCluster, which: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_switchboard"))
            .arg("stdio")
            .args(which)
            .env("SWITCHBOARD_URL", cluster.gateway.address("http_url"))
            .env("SWITCHBOARD_API_KEY", &cluster.org.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// A session about a device with a search tool that the test answers.
    async fn with_search() -> (TestCluster, Device, Self) {
        let cluster = TestCluster::start(1).await;
        let mut device = cluster.device(0, "search-1").await;
        device.register(SEARCH).await;
        let client = Self::begin(&cluster, &["--device", "search-1"]);
        (cluster, device, client)
    }

    /// The session after the handshake.
    async fn searching() -> (TestCluster, Device, Self) {
        let (cluster, device, mut client) = Self::with_search().await;
        client.initialize().await;
        (cluster, device, client)
    }

    async fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
        stdin.write_all(b"\n").await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = timeout(LINE_TIMEOUT, self.stdout.next_line())
            .await
            .unwrap()
            .unwrap();
        serde_json::from_str(&line.unwrap()).unwrap()
    }

    async fn ask(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.receive().await
    }

    async fn refused(&mut self, line: &str) -> (Value, i64) {
        let answer = self.ask(line).await;
        (
            answer["id"].clone(),
            answer["error"]["code"].as_i64().unwrap(),
        )
    }

    async fn initialize(&mut self) {
        self.ask(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"test","version":"1.0"},"capabilities":{}}}"#)
            .await;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
    }

    /// Closes the input and returns stderr.
    async fn end(mut self) -> String {
        self.stdin = None;
        let rest = timeout(LINE_TIMEOUT, self.stdout.next_line())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(rest, None, "nothing is said after the last answer");
        let mut logged = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut logged).await.unwrap();
        let status = timeout(LINE_TIMEOUT, self.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(status.success(), "{logged}");
        logged
    }
}

#[tokio::test]
async fn reference_session_matches_line_by_line() {
    let (_cluster, mut device, mut client) = Conversation::with_search().await;

    let greeted = client
        .ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"test","version":"1.0"},"capabilities":{}}}"#)
        .await;
    let server = json!({"name": "switchboard", "version": env!("CARGO_PKG_VERSION")});
    assert_eq!(
        greeted,
        json!({"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","serverInfo":server,"capabilities":{"tools":{"listChanged":true}}}})
    );
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let listed = client
        .ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)
        .await;
    assert_eq!(
        listed,
        json!({"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"web_search","description":"Search the web using DuckDuckGo","inputSchema":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}]}})
    );
    client
        .send(r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"web_search","arguments":{"query":"hello"}}}"#)
        .await;
    let (call, service, params) = device.next_call().await;
    assert_eq!(
        (service.as_str(), &params),
        ("web_search", &json!({"query": "hello"}))
    );
    device
        .answer(
            &call,
            &json!({"success": true, "data": "Search results for: hello\n..."}),
        )
        .await;
    let answer = client.receive().await;
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"]),
        (&json!("2.0"), &json!(3))
    );
    assert_eq!(
        (&answer["result"]["content"], &answer["result"]["isError"]),
        (
            &json!([{"type":"text","text":"Search results for: hello\n..."}]),
            &json!(false)
        )
    );

    client.end().await;
}

#[tokio::test]
async fn failed_tool_returns_error_result() {
    let (_cluster, mut device, mut client) = Conversation::searching().await;
    client.send(&search(&json!("4"), &json!("hello"))).await;
    let (call, ..) = device.next_call().await;
    device
        .answer(
            &call,
            &json!({"success": false, "error": "Search error: Network timeout"}),
        )
        .await;
    let answer = client.receive().await;
    assert_eq!(answer["id"], "4");
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(
        answer["result"]["content"],
        json!([{"type":"text","text":"Search error: Network timeout"}])
    );
    // An input that does not fit its schema is an error result too; the device does not receive it.
    let answer = client.ask(&search(&json!(5), &json!(7))).await;
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(answer["result"]["structuredContent"]["outcome"], "invalid");
    client.end().await;
}

#[tokio::test]
async fn result_that_does_not_match_is_no_structured_content() {
    let (_cluster, mut device, mut client) = Conversation::searching().await;
    let mut services: Value = serde_json::from_str(SEARCH).unwrap();
    services["web_search"]["output"] = json!({"type": "array"});
    device.register(&services.to_string()).await;
    for (data, is_valid) in [(json!({"hits": 0}), false), (json!(["a"]), true)] {
        client.send(&search(&json!(1), &json!("hello"))).await;
        let (call, ..) = device.next_call().await;
        let result = json!({"success": true, "data": data});
        device.answer(&call, &result).await;
        // A notification of the changed list may come first.
        let mut answer = client.receive().await;
        while answer.get("id").is_none() {
            answer = client.receive().await;
        }
        check_tool_result(&answer["result"], &data, is_valid);
    }
    client.end().await;
}

#[tokio::test]
async fn errors_match_reference_table() {
    let (_cluster, _device, mut client) = Conversation::with_search().await;
    let null = Value::Null;

    // Before the handshake only `initialize` and `ping` are accepted.
    let ping = client
        .ask(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
        .await;
    assert_eq!(ping, json!({"jsonrpc":"2.0","id":1,"result":{}}));
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    assert_eq!(client.refused(list).await, (json!(2), -32600));
    let discover = r#"{"jsonrpc":"2.0","id":3,"method":"server/discover"}"#;
    assert_eq!(client.refused(discover).await, (json!(3), -32601));
    let bare = r#"{"jsonrpc":"2.0","id":4,"method":"initialize","params":{}}"#;
    assert_eq!(client.refused(bare).await, (json!(4), -32602));
    client.initialize().await;

    for (line, id, code) in [
        ("{", null.clone(), -32700),
        ("nonsense", null.clone(), -32700),
        ("[]", null.clone(), -32600),
        (r#"{"jsonrpc":"2.0","id":5}"#, json!(5), -32600),
        (r#"{"id":6,"method":"ping"}"#, json!(6), -32600),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"no/such"}"#,
            json!(7),
            -32601,
        ),
        (
            r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{}}"#,
            json!(8),
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"other"}}"#,
            json!(9),
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":[]}"#,
            json!(10),
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":11,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
            json!(11),
            -32600,
        ),
    ] {
        assert_eq!(client.refused(line).await, (id, code), "{line}");
    }
    // Notifications, responses and empty lines get no response: the next line is the ping's.
    for line in [
        "",
        r#"{"jsonrpc":"2.0","method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        client.send(line).await;
    }
    let ping = client
        .ask(r#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#)
        .await;
    assert_eq!(ping["id"], "last");
    client.end().await;
}

#[tokio::test]
async fn invalid_key_returns_error_message() {
    let cluster = TestCluster::start(1).await;
    let mut client = Conversation::begin(
        &cluster,
        &["--device", "search-1", "--api-key", &"sb_".repeat(2)],
    );
    client.initialize().await;
    let refused = client
        .ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)
        .await;
    assert_eq!(refused["error"]["code"], -32603);
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("401"),
        "{refused}"
    );
}

#[tokio::test]
async fn rate_limited_call_returns_retry_time() {
    let settings = [
        ("SWITCHBOARD_CALLED_DEVICE_RATE_PER_S", "1"),
        ("SWITCHBOARD_CALLED_DEVICE_BURST", "1"),
    ];
    let cluster = TestCluster::start_with(1, &settings).await;
    let _serving = cluster.echo(0, "toy-1").await.serve();
    let mut client = Conversation::begin(&cluster, &["--all"]);
    client.initialize().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"toy-1__echo","arguments":{"text":"a"}}}"#;
    assert_eq!(client.ask(call).await["result"]["isError"], false);
    let refused = client.ask(call).await;
    assert_eq!(refused["error"]["code"], -32000);
    assert!(
        refused["error"]["data"]["retry_after_ms"].as_u64().unwrap() <= 1000,
        "{refused}"
    );
}

#[tokio::test]
async fn cancelled_request_is_cancelled_on_device() {
    let (_cluster, mut device, mut client) = Conversation::searching().await;
    client.send(&search(&json!("a"), &json!("x"))).await;
    let (call, ..) = device.next_call().await;
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"no more"}}"#)
        .await;
    let message = device.next(Kind::Control).await.json();
    assert_eq!(
        (&message["type"], &message["data"]["call_id"]),
        (&json!("cancel"), &json!(call))
    );
    // A cancelled request gets no response.
    let ping = client
        .ask(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
        .await;
    assert_eq!(ping["id"], 1);
    client.end().await;
}

#[tokio::test]
async fn duplicate_request_id_is_rejected_until_answered() {
    let (_cluster, mut device, mut client) = Conversation::searching().await;
    let call = search(&json!("a"), &json!("x"));
    client.send(&call).await;
    let (first, ..) = device.next_call().await;
    assert_eq!(client.refused(&call).await, (json!("a"), -32600));
    device.answer(&first, &json!({"success": true})).await;
    let answer = client.receive().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!("a"), &json!(false))
    );
    let list = r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#;
    for _ in 0..100 {
        let listed = client.ask(list).await;
        assert!(listed["result"].is_object(), "{listed}");
    }
    client.end().await;
}

#[tokio::test]
async fn requests_above_limit_are_rejected_others_cancellable() {
    let (_cluster, mut device, mut client) = Conversation::searching().await;
    for id in 0..64 {
        client.send(&search(&json!(id), &json!("x"))).await;
    }
    for _ in 0..64 {
        device.next_call().await;
    }
    let refused = client.ask(&search(&json!(64), &json!("x"))).await;
    let error = &refused["error"];
    assert_eq!(
        (&refused["id"], &error["code"], &error["data"]["delivered"]),
        (&json!(64), &json!(-32000), &json!("no"))
    );
    assert!(error["message"].as_str().unwrap().contains("64 requests"));
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#)
        .await;
    let message = device.next(Kind::Control).await.json();
    assert_eq!(message["type"], "cancel");
    client.send(&search(&json!(64), &json!("y"))).await;
    let (call, _, params) = device.next_call().await;
    assert_eq!(params["query"], "y");
    device.answer(&call, &json!({"success": true})).await;
    assert_eq!(client.receive().await["id"], 64);
}

#[tokio::test]
async fn progress_and_changed_lists_arrive() {
    let (_cluster, mut device, mut client) = Conversation::searching().await;
    client
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"web_search","arguments":{"query":"x"},"_meta":{"progressToken":"p"}}}"#)
        .await;
    let (call, ..) = device.next_call().await;
    let progress =
        json!({"type": "progress", "data": {"call_id": call, "progress": 1, "total": 2}});
    device.send(Kind::Control, &progress.to_string()).await;
    let received = client.receive().await;
    assert_eq!(
        (&received["method"], &received["params"]["progress"]),
        (&json!("notifications/progress"), &json!(1.0))
    );
    device.answer(&call, &json!({"success": true})).await;
    assert_eq!(client.receive().await["id"], 1);

    device.register(r#"{"other":{}}"#).await;
    assert_eq!(
        client.receive().await["method"],
        "notifications/tools/list_changed"
    );
    let listed = client
        .ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)
        .await;
    assert_eq!(listed["result"]["tools"][0]["name"], "other");
}

#[tokio::test]
async fn session_survives_gateway_restart() {
    let mut cluster = TestCluster::start(1).await;
    let _serving = cluster.echo(0, "toy-1").await.serve();
    let mut client = Conversation::begin(&cluster, &["--device", "toy-1"]);
    client.initialize().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a"}}}"#;
    assert_eq!(client.ask(call).await["result"]["isError"], false);

    let address = cluster.gateway.address("http_url").replace("http://", "");
    cluster.gateway.kill();
    // Sent while no gateway listens, answered after its restart.
    client.send(call).await;
    cluster.gateway = Program::start(
        &["gateway", "--http-listen", &address],
        &cluster.environment(),
    );
    let mut received = vec![client.receive().await, client.receive().await];
    received.sort_by_key(|message| message["id"].is_null());
    assert_eq!(received[0]["result"]["isError"], false, "{received:?}");
    // The tools may have changed during the outage.
    assert_eq!(received[1]["method"], "notifications/tools/list_changed");
}
