//! Connections, heads and bodies of one network or organisation leave room for those of others.

use axum::{
    body::{Body, Bytes},
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use tokio::net::TcpSocket;
use uuid::Uuid;

use super::*;
use crate::budget::{Budgets, Owner};

const ATTACKER: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
const KIB: usize = 1024;

/// An organisation, which is in the header `x-org` instead of a credential.
struct Org;

impl<S: Sync> FromRequestParts<S> for Org {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let org = parts.headers.get("x-org").ok_or(StatusCode::UNAUTHORIZED)?;
        let org: u128 = org.to_str().unwrap().parse().unwrap();
        authenticated(&parts.extensions, Owner::Org(Uuid::from_u128(org)));
        Ok(Self)
    }
}

struct Shares {
    addr: SocketAddr,
    budgets: Budgets,
    shutdown: Shutdown,
}

impl Drop for Shares {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

fn serve_shares(limits: HttpLimits) -> Shares {
    let router = Router::new()
        .route("/open", get(|| async { "open" }))
        .route("/org", get(async |_: Org| "org"))
        .route("/org", post(async |_: Org, body: problem::RawBody| body.0))
        .route(
            "/anonymous",
            post(async |body: problem::RawBody| body.0.len().to_string()),
        )
        .route(
            "/stream",
            post(async |_: Org, _: problem::RawBody| endless()),
        );
    let registry = prometheus::Registry::new();
    let budgets = Budgets::new(&registry).unwrap();
    let metrics = HttpMetrics::new("test", &registry).unwrap();
    let listener = listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let (serving, used) = (shutdown.clone(), budgets.clone());
    shutdown.spawn(async move {
        serve_with_metrics(listener, router, limits, &metrics, &used, serving).await
    });
    Shares {
        addr,
        budgets,
        shutdown,
    }
}

/// A response that has begun and does not end.
fn endless() -> Body {
    Body::from_stream(futures_util::stream::pending::<std::io::Result<Bytes>>())
}

impl Shares {
    async fn connect(&self, from: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(self.addr).await.unwrap()
    }

    async fn send(&self, from: &str, request: &[u8]) -> TcpStream {
        let mut socket = self.connect(from).await;
        socket.write_all(request).await.unwrap();
        socket
    }

    /// The status of a request on a connection of its own.
    async fn status(&self, from: &str, request: &[u8]) -> String {
        status(&mut self.send(from, request).await).await
    }

    fn held(&self, budget: &str, owner: &str) -> usize {
        let report = self.budgets.report();
        let budget = report.iter().find(|report| report.budget == budget);
        let mut owners = budget.unwrap().owners.iter();
        let held = owners.find(|held| held.owner == owner);
        held.map_or(0, |held| held.held)
    }

