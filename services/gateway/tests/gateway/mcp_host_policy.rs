//! The hosts that MCP requests may name, and the origins that may send them.

use reqwest::{Method, RequestBuilder};
use serde_json::json;
use switchboard_test_support::eventually::eventually_true;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    mcp_client::{LEGACY, Stream, exchange, get, legacy, modern, post},
    test_gateway::TestGateway,
};

const DEVICE: &str = "/mcp/devices/toy-1";
const ORIGIN: &str = "https://app.example.com";
const FLAGS: &[&str] = &[
    "--mcp-allowed-origins=https://app.example.com:443",
    "--mcp-allowed-hosts=gateway.internal",
];
/// The headers in a preflight request of a browser.
const REQUESTED_HEADERS: &str = "authorization,content-type,mcp-protocol-version,mcp-session-id,mcp-method,mcp-name,mcp-param-region";

#[tokio::test]
async fn disallowed_host_or_origin_is_refused() {
    let gateway = TestGateway::with_flags(FLAGS).await;
    for path in [DEVICE, "/mcp"] {
        for (header, value, status) in [
            ("host", "gateway.internal", 200),
            ("host", "GATEWAY.internal:8080", 200),
            ("host", "localhost:1", 200),
            ("origin", ORIGIN, 200),
            ("host", "evil.example.com", 403),
            ("host", "gateway.internal.evil.example.com", 403),
            ("host", "user@localhost", 400),
            ("origin", "https://evil.example.com", 403),
            ("origin", "https://app.example.com:444", 403),
            ("origin", "null", 403),
        ] {
            let ping = legacy(&gateway, path, "ping", json!({}));
            let discover = modern(&gateway, path, "server/discover", json!({}));
            for (what, request) in [
                ("POST", ping),
                ("POST", discover),
                ("GET", get(&gateway, path)),
            ] {
                let answered = request.header(header, value).send().await.unwrap();
                let status_found = answered.status().as_u16();
                assert_eq!(status_found, status, "{what} {path} with {header}: {value}");
            }
            // The refusal does not depend on the credential.
            let stranger = gateway.anonymous(Method::POST, path).header(header, value);
            let expect = if status == 200 { 401 } else { status };
            assert_eq!(exchange(stranger).await.status, expect);
        }
    }
}

