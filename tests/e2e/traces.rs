//! Spans at the collector: one trace from the caller's context through the processes to the device,
//! without personal data.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, SeqFormat, TaskId, encode};
use switchboard_test_support::{eventually::eventually, switchboard::Program};
use tokio::task::JoinSet;

use crate::{
    cluster::TestCluster,
    collector::{Collector, Seen, one},
    device::Device,
    provider::Provider,
    system::{MODEL, provider_settings},
    turns::time_service,
};

const TASK: TaskId = TaskId(*b"task1234");
/// Text that no span may contain.
const CANARY: &str = "canary-of-the-params";
const CALL: &str = "POST /v1/devices/{id}/calls";
const WAIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// A cluster with this sampling ratio for new traces.
async fn traced(collector: &Collector, ratio: &str) -> TestCluster {
    let settings = [
        ("SWITCHBOARD_OTLP_ENDPOINT", collector.url.as_str()),
        ("SWITCHBOARD_TRACE_SAMPLE_RATIO", ratio),
        ("SWITCHBOARD_LOG_FORMAT", "json"),
        ("SWITCHBOARD_LOG", "debug"),
    ];
    TestCluster::start_with(1, &settings).await
}

fn start_chat(
    cluster: &TestCluster,
    collector: &Collector,
    more: &[(&'static str, &str)],
) -> Program {
    let mut environment = cluster.environment();
    let settings = [
        ("SWITCHBOARD_OTLP_ENDPOINT", collector.url.as_str()),
        ("SWITCHBOARD_TRACE_SAMPLE_RATIO", "0"),
        ("SWITCHBOARD_LOG_FORMAT", "json"),
        ("SWITCHBOARD_LOG", "debug"),
    ];
    let settings = settings.iter().chain(more);
    environment.extend(settings.map(|(name, value)| (*name, (*value).to_owned())));
    Program::start(&["chat", "--http-listen", "127.0.0.1:0"], &environment)
}

/// A trace of the caller, and its header.
fn parent(n: u8, flags: &str) -> (String, String) {
    let trace = format!("{n:032x}");
    let header = format!("00-{trace}-00000000000000{n:02x}-{flags}");
    (trace, header)
}

async fn call(cluster: &TestCluster, traceparent: Option<&str>) {
    let mut request = cluster
        .http
        .post(cluster.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&cluster.org.key)
        .json(&json!({"service": "echo", "params": {"text": CANARY}}));
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent);
    }
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["outcome"], "succeeded", "{answer}");
}

/// Sends a request on the connection that the next ones use. Until one has authenticated, the
/// context of a request does not decide whether it is traced.
async fn authenticate(cluster: &TestCluster) {
    let list = cluster.http.get(cluster.url("/v1/devices"));
    let list = list.bearer_auth(&cluster.org.key).send().await.unwrap();
    assert_eq!(list.status(), 200);
    list.bytes().await.unwrap();
    let url = format!("{}/debug/budgets", cluster.gateway.address("admin_url"));
    let report = async || -> Value {
        let report = cluster.http.get(&url).send().await.unwrap();
        report.json().await.unwrap()
    };
    // Other budgets have the organisation as an owner before its connection has authenticated.
    let is_known = |report: &Value| {
        let budgets = report.as_array().unwrap();
        let connections = budgets
            .iter()
            .find(|one| one["budget"] == "http_connections");
        let owners = connections.unwrap()["owners"].as_array().unwrap();
        let owners = owners.iter().filter_map(|one| one["owner"].as_str());
        owners.into_iter().any(|owner| owner.starts_with("org_"))
    };
    let _report = eventually(WAIT_TIMEOUT, report, is_known).await;
}

