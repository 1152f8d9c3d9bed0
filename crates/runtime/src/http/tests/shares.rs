//! Connections, heads and bodies of one network or organisation leave room for those of others.

use axum::{
    body::{Body, Bytes},
    extract::{FromRequestParts, Path, Request},
    http::{StatusCode, request::Parts},
};
use tokio::net::{TcpListener, TcpSocket};
use uuid::Uuid;

use super::*;
use crate::{
    budget::{Budgets, Owner},
    response_budget::{ResponseBudget, hold_body},
};

pub(super) const ATTACKER: &str = "127.0.0.1";
pub(super) const OTHER: &str = "127.0.0.2";
pub(super) const KIB: usize = 1024;
/// A response that does not fit into the buffers of a socket; an organisation's share has two.
const LARGE_BYTES: usize = 8 * KIB * KIB;

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

pub(super) struct Shares {
    pub(super) addr: SocketAddr,
    registry: prometheus::Registry,
    budgets: Budgets,
    shutdown: Shutdown,
}

impl Drop for Shares {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

pub(super) fn serve_shares(limits: HttpLimits) -> Shares {
    serve_shares_at(listen("127.0.0.1:0").unwrap(), limits)
}

pub(super) fn serve_shares_at(listener: TcpListener, limits: HttpLimits) -> Shares {
    let registry = prometheus::Registry::new();
    let budgets = Budgets::new(&registry).unwrap();
    let responses = ResponseBudget::new(&budgets);
    let page = async move |_: Org, request: Request| {
        let page = Bytes::from(vec![b'x'; 16 * KIB * KIB]);
        let permit = responses.reserve(caller(request.extensions()), page.len())?;
        Ok::<_, problem::Problem>(hold_body(page, permit))
    };
    let router = Router::new()
        .route("/open", get(|| async { "open" }))
        .route(
            "/caller",
            get(async |request: Request| caller(request.extensions()).to_string()),
        )
        .route("/page", get(page))
        .route("/org", get(async |_: Org| "org"))
        .route("/large", get(async |_: Org| vec![b'x'; LARGE_BYTES]))
        .route("/bytes/{count}", get(bytes))
        .route(
            "/org/bytes/{count}",
            get(async |_: Org, count: Path<usize>| bytes(count).await),
        )
        .route("/org", post(async |_: Org, body: problem::RawBody| body.0))
        .route(
            "/anonymous",
            post(async |body: problem::RawBody| body.0.len().to_string()),
        )
        .route(
            "/stream",
            post(async |_: Org, _: problem::RawBody| endless()),
        );
    let metrics = HttpMetrics::new("test", &registry).unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let (serving, used) = (shutdown.clone(), budgets.clone());
    shutdown.spawn(async move {
        serve_with_metrics(listener, router, limits, &metrics, &used, serving).await
    });
    Shares {
        addr,
        registry,
        budgets,
        shutdown,
    }
}

/// A response of this many bytes, in one piece.
async fn bytes(Path(count): Path<usize>) -> Vec<u8> {
    vec![b'x'; count]
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

    pub(super) async fn send(&self, from: &str, request: &[u8]) -> TcpStream {
        let mut socket = self.connect(from).await;
        socket.write_all(request).await.unwrap();
        socket
    }

    /// The status of a request on a connection of its own.
    pub(super) async fn status(&self, from: &str, request: &[u8]) -> String {
        status(&mut self.send(from, request).await).await
    }

    pub(super) fn held(&self, budget: &str, owner: &str) -> usize {
        let report = self.budgets.report();
        let budget = report.iter().find(|report| report.budget == budget);
        let mut owners = budget.unwrap().owners.iter();
        let held = owners.find(|held| held.owner == owner);
        held.map_or(0, |held| held.held)
    }

    /// Refused connections, by the metric of the budget.
    fn refused(&self, scope: &str) -> f64 {
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap();
        let series = format!(
            "switchboard_budget_refused_total{{budget=\"http_connections\",scope=\"{scope}\"}} "
        );
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(&series));
        value.unwrap().parse().unwrap()
    }

    /// A connection on which an organisation has had one response.
    pub(super) async fn idle(&self, org: u128) -> TcpStream {
        let request = format!("GET /org HTTP/1.1\r\nHost: x\r\nx-org: {org}\r\n\r\n");
        let mut socket = self.send(ATTACKER, request.as_bytes()).await;
        assert_eq!(status(&mut socket).await, "200");
        socket
    }

    /// A connection on which an organisation reads a response that does not end.
    pub(super) async fn listening(&self, org: u128) -> TcpStream {
        let request = upload("/stream", org, "Content-Length: 0");
        let mut socket = self.send(ATTACKER, &request).await;
        assert_eq!(status(&mut socket).await, "200");
        socket
    }

