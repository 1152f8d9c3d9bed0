//! Well-behaved and misbehaving clients over real sockets.

mod bodies;
mod http2;
mod programs;
mod proxies;
mod responses;
mod shares;
mod slow_readers;
mod tls;

use std::{net::SocketAddr, sync::Arc, time::Instant};

use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::timeout,
};

use super::*;
use crate::{budget::Budgets, problem, shutdown::Shutdown};

const SHORT_TIMEOUT: Duration = Duration::from_millis(200);
/// Long enough for a busy machine, short enough for a failing test.
const LONG_TIMEOUT: Duration = Duration::from_secs(10);
/// For what takes 0.5 s, and must not take the seconds of other timeouts.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(2_500);

struct TestServer {
    addr: SocketAddr,
    shutdown: Shutdown,
    serving: JoinHandle<std::io::Result<()>>,
    /// Events that handlers report: `entered` and `dropped`.
    events: mpsc::Receiver<&'static str>,
    /// Releases the slow handler.
    finish: Arc<Notify>,
}

#[derive(Clone)]
struct Seen(mpsc::Sender<&'static str>, Arc<Notify>);

struct Guard(Seen);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.try_send("dropped").unwrap();
    }
}

async fn wait(State(seen): State<Seen>) {
    let _guard = Guard(seen.clone());
    seen.0.try_send("entered").unwrap();
    std::future::pending().await
}

async fn slow(State(seen): State<Seen>) -> &'static str {
    seen.0.try_send("entered").unwrap();
    seen.1.notified().await;
    "done"
}

async fn echo(
    problem::Json(value): problem::Json<serde_json::Value>,
) -> axum::Json<serde_json::Value> {
    axum::Json(value)
}

async fn panics() -> &'static str {
    panic!("on purpose")
}

fn open(limits: HttpLimits) -> TestServer {
    open_with(limits, None)
}

/// With a certificate, the address of the server is that of its TLS port.
fn open_with(limits: HttpLimits, tls: Option<Arc<rustls::ServerConfig>>) -> TestServer {
    let (sender, events) = mpsc::channel(16);
    let finish = Arc::new(Notify::new());
    let router = Router::new()
        .route("/wait", get(wait))
        .route("/slow", get(slow))
        .route("/echo", post(echo))
        .route("/panic", get(panics))
        .route("/big", get(|| async { vec![b'x'; 64 * 1024 * 1024] }))
        .fallback(problem::not_found)
        .with_state(Seen(sender, Arc::clone(&finish)));
    let plain = listen("127.0.0.1:0").unwrap();
    let tls = tls.map(|config| (listen("127.0.0.1:0").unwrap(), config));
    let open = tls.as_ref().map_or(&plain, |(listener, _)| listener);
    let addr = open.local_addr().unwrap();
    let listeners = HttpListeners { plain, tls };
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let serving = shutdown.spawn(async move {
        let registry = prometheus::Registry::new();
        let metrics = HttpMetrics::new("test", &registry).unwrap();
        let budgets = Budgets::new(&registry).unwrap();
        serve_with_metrics(listeners, router, limits, &metrics, &budgets, stop).await
    });
    TestServer {
        addr,
        shutdown,
        serving,
        events,
        finish,
    }
}

fn short_limits() -> HttpLimits {
    HttpLimits {
        header_read_timeout: SHORT_TIMEOUT,
        body_read_timeout: SHORT_TIMEOUT,
        write_timeout: SHORT_TIMEOUT,
        ..HttpLimits::default()
    }
}

impl TestServer {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut socket = self.connect().await;
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    /// Sends one JSON request on a new connection and returns the response.
    async fn request(&self, line: &str, framing: &str, body: &str) -> String {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\n{framing}\r\n\r\n{body}"
        );
        rest(&mut self.send(&request).await).await
    }

    /// Drains a server without requests in flight.
    async fn drains(&mut self) {
        self.shutdown.drain();
        let ended = timeout(DRAIN_TIMEOUT, &mut self.serving).await;
        ended.expect("the server ends").unwrap().unwrap();
    }

    async fn event(&mut self) -> &'static str {
        timeout(LONG_TIMEOUT, self.events.recv())
            .await
            .unwrap()
            .unwrap()
    }
}

