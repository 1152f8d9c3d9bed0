//! Which hosts MCP requests may name, and which web pages may send them and read what comes back.

use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    mcp_client::{LEGACY, Stream, exchange, get, legacy, modern, post},
    stage::{Stage, until},
};

const DEVICE: &str = "/mcp/devices/toy-1";
const PAGE: &str = "https://app.example.com";
const FLAGS: &[&str] = &[
    "--mcp-allowed-origins=https://app.example.com:443",
    "--mcp-allowed-hosts=gateway.internal",
];
/// What a browser asks about before it sends a request.
const ASKED: &str = "authorization,content-type,mcp-protocol-version,mcp-session-id,mcp-method,mcp-name,mcp-param-region";

#[tokio::test]
async fn pages_and_hosts_that_nobody_allowed_are_refused_whatever_the_method() {
    let stage = Stage::with_flags(FLAGS).await;
    for path in [DEVICE, "/mcp"] {
        for (header, value, status) in [
            ("host", "gateway.internal", 200),
            ("host", "GATEWAY.internal:8080", 200),
            ("host", "localhost:1", 200),
            ("origin", PAGE, 200),
            ("host", "evil.example.com", 403),
            ("host", "gateway.internal.evil.example.com", 403),
            ("host", "user@localhost", 400),
            ("origin", "https://evil.example.com", 403),
            ("origin", "https://app.example.com:444", 403),
            ("origin", "null", 403),
        ] {
            let ping = legacy(&stage, path, "ping", json!({}));
            let discover = modern(&stage, path, "server/discover", json!({}));
            for (what, request) in [
                ("POST", ping),
                ("POST", discover),
                ("GET", get(&stage, path)),
            ] {
                let answered = request.header(header, value).send().await.unwrap();
                let status_found = answered.status().as_u16();
                assert_eq!(status_found, status, "{what} {path} with {header}: {value}");
            }
            // Not even whether a credential is good is told.
            let stranger = stage.anonymous(Method::POST, path).header(header, value);
            let expect = if status == 200 { 401 } else { status };
            assert_eq!(exchange(stranger).await.status, expect);
        }
    }
}