    async fn wait_for(&self, budget: &str, owner: &str, expected: usize) {
        let reached = async {
            while self.held(budget, owner) != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = timeout(LONG_TIMEOUT, reached).await;
        assert!(
            reached.is_ok(),
            "{owner} holds {} of {budget}, expected {expected}",
            self.held(budget, owner)
        );
    }
}

/// Reads a response, without a body of unknown length; returns its status.
async fn status(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(LONG_TIMEOUT, socket.read_u8()).await;
        head.push(byte.expect("a response arrives").expect("a response"));
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    let read = timeout(LONG_TIMEOUT, socket.read_exact(&mut body)).await;
    read.expect("the body arrives").expect("a body");
    head[9..12].to_owned()
}

async fn is_closed(socket: &mut TcpStream) -> bool {
    let read = timeout(LONG_TIMEOUT, socket.read(&mut [0; 1])).await;
    !matches!(read.expect("the server closes the connection"), Ok(1..))
}

fn org_name(number: u128) -> String {
    Owner::Org(Uuid::from_u128(number)).to_string()
}

fn upload(path: &str, org: u128, framing: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nx-org: {org}\r\n{framing}\r\n\r\n").into_bytes()
}

const OPEN: &[u8] = b"GET /open HTTP/1.1\r\nHost: x\r\n\r\n";
const ORG_1: &[u8] = b"GET /org HTTP/1.1\r\nHost: x\r\nx-org: 1\r\n\r\n";

fn limits() -> HttpLimits {
    // Silence must not close the connections of these tests.
    HttpLimits {
        header_read_timeout: LONG_TIMEOUT * 10,
        body_read_timeout: LONG_TIMEOUT * 10,
        ..HttpLimits::default()
    }
}

#[tokio::test]
async fn silent_connections_do_not_keep_others_out() {
    let server = serve_shares(HttpLimits {
        connections: 16,
        ..limits()
    });
    let mut known = server.send(ATTACKER, ORG_1).await;
    assert_eq!(status(&mut known).await, "200");
    server.wait_for("http_connections", &org_name(1), 1).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(server.connect(ATTACKER).await);
    }
    server.wait_for("http_connections", ATTACKER, 8).await;
    assert!(is_closed(&mut silent[0]).await);
    // A second network fills the rest.
    let mut second = Vec::new();
    for _ in 0..8 {
        second.push(server.connect("127.0.0.3").await);
    }
    assert!(is_closed(&mut silent[32]).await);
    for address in [OTHER, ATTACKER] {
        assert_eq!(server.status(address, OPEN).await, "200", "{address}");
    }
    // A connection that has authenticated stays.
    known.write_all(ORG_1).await.unwrap();
    assert_eq!(status(&mut known).await, "200");
}

#[tokio::test]
async fn authenticated_connections_are_not_replaced() {
    let server = serve_shares(HttpLimits {
        connections: 2,
        ..limits()
    });
    let mut known = Vec::new();
    for org in [1, 2] {
        let request = format!("GET /org HTTP/1.1\r\nHost: x\r\nx-org: {org}\r\n\r\n");
        let mut socket = server.send(ATTACKER, request.as_bytes()).await;
        assert_eq!(status(&mut socket).await, "200");
        server.wait_for("http_connections", &org_name(org), 1).await;
        known.push(socket);
    }
    let answer = rest(&mut server.send(OTHER, OPEN).await).await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("/problems/too_many_connections"),
        "{answer}"
    );
    drop(known);
    server.wait_for("http_connections", &org_name(1), 0).await;
    assert_eq!(server.status(OTHER, OPEN).await, "200");
}

#[tokio::test]
async fn connections_of_an_org_above_its_share_are_replaced() {
    let server = serve_shares(HttpLimits {
        connections: 4,
        ..limits()
    });
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let mut socket = server.send(ATTACKER, ORG_1).await;
        assert_eq!(status(&mut socket).await, "200");
        sockets.push(socket);
    }
    assert_eq!(server.held("http_connections", &org_name(1)), 2);
    assert_eq!(server.status(OTHER, OPEN).await, "200");
    assert!(is_closed(&mut sockets[2]).await);
}

#[tokio::test]
async fn connections_of_a_trusted_proxy_have_no_share() {
    let server = serve_shares(HttpLimits {
        connections: 8,
        trusted_proxies: vec!["127.0.0.2/32".parse().unwrap()],
        ..limits()
    });
    let mut proxied = Vec::new();
    for _ in 0..7 {
        let mut socket = server.send(OTHER, ORG_1).await;
        assert_eq!(status(&mut socket).await, "200");
        proxied.push(socket);
    }
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(server.connect(ATTACKER).await);
    }
    assert!(is_closed(&mut silent[0]).await);
    assert_eq!(server.held("http_connections", &org_name(1)), 0);
    for socket in &mut proxied {
        socket.write_all(OPEN).await.unwrap();
        assert_eq!(status(socket).await, "200");
    }
}

#[tokio::test]
async fn head_above_16_kib_returns_431() {
    let server = serve_shares(limits());
    let head = |bytes| {
        let padding = "x".repeat(bytes);
        format!("GET /open HTTP/1.1\r\nHost: x\r\nConnection: close\r\na: {padding}\r\n\r\n")
    };
    assert_eq!(server.status(OTHER, head(15 * KIB).as_bytes()).await, "200");
    assert_eq!(server.status(OTHER, head(60 * KIB).as_bytes()).await, "431");
    server.wait_for("http_heads", OTHER, 0).await;
}