    pub(super) async fn wait_for(&self, budget: &str, owner: &str, expected: usize) {
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
pub(super) async fn status(socket: &mut TcpStream) -> String {
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

pub(super) fn org_name(number: u128) -> String {
    Owner::Org(Uuid::from_u128(number)).to_string()
}

fn upload(path: &str, org: u128, framing: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nx-org: {org}\r\n{framing}\r\n\r\n").into_bytes()
}

const OPEN: &[u8] = b"GET /open HTTP/1.1\r\nHost: x\r\n\r\n";
pub(super) const ORG_1: &[u8] = b"GET /org HTTP/1.1\r\nHost: x\r\nx-org: 1\r\n\r\n";

pub(super) fn limits() -> HttpLimits {
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
    server.wait_for("http_connections", ATTACKER, 4).await;
    assert!(is_closed(&mut silent[0]).await);
    // Three more networks fill the rest.
    let mut others = Vec::new();
    for network in 3..6 {
        for _ in 0..4 {
            others.push(server.connect(&format!("127.0.0.{network}")).await);
        }
    }
    assert!(is_closed(&mut silent[36]).await);
    for address in [OTHER, ATTACKER] {
        assert_eq!(server.status(address, OPEN).await, "200", "{address}");
    }
    // A connection that has authenticated stays.
    known.write_all(ORG_1).await.unwrap();
    assert_eq!(status(&mut known).await, "200");
}

#[tokio::test]
async fn connections_with_requests_in_flight_are_not_replaced() {
    let server = serve_shares(HttpLimits {
        connections: 2,
        ..limits()
    });
    let mut listening = vec![server.listening(1).await, server.listening(2).await];
    let answer = rest(&mut server.send(OTHER, OPEN).await).await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("/problems/too_many_connections"),
        "{answer}"
    );
    assert_eq!(
        (server.refused("total"), server.refused("share")),
        (1.0, 0.0)
    );
    listening.truncate(1);
    server.wait_for("http_connections", &org_name(2), 0).await;
    assert_eq!(server.status(OTHER, OPEN).await, "200");
}

#[tokio::test]
async fn idle_connection_of_the_org_with_most_is_replaced() {
    let server = serve_shares(HttpLimits {
        connections: 12,
        ..limits()
    });
    let mut listening = Vec::new();
    let (mut second, mut third, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        listening.push(server.listening(1).await);
    }
    for _ in 0..3 {
        second.push(server.idle(2).await);
    }
    for _ in 0..3 {
        third.push(server.idle(3).await);
    }
    for org in [4, 4, 5] {
        rest.push(server.idle(org).await);
    }
    // Each newcomer stays, as a connection of another organisation.
    let mut newcomers = Vec::new();
    for (org, former) in [(6, 2), (7, 3)] {
        newcomers.push(server.idle(org).await);
        server
            .wait_for("http_connections", &org_name(former), 2)
            .await;
    }
    assert!(is_closed(&mut second[0]).await && is_closed(&mut third[0]).await);
    assert_eq!(server.held("http_connections", &org_name(1)), 3);
    for socket in second[1..]
        .iter_mut()
        .chain(&mut third[1..])
        .chain(&mut rest)
    {
        socket.write_all(OPEN).await.unwrap();
        assert_eq!(status(socket).await, "200");
    }
    assert_eq!(
        (server.refused("total"), server.refused("share")),
        (0.0, 0.0)
    );
    // A response that ends leaves an idle connection; one that is aborted leaves none.
    drop(listening);
    server.wait_for("http_connections", &org_name(1), 0).await;
}

#[tokio::test]
async fn connections_of_an_org_above_its_share_are_replaced() {
    let server = serve_shares(HttpLimits {
        connections: 4,
        ..limits()
    });
    let mut first = server.idle(1).await;
    let mut above = Vec::new();
    // From networks with room.
    for network in 3..6 {
        let mut socket = server.send(&format!("127.0.0.{network}"), ORG_1).await;
        assert_eq!(status(&mut socket).await, "200");
        above.push(socket);
    }
    assert_eq!(server.held("http_connections", &org_name(1)), 1);
    // Their requests are served: none is refused.
    above[0].write_all(ORG_1).await.unwrap();
    assert_eq!(status(&mut above[0]).await, "200");
    assert_eq!(server.status(OTHER, OPEN).await, "200");
    assert!(is_closed(&mut above[0]).await);
    first.write_all(ORG_1).await.unwrap();
    assert_eq!(status(&mut first).await, "200");
    assert_eq!(
        (server.refused("total"), server.refused("share")),
        (0.0, 0.0)
    );
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

#[tokio::test]
async fn slow_readers_leave_room_for_other_responses() {
    let server = serve_shares(limits());
    let request = |org: u128| format!("GET /large HTTP/1.1\r\nHost: x\r\nx-org: {org}\r\n\r\n");
    let read_large = async |mut socket: TcpStream| {
        let mut body = vec![0; LARGE_BYTES];
        let read = async {
            while socket.read_u8().await? != b'x' {}
            socket.read_exact(&mut body[1..]).await
        };
        timeout(LONG_TIMEOUT, read).await.expect("in time").is_ok()
    };
    // Four organisations hold everything.
    let mut slow = std::collections::VecDeque::new();
    for org in 1..=4 {
        for count in 1..=2 {
            slow.push_back(server.send(ATTACKER, request(org).as_bytes()).await);
            let held = count * LARGE_BYTES;
            server
                .wait_for("http_responses", &org_name(org), held)
                .await;
        }
    }
    // At its share, an organisation loses its own oldest response.
    let newest = server.send(ATTACKER, request(2).as_bytes()).await;
    assert!(!read_large(slow.remove(2).unwrap()).await);
    // Another organisation's response replaces the oldest one of all.
    let other = server.send(OTHER, request(5).as_bytes()).await;
    assert!(read_large(other).await);
    assert!(!read_large(slow.pop_front().unwrap()).await);
    for complete in slow.into_iter().chain([newest]) {
        assert!(read_large(complete).await);
    }
    for org in 1..=5 {
        server.wait_for("http_responses", &org_name(org), 0).await;
    }
}