#[tokio::test]
async fn nothing_is_taken_back_for_a_page_or_a_host_that_nobody_allowed() {
    let stage = Stage::with_flags(FLAGS).await;
    stage.connect_with("toy-1", r#"{"silent":{}}"#).await;
    for (path, tool, session) in [(DEVICE, "silent", "one"), ("/mcp", "toy-1__silent", "two")] {
        let calls = stage.edge.seen.lock().len();
        let params = json!({"name": tool, "arguments": {}});
        let call = legacy(&stage, path, "tools/call", params);
        let mut waiting = tokio::task::JoinSet::new();
        waiting.spawn(exchange(call.header("mcp-session-id", session)));
        until(|| stage.edge.seen.lock().len() > calls).await;
        let cancel = || {
            let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
            post(&stage, path, LEGACY, &message).header("mcp-session-id", session)
        };
        for (header, value) in [
            ("host", "evil.example.com"),
            ("origin", "https://evil.example.com"),
        ] {
            let refused = exchange(cancel().header(header, value)).await;
            assert_eq!(refused.status, 403, "{path} {header}");
        }
        // It would have been taken back before the refusal was answered.
        let call = *stage.edge.seen.lock().last().unwrap();
        assert!(!stage.edge.cancelled.lock().contains(&call), "{path}");
        assert_eq!(exchange(cancel()).await.status, 202);
        until(|| stage.edge.cancelled.lock().contains(&call)).await;
        waiting.abort_all();
    }
}

fn preflight(stage: &Stage, path: &str, origin: &str) -> RequestBuilder {
    let request = stage.anonymous(Method::OPTIONS, path);
    request
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", ASKED)
}

#[tokio::test]
async fn pages_of_allowed_origins_read_what_they_are_answered() {
    let stage = Stage::with_flags(FLAGS).await;
    let allowed = |exchange: &crate::mcp_client::Exchange| {
        let origin = exchange.headers.get("access-control-allow-origin");
        origin.map(|origin| origin.to_str().unwrap().to_owned())
    };
    for path in [DEVICE, "/mcp"] {
        let asked = exchange(preflight(&stage, path, PAGE)).await;
        assert_eq!(
            (asked.status, allowed(&asked)),
            (200, Some(PAGE.to_owned()))
        );
        assert_eq!(asked.headers["access-control-allow-headers"], ASKED);
        let methods = asked.headers["access-control-allow-methods"].to_str();
        assert!(methods.unwrap().contains("POST"));
        let vary = asked.headers["vary"].to_str().unwrap();
        assert!(vary.contains("origin"), "{vary}");

        let answered =
            exchange(legacy(&stage, path, "ping", json!({})).header("origin", PAGE)).await;
        assert_eq!(
            (answered.status, allowed(&answered)),
            (200, Some(PAGE.to_owned()))
        );
        let refused = exchange(stage.anonymous(Method::POST, path).header("origin", PAGE)).await;
        assert_eq!(
            (refused.status, allowed(&refused)),
            (401, Some(PAGE.to_owned()))
        );
        let exposed = refused.headers["access-control-expose-headers"]
            .to_str()
            .unwrap();
        assert!(exposed.contains("mcp-session-id") && exposed.contains("www-authenticate"));
        assert!(refused.headers.contains_key("www-authenticate"));

        let document = format!("/.well-known/oauth-protected-resource{path}");
        let published = stage
            .anonymous(Method::GET, &document)
            .header("origin", PAGE);
        assert_eq!(allowed(&exchange(published).await), Some(PAGE.to_owned()));

        let other = exchange(preflight(&stage, path, "https://evil.example.com")).await;
        assert_eq!(allowed(&other), None);
        let rebound = preflight(&stage, path, PAGE).header("host", "evil.example.com");
        assert_eq!(allowed(&exchange(rebound).await), None);
    }
    let mut stream = Stream::open(get(&stage, DEVICE).header("origin", PAGE)).await;
    stage.connect("toy-1").await;
    stream.next().await;
}

#[tokio::test]
async fn without_allowed_origins_there_is_nothing_for_pages() {
    let stage = Stage::set().await;
    let ping = legacy(&stage, DEVICE, "ping", json!({}));
    for (request, status) in [(preflight(&stage, DEVICE, PAGE), 403), (ping, 200)] {
        let answered = exchange(request).await;
        assert_eq!(answered.status, status);
        let names = answered
            .headers
            .keys()
            .map(reqwest::header::HeaderName::as_str);
        let cors: Vec<_> = names
            .filter(|name| name.starts_with("access-control"))
            .collect();
        assert_eq!(cors, Vec::<&str>::new());
    }
}

/// One request as it stands, since clients repair what they are given.
async fn raw(stage: &Stage, target: &str, host: &str) -> String {
    let mut socket = TcpStream::connect(stage.address()).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_challenge_repeats_nothing_that_could_be_something_else() {
    let stage = Stage::with_flags(FLAGS).await;
    let known = "http://gateway.internal/.well-known/oauth-protected-resource";
    for (target, path) in [
        (r#"/mcp/devices/a"b"#, "/mcp/devices/a%22b"),
        (r"/mcp/devices/a\b", "/mcp/devices/a%5Cb"),
        ("/mcp/devices/a%22b%0D", "/mcp/devices/a%22b%0D"),
        ("/mcp/devices/é", "/mcp/devices/%C3%A9"),
        ("/mcp?a=b", "/mcp"),
    ] {
        let refused = raw(&stage, target, "gateway.internal").await;
        let expect = format!("www-authenticate: Bearer resource_metadata=\"{known}{path}\"\r\n");
        assert!(
            refused.starts_with("HTTP/1.1 401") && refused.contains(&expect),
            "{target}: {refused}"
        );
    }
    // Where a host is allowed it is repeated as it came; another gives way to the first that is.
    for (host, told) in [
        ("localhost:80", "localhost:80"),
        ("evil.example.com", "gateway.internal"),
        ("user@localhost", "gateway.internal"),
    ] {
        let published = raw(&stage, "/.well-known/oauth-protected-resource/mcp", host).await;
        let resource = format!("\"resource\":\"http://{told}/mcp\"");
        assert!(published.contains(&resource), "{published}");
    }
}