#[tokio::test]
async fn unfinished_heads_hold_at_most_the_share() {
    let server = serve_shares(HttpLimits {
        heads_bytes: 256 * KIB,
        ..limits()
    });
    let unfinished = [b"GET /open HTTP/1.1\r\na: ", "x".repeat(8 * KIB).as_bytes()].concat();
    let mut unfinished_heads = Vec::new();
    for _ in 0..4 {
        unfinished_heads.push(server.send(ATTACKER, &unfinished).await);
    }
    server.wait_for("http_heads", ATTACKER, 64 * KIB).await;
    let mut refused = server.send(ATTACKER, &unfinished).await;
    assert!(is_closed(&mut refused).await);
    assert_eq!(server.held("http_heads", ATTACKER), 64 * KIB);
    // Small heads of the same address, and large ones of others.
    assert_eq!(server.status(ATTACKER, OPEN).await, "200");
    let large = format!("\r\na: {}\r\n\r\n", "x".repeat(12 * KIB));
    let large = [&OPEN[..OPEN.len() - 4], large.as_bytes()].concat();
    assert_eq!(server.status(OTHER, &large).await, "200");
    // A head that is finished returns what it held.
    let mut finished = unfinished_heads.pop().unwrap();
    finished.write_all(b"\r\nHost: x\r\n\r\n").await.unwrap();
    assert_eq!(status(&mut finished).await, "200");
    server.wait_for("http_heads", ATTACKER, 48 * KIB).await;
}

#[tokio::test]
async fn unfinished_bodies_of_an_org_leave_room_for_others() {
    let server = serve_shares(HttpLimits {
        body_bytes: 256 * KIB,
        bodies_bytes: 1024 * KIB,
        ..limits()
    });
    let unfinished = upload("/org", 1, &format!("Content-Length: {}", 120 * KIB));
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let mut socket = server.send(ATTACKER, &unfinished).await;
        socket.write_all(&vec![b'x'; 100 * KIB]).await.unwrap();
        bodies.push(socket);
    }
    server
        .wait_for("http_bodies", &org_name(1), 240 * KIB)
        .await;
    let answer = rest(&mut server.send(ATTACKER, &unfinished).await).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.contains(r#""budget":"http_bodies""#), "{answer}");
    // Small bodies of the same organisation, and large ones of another.
    let small = upload("/org", 1, "Content-Length: 3");
    let small = [&small[..], b"abc"].concat();
    assert_eq!(server.status(ATTACKER, &small).await, "200");
    let mut other = upload("/org", 2, &format!("Content-Length: {}", 100 * KIB));
    other.extend(vec![b'x'; 100 * KIB]);
    assert_eq!(server.status(OTHER, &other).await, "200");
    // Without authentication, the address is charged.
    let framing = format!("Content-Length: {}", 20 * KIB);
    let mut anonymous = server.send(OTHER, &upload("/anonymous", 3, &framing)).await;
    server.wait_for("http_bodies", OTHER, 20 * KIB).await;
    anonymous.write_all(&vec![b'x'; 20 * KIB]).await.unwrap();
    assert_eq!(status(&mut anonymous).await, "200");
    drop(bodies);
    server.wait_for("http_bodies", &org_name(1), 0).await;
}

#[tokio::test]
async fn chunked_body_is_charged_before_it_is_read() {
    let server = serve_shares(HttpLimits {
        body_bytes: 256 * KIB,
        bodies_bytes: 1024 * KIB,
        ..limits()
    });
    let chunk = |bytes| format!("{bytes:x}\r\n{}\r\n", "x".repeat(bytes)).into_bytes();
    let chunked = upload("/org", 1, "Transfer-Encoding: chunked\r\nConnection: close");
    let mut socket = server.send(ATTACKER, &chunked).await;
    let steps = [(15, 0), (10, 32), (20, 64), (60, 128)];
    for (more, charged) in steps {
        socket.write_all(&chunk(more * KIB)).await.unwrap();
        server
            .wait_for("http_bodies", &org_name(1), charged * KIB)
            .await;
    }
    let mut second = server.send(ATTACKER, &chunked).await;
    // The server closes the connection before it has read everything.
    let _ = second.write_all(&chunk(200 * KIB)).await;
    assert_eq!(status(&mut second).await, "429");
    socket.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = rest(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:.200}");
    assert!(answer.ends_with(&"x".repeat(105 * KIB)));
    server.wait_for("http_bodies", &org_name(1), 0).await;
}

#[tokio::test]
async fn body_is_charged_until_its_response_ends() {
    let server = serve_shares(limits());
    let mut request = upload("/stream", 1, &format!("Content-Length: {}", 20 * KIB));
    request.extend(vec![b'x'; 20 * KIB]);
    let mut socket = server.send(ATTACKER, &request).await;
    assert_eq!(status(&mut socket).await, "200");
    assert_eq!(server.held("http_bodies", &org_name(1)), 20 * KIB);
    drop(socket);
    server.wait_for("http_bodies", &org_name(1), 0).await;
}