/// Sends a `tools/call` of the service `echo`, with a trace context in its `_meta`. Requests of
/// revision 2026-07-28 take the fast path.
async fn call_tool(
    cluster: &TestCluster,
    revision: &str,
    text: &str,
    (in_meta, in_header): (&str, Option<&str>),
) -> String {
    let mut meta = json!({"traceparent": in_meta});
    if revision == "2026-07-28" {
        meta["io.modelcontextprotocol/protocolVersion"] = revision.into();
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let params = json!({"name": "echo", "arguments": {"text": text}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut request = cluster
        .http
        .post(cluster.url("/mcp/devices/toy-1"))
        .bearer_auth(&cluster.org.key)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", revision)
        .header("mcp-method", "tools/call")
        .header("mcp-name", "echo")
        .json(&message);
    if let Some(traceparent) = in_header {
        request = request.header("traceparent", traceparent);
    }
    request.send().await.unwrap().text().await.unwrap()
}

/// Checks a call's spans from its parent to the one on the device's node.
#[track_caller]
fn assert_continued(spans: &[Seen], parent: &Seen) {
    let (call, executed) = (one(spans, "device.call"), one(spans, "device.execute"));
    assert_eq!((&call.parent, &call.service), (&parent.id, &parent.service));
    assert_eq!(
        (&executed.parent, executed.service.as_str()),
        (&call.id, "switchboard-edge")
    );
    assert_eq!(call.events, ["found", "published"]);
    assert_eq!(executed.events, ["queued", "sent", "answered"]);
    for span in [call, executed] {
        assert_eq!(span.attributes["switchboard.device.id"], "toy-1");
        assert_eq!(span.attributes["switchboard.call.outcome"], "succeeded");
    }
    assert!(!format!("{spans:?}").contains(CANARY), "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sampled_caller_trace_reaches_device_unsampled_none() {
    let collector = Collector::start().await;
    let mut cluster = traced(&collector, "0").await;
    let _serving = cluster.echo(0, "toy-1").await.serve();
    let (trace, sampled) = parent(1, "01");
    let (_, unsampled) = parent(2, "00");
    call(&cluster, None).await;
    call(&cluster, Some(&unsampled)).await;
    authenticate(&cluster).await;
    call(&cluster, Some(&sampled)).await;
    let spans = collector
        .trace(&trace, &[CALL, "device.call", "device.execute"])
        .await;
    let request = one(&spans, CALL);
    assert_eq!(request.service, "switchboard-gateway");
    assert_eq!(request.parent, "0000000000000001");
    let shown = [
        "http.request.method",
        "http.route",
        "http.response.status_code",
    ];
    let shown = shown.map(|name| request.attributes[name].as_str());
    assert_eq!(shown, ["POST", "/v1/devices/{id}/calls", "200"]);
    assert_continued(&spans, request);
    // A process sends spans in order, so spans of earlier calls would have arrived.
    let others = collector
        .seen()
        .into_iter()
        .filter(|span| span.trace != trace);
    assert_eq!(
        others.map(|span| span.name).collect::<Vec<_>>(),
        Vec::<String>::new()
    );

    let metrics = cluster
        .http
        .get(format!("{}/metrics", cluster.gateway.address("admin_url")));
    let metrics = metrics.header("accept", "application/openmetrics-text");
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    let exemplar = |line: &str| {
        line.starts_with("switchboard_gateway_call_seconds_bucket") && line.contains(&trace)
    };
    assert_eq!(
        metrics.lines().filter(|line| exemplar(line)).count(),
        1,
        "{metrics}"
    );

    // A process flushes its spans on exit.
    let (trace, sampled) = parent(3, "01");
    authenticate(&cluster).await;
    call(&cluster, Some(&sampled)).await;
    cluster.gateway.terminate();
    assert_eq!(cluster.gateway.exit_code(WAIT_TIMEOUT).await, Some(0));
    assert!(
        collector
            .seen()
            .iter()
            .any(|span| span.trace == trace && span.name == CALL)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_call_continues_trace_of_its_meta() {
    let collector = Collector::start().await;
    let cluster = traced(&collector, "0").await;
    let _serving = cluster.echo(0, "toy-1").await.serve();
    authenticate(&cluster).await;
    for (n, revision) in [(1, "2025-11-25"), (2, "2026-07-28")] {
        let (trace, in_meta) = parent(n, "01");
        let (around, in_header) = parent(n + 10, "01");
        let contexts = (in_meta.as_str(), Some(in_header.as_str()));
        let answer = call_tool(&cluster, revision, CANARY, contexts).await;
        assert!(answer.contains("structuredContent"), "{answer}");
        let names = ["tools/call echo", "device.call", "device.execute"];
        let spans = collector.trace(&trace, &names).await;
        let tool = one(&spans, "tools/call echo");
        assert_eq!(tool.parent, format!("00000000000000{n:02x}"));
        assert_eq!(tool.attributes["gen_ai.tool.name"], "echo");
        assert_eq!(tool.links, std::slice::from_ref(&around));
        assert_continued(&spans, tool);
        let around = collector.trace(&around, &["POST /mcp/devices/{id}"]).await;
        assert_eq!(around.len(), 1, "{around:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_call_with_too_large_arguments_has_failed_span() {
    let collector = Collector::start().await;
    let cluster = traced(&collector, "0").await;
    let _serving = cluster.echo(0, "toy-1").await.serve();
    let text = "t".repeat(300_000);
    for (n, revision) in [(1, "2025-11-25"), (2, "2026-07-28")] {
        let (trace, in_meta) = parent(n, "01");
        let answer = call_tool(&cluster, revision, &text, (&in_meta, None)).await;
        assert!(answer.contains("the limit is"), "{answer}");
        let spans = collector.trace(&trace, &["tools/call echo"]).await;
        let tool = one(&spans, "tools/call echo");
        assert!(tool.failed, "{revision}: {tool:?}");
        assert_eq!(tool.attributes["switchboard.call.outcome"], "failed");
        assert_eq!(spans.len(), 1, "{revision}: {spans:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_calls_set_span_status_and_names_are_bounded() {
    let collector = Collector::start().await;
    let cluster = traced(&collector, "0").await;
    let mut device = cluster.echo(0, "toy-1").await;
    authenticate(&cluster).await;
    let (trace, sampled) = parent(1, "01");
    let url = cluster.url("/v1/devices/toy-1/calls");
    let request = cluster.http.post(url).bearer_auth(&cluster.org.key);
    let body = json!({"service": "echo", "params": {"text": CANARY}});
    let request = request.header("traceparent", sampled).json(&body);
    let mut leaving = JoinSet::from_iter([request.send()]);
    device.next_call().await;
    leaving.abort_all();
    let spans = collector.trace(&trace, &["device.call"]).await;
    let call = one(&spans, "device.call");
    assert_eq!(call.attributes["switchboard.call.outcome"], "cancelled");
    assert!(call.failed, "{call:?}");

    let (trace, in_meta) = parent(2, "01");
    let name = "n".repeat(500_000);
    let meta = json!({"traceparent": in_meta});
    let params = json!({"name": name, "arguments": {}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = cluster.http.post(cluster.url("/mcp/devices/toy-1"));
    let request = request
        .bearer_auth(&cluster.org.key)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25")
        .json(&message);
    let answer = request.send().await.unwrap().text().await.unwrap();
    assert!(
        answer.contains("error"),
        "{}",
        &answer[..answer.len().min(300)]
    );
    let name = format!("tools/call {}", &name[..128]);
    let spans = collector.trace(&trace, &[&name]).await;
    let tool = one(&spans, &name);
    assert!(tool.failed, "{tool:?}");
    assert_eq!(tool.attributes["gen_ai.tool.name"].len(), 128);
}

async fn send_text(device: &mut Device, text: &str) {
    let mut frames = Vec::new();
    let text = text.as_bytes();
    encode(&mut frames, Kind::Text, TASK, 0, SeqFormat::Plain, text);
    encode(&mut frames, Kind::End, TASK, 1, SeqFormat::Plain, &[]);
    device.send_bytes(&frames).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_with_calls_is_one_trace() {
    let collector = Collector::start().await;
    let cluster = traced(&collector, "1").await;
    let chat = start_chat(&cluster, &collector, &[]);
    let mut device = cluster.device(0, "toy-1").await;
    let service = json!({"get_current_time": {"description": "Get current time", "parameters": {"type": "object"}}});
    device.register(&service.to_string()).await;
    send_text(
        &mut device,
        &format!("What time is it, what is the time? \"{CANARY}\""),
    )
    .await;
    let (id, ..) = device.next_call().await;
    device
        .answer(&id, &json!({"success": true, "data": CANARY}))
        .await;
    device.next(Kind::End).await;
    let trace = collector.trace_of("turn.begin").await;
    let tool = "execute_tool get_current_time";
    let names = ["turn.begin", "turn", tool, "device.call", "device.execute"];
    let spans = collector.trace(&trace, &names).await;
    let (begun, turn) = (one(&spans, "turn.begin"), one(&spans, "turn"));
    assert_eq!(
        (begun.parent.as_str(), begun.service.as_str()),
        ("", "switchboard-edge")
    );
    assert_eq!(
        (&turn.parent, turn.service.as_str()),
        (&begun.id, "switchboard-chat")
    );
    assert_eq!(turn.attributes["switchboard.turn.end"], "answered");
    assert_eq!(one(&spans, tool).parent, turn.id);
    assert_continued(&spans, one(&spans, tool));
    let named = async || {
        let logged = chat.logged();
        let ended = logged.lines().find(|line| line.contains("turn ended"));
        let ended = ended.and_then(|line| serde_json::from_str::<Value>(line).ok());
        ended.map(|line| line["trace_id"].clone())
    };
    let named = eventually(WAIT_TIMEOUT, named, Option::is_some).await;
    assert_eq!(named, Some(json!(trace)));
}

#[tokio::test(flavor = "multi_thread")]
async fn model_request_and_tool_call_are_one_trace() {
    let collector = Collector::start().await;
    let cluster = traced(&collector, "1").await;
    let mut provider = Provider::start().await;
    let settings = provider_settings(&provider);
    let settings = [0, 1].map(|at| (settings[at].0, settings[at].1.as_str()));
    let _chat = start_chat(&cluster, &collector, &settings);
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&time_service("What time it is")).await;
    send_text(&mut device, "What time is it?").await;
    let first = provider.next_request().await;
    let parents = [first.headers["traceparent"].clone()];
    first
        .calls(&[("call_1", "get_current_time", r#"{"format":"simple"}"#)])
        .await;
    let (id, ..) = device.next_call().await;
    device
        .answer(&id, &json!({"success": true, "data": CANARY}))
        .await;
    let second = provider.next_request().await;
    let parents = [parents[0].clone(), second.headers["traceparent"].clone()];
    second.reply(CANARY).await;
    device.next(Kind::End).await;
    let trace = collector.trace_of("turn.begin").await;
    let tool = "execute_tool get_current_time";
    let asked = format!("chat {MODEL}");
    let names = ["turn", tool, "device.call", "device.execute"];
    let spans = collector.trace(&trace, &names).await;
    let turn = one(&spans, "turn");
    assert_eq!(one(&spans, tool).parent, turn.id);
    assert_continued(&spans, one(&spans, tool));
    let rounds: Vec<_> = spans.iter().filter(|span| span.name == asked).collect();
    assert_eq!(rounds.len(), 2, "{spans:#?}");
    for round in &rounds {
        assert_eq!(round.parent, turn.id);
        assert_eq!(round.attributes["gen_ai.usage.input_tokens"], "19");
    }
    // Each request was sent in its own span.
    let expected = rounds
        .iter()
        .map(|round| format!("00-{trace}-{}-01", round.id));
    let expected: BTreeSet<_> = expected.collect();
    let sent = parents
        .iter()
        .map(|parent| parent.to_str().unwrap().to_owned());
    assert_eq!(sent.collect::<BTreeSet<_>>(), expected);
    assert!(!format!("{spans:?}").contains(CANARY), "{spans:#?}");
}