#[tokio::test]
async fn disallowed_host_cannot_cancel() {
    let gateway = TestGateway::with_flags(FLAGS).await;
    gateway.connect_with("toy-1", r#"{"silent":{}}"#).await;
    for (path, tool, session) in [(DEVICE, "silent", "one"), ("/mcp", "toy-1__silent", "two")] {
        let calls = gateway.edge.received.lock().len();
        let params = json!({"name": tool, "arguments": {}});
        let call = legacy(&gateway, path, "tools/call", params);
        let mut waiting = tokio::task::JoinSet::new();
        waiting.spawn(exchange(call.header("mcp-session-id", session)));
        eventually_true("the call is delivered", || {
            gateway.edge.received.lock().len() > calls
        })
        .await;
        let cancel = || {
            let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
            post(&gateway, path, LEGACY, &message).header("mcp-session-id", session)
        };
        for (header, value) in [
            ("host", "evil.example.com"),
            ("origin", "https://evil.example.com"),
        ] {
            let refused = exchange(cancel().header(header, value)).await;
            assert_eq!(refused.status, 403, "{path} {header}");
        }
        // A cancellation would have been delivered before the refusal was received.
        let call = *gateway.edge.received.lock().last().unwrap();
        assert!(!gateway.edge.cancelled.lock().contains(&call), "{path}");
        assert_eq!(exchange(cancel()).await.status, 202);
        eventually_true("the call is cancelled", || {
            gateway.edge.cancelled.lock().contains(&call)
        })
        .await;
        waiting.abort_all();
    }
}

fn preflight(gateway: &TestGateway, path: &str, origin: &str) -> RequestBuilder {
    let request = gateway.anonymous(Method::OPTIONS, path);
    request
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", REQUESTED_HEADERS)
}

#[tokio::test]
async fn allowed_origin_receives_cors_headers() {
    let gateway = TestGateway::with_flags(FLAGS).await;
    let allowed = |exchange: &crate::mcp_client::Exchange| {
        let origin = exchange.headers.get("access-control-allow-origin");
        origin.map(|origin| origin.to_str().unwrap().to_owned())
    };
    for path in [DEVICE, "/mcp"] {
        let asked = exchange(preflight(&gateway, path, ORIGIN)).await;
        assert_eq!(
            (asked.status, allowed(&asked)),
            (200, Some(ORIGIN.to_owned()))
        );
        assert_eq!(
            asked.headers["access-control-allow-headers"],
            REQUESTED_HEADERS
        );
        let methods = asked.headers["access-control-allow-methods"].to_str();
        assert!(methods.unwrap().contains("POST"));
        let vary = asked.headers["vary"].to_str().unwrap();
        assert!(vary.contains("origin"), "{vary}");

        let answered =
            exchange(legacy(&gateway, path, "ping", json!({})).header("origin", ORIGIN)).await;
        assert_eq!(
            (answered.status, allowed(&answered)),
            (200, Some(ORIGIN.to_owned()))
        );
        let refused = exchange(
            gateway
                .anonymous(Method::POST, path)
                .header("origin", ORIGIN),
        )
        .await;
        assert_eq!(
            (refused.status, allowed(&refused)),
            (401, Some(ORIGIN.to_owned()))
        );
        let exposed = refused.headers["access-control-expose-headers"]
            .to_str()
            .unwrap();
        assert!(exposed.contains("mcp-session-id") && exposed.contains("www-authenticate"));
        assert!(refused.headers.contains_key("www-authenticate"));

        let document = format!("/.well-known/oauth-protected-resource{path}");
        let published = gateway
            .anonymous(Method::GET, &document)
            .header("origin", ORIGIN);
        assert_eq!(allowed(&exchange(published).await), Some(ORIGIN.to_owned()));

        let other = exchange(preflight(&gateway, path, "https://evil.example.com")).await;
        assert_eq!(allowed(&other), None);
        let rebound = preflight(&gateway, path, ORIGIN).header("host", "evil.example.com");
        assert_eq!(allowed(&exchange(rebound).await), None);
    }
    let mut stream = Stream::open(get(&gateway, DEVICE).header("origin", ORIGIN)).await;
    gateway.connect("toy-1").await;
    stream.next().await;
}

#[tokio::test]
async fn cors_is_disabled_by_default() {
    let gateway = TestGateway::start().await;
    let ping = legacy(&gateway, DEVICE, "ping", json!({}));
    for (request, status) in [(preflight(&gateway, DEVICE, ORIGIN), 403), (ping, 200)] {
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

/// Sends one request unchanged; HTTP clients would correct it.
async fn raw(gateway: &TestGateway, target: &str, host: &str) -> String {
    let mut socket = TcpStream::connect(gateway.address()).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn challenge_escapes_the_requested_path() {
    let gateway = TestGateway::with_flags(FLAGS).await;
    let known = "http://gateway.internal/.well-known/oauth-protected-resource";
    for (target, path) in [
        (r#"/mcp/devices/a"b"#, "/mcp/devices/a%22b"),
        (r"/mcp/devices/a\b", "/mcp/devices/a%5Cb"),
        ("/mcp/devices/a%22b%0D", "/mcp/devices/a%22b%0D"),
        ("/mcp/devices/é", "/mcp/devices/%C3%A9"),
        ("/mcp?a=b", "/mcp"),
    ] {
        let refused = raw(&gateway, target, "gateway.internal").await;
        let expect = format!("www-authenticate: Bearer resource_metadata=\"{known}{path}\"\r\n");
        assert!(
            refused.starts_with("HTTP/1.1 401") && refused.contains(&expect),
            "{target}: {refused}"
        );
    }
    // An allowed host is repeated as sent. Otherwise the first allowed host is used.
    for (host, expected) in [
        ("localhost:80", "localhost:80"),
        ("evil.example.com", "gateway.internal"),
        ("user@localhost", "gateway.internal"),
    ] {
        let published = raw(&gateway, "/.well-known/oauth-protected-resource/mcp", host).await;
        let resource = format!("\"resource\":\"http://{expected}/mcp\"");
        assert!(published.contains(&resource), "{published}");
    }
}