/// Reads until the server closes the connection.
async fn rest(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset also ends the response.
    let _ = timeout(LONG_TIMEOUT, socket.read_to_end(&mut bytes))
        .await
        .expect("the server closes the connection");
    String::from_utf8(bytes).unwrap()
}

/// Sends one byte at a time until the server closes the connection; returns the response.
async fn dribble(socket: TcpStream) -> String {
    let (mut read, mut write) = socket.into_split();
    let started = Instant::now();
    let dribble = async {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut bytes = Vec::new();
    tokio::select! {
        () = dribble => {}
        _ = read.read_to_end(&mut bytes) => {}
        () = tokio::time::sleep(LONG_TIMEOUT) => panic!("the server does not close a slow connection"),
    }
    assert!(started.elapsed() >= SHORT_TIMEOUT / 2);
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn slow_or_missing_head_closes_connection() {
    let server = open(short_limits());
    rest(&mut server.connect().await).await;
    dribble(server.send("GET / HTTP/1.1\r\nHost: x\r\nA: ").await).await;
    let mut idle = server.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(rest(&mut idle).await.contains("/problems/not_found"));
}

#[tokio::test]
async fn slow_body_returns_408_and_closes() {
    let server = open(short_limits());
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n";
    let answer = dribble(server.send(head).await).await;
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("/problems/body_timeout"),
        "{answer}"
    );
}

#[tokio::test]
async fn client_that_does_not_read_is_closed() {
    let mut server = open(short_limits());
    let mut socket = server.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n").await;
    server.shutdown.drain();
    timeout(LONG_TIMEOUT, &mut server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let mut bytes = Vec::new();
    let _ = timeout(LONG_TIMEOUT, socket.read_to_end(&mut bytes))
        .await
        .unwrap();
    assert!(bytes.len() < 64 * 1024 * 1024, "{} bytes came", bytes.len());
}

#[tokio::test]
async fn body_over_limit_returns_413() {
    let server = open(HttpLimits {
        body_bytes: 100,
        ..HttpLimits::default()
    });
    let check = async |framing: &str, body: &str, status: &str| {
        let answer = server.request("POST /echo", framing, body).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    };
    let json = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    check("Content-Length: 100", &json(100), "200").await;
    check("Content-Length: 101", &json(101), "413").await;
    let chunked = |bytes| format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", json(bytes));
    check("Transfer-Encoding: chunked", &chunked(100), "200").await;
    check("Transfer-Encoding: chunked", &chunked(101), "413").await;
}

#[tokio::test]
async fn larger_body_path_has_its_own_limit() {
    let server = open(HttpLimits {
        body_bytes: 100,
        larger_bodies: &[LargerBody {
            path: "/echo",
            bytes: 200,
            read_timeout: LONG_TIMEOUT,
        }],
        ..HttpLimits::default()
    });
    let check = async |path: &str, bytes: usize, status: &str| {
        let body = format!("\"{}\"", "x".repeat(bytes - 2));
        let framing = format!("Content-Length: {bytes}");
        let answer = server
            .request(&format!("POST {path}"), &framing, &body)
            .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{path} {bytes}: {answer}"
        );
    };
    check("/echo", 200, "200").await;
    check("/echo?query", 200, "200").await;
    check("/echo", 201, "413").await;
    check("/echo/", 101, "413").await;
    check("/other", 101, "413").await;
}

#[test]
fn larger_body_path_matches_wildcard_segments() {
    fn check(path: &str, larger: bool) {
        let limits = HttpLimits {
            body_bytes: 1,
            larger_bodies: &[LargerBody {
                path: "/books/*/parts/*",
                bytes: 2,
                read_timeout: LONG_TIMEOUT,
            }],
            ..HttpLimits::default()
        };
        assert_eq!(limits.body(path).0 == 2, larger, "{path}");
    }
    check("/books/a/parts/1", true);
    check("/books/a/parts", false);
    check("/books/a/parts/1/2", false);
    check("/books/a/b/parts/1", false);
    check("/other/a/parts/1", false);
}

#[tokio::test]
async fn panic_fails_one_request_only() {
    let server = open(HttpLimits::default());
    let twice = "GET /panic HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answers = rest(&mut server.send(twice).await).await;
    assert!(answers.starts_with("HTTP/1.1 500"), "{answers}");
    assert!(answers.contains("/problems/internal"), "{answers}");
    assert!(answers.contains("HTTP/1.1 404"), "{answers}");
}

#[tokio::test]
async fn client_disconnect_drops_handler() {
    let mut server = open(HttpLimits::default());
    let socket = server.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(server.event().await, "entered");
    drop(socket);
    assert_eq!(server.event().await, "dropped");
}

#[tokio::test]
async fn drain_finishes_requests_and_closes_idle_connections() {
    let mut server = open(HttpLimits::default());
    let mut idle = server.connect().await;
    let mut used = server.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(server.event().await, "entered");
    server.shutdown.drain();
    rest(&mut idle).await;
    server.finish.notify_one();
    assert!(rest(&mut used).await.ends_with("done"));
    timeout(LONG_TIMEOUT, &mut server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(server.addr).await.is_err());
}

#[tokio::test]
async fn stop_aborts_requests_in_progress() {
    let mut server = open(HttpLimits::default());
    let _socket = server.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(server.event().await, "entered");
    server.shutdown.stop();
    timeout(LONG_TIMEOUT, &mut server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(server.event().await, "dropped");
}

#[tokio::test]
async fn requests_are_counted_by_route_method_and_status() {
    let registry = prometheus::Registry::new();
    let metrics = HttpMetrics::new("test", &registry).unwrap();
    let (entered, mut events) = mpsc::channel(1);
    let router = Router::new()
        .route("/things/{id}", get(|| async { "thing" }))
        .route("/panic", get(panics))
        .route("/wait", get(wait))
        .fallback(problem::not_found)
        .with_state(Seen(entered, Arc::default()));
    let router = instrument(router, &metrics);
    let listener = listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let limits = HttpLimits::default();
    let serving = shutdown.spawn(serve(listener, router, limits, shutdown.clone()));
    let request = async |line: &str| {
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut socket = TcpStream::connect(addr).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    };
    for line in [
        "GET /things/1",
        "GET /things/2?q=3",
        "POST /things/2",
        "BREW /things/2",
        "GET /panic",
        "GET /no/route",
    ] {
        rest(&mut request(line).await).await;
    }
    let waiting = request("GET /wait").await;
    timeout(LONG_TIMEOUT, events.recv()).await.unwrap();
    drop(waiting);
    timeout(LONG_TIMEOUT, events.recv()).await.unwrap();
    shutdown.stop();
    timeout(LONG_TIMEOUT, serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();

    let text = prometheus::TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap();
    let counted: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("switchboard_http_requests_total"))
        .collect();
    let expected = [
        r#"{method="GET",route="/panic",service="test",status="500"} 1"#,
        r#"{method="GET",route="/things/{id}",service="test",status="200"} 2"#,
        r#"{method="GET",route="/wait",service="test",status="499"} 1"#,
        r#"{method="GET",route="unmatched",service="test",status="404"} 1"#,
        r#"{method="POST",route="/things/{id}",service="test",status="405"} 1"#,
        r#"{method="_OTHER",route="/things/{id}",service="test",status="405"} 1"#,
    ];
    assert_eq!(counted, expected);
    let timed = r#"switchboard_http_request_seconds_count{route="/things/{id}",service="test"} 4"#;
    assert!(text.contains(timed), "{text}");
}
