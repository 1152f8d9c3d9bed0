//! Clients that behave, and clients that do not, over real sockets.

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
use crate::{problem, shutdown::Shutdown};

const SHORT: Duration = Duration::from_millis(200);
/// Long enough for a busy machine, short enough for a test that fails.
const LONG: Duration = Duration::from_secs(10);

struct Port {
    addr: SocketAddr,
    shutdown: Shutdown,
    serving: JoinHandle<std::io::Result<()>>,
    /// What handlers report: entered or dropped.
    events: mpsc::Receiver<&'static str>,
    /// Lets the slow handler finish.
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

fn open(limits: HttpLimits) -> Port {
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
    let listener = listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let serving = shutdown.spawn(serve(listener, router, limits, shutdown.clone()));
    Port {
        addr,
        shutdown,
        serving,
        events,
        finish,
    }
}

fn impatient() -> HttpLimits {
    HttpLimits {
        header_read_timeout: SHORT,
        body_read_timeout: SHORT,
        write_timeout: SHORT,
        ..HttpLimits::default()
    }
}

impl Port {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut socket = self.connect().await;
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    /// One JSON request on a connection of its own; the whole answer.
    async fn ask(&self, line: &str, framing: &str, body: &str) -> String {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\n{framing}\r\n\r\n{body}"
        );
        rest(&mut self.send(&request).await).await
    }

    async fn event(&mut self) -> &'static str {
        timeout(LONG, self.events.recv()).await.unwrap().unwrap()
    }
}

/// All that still comes until the server closes.
async fn rest(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset ends what comes just as well as a close.
    let _ = timeout(LONG, socket.read_to_end(&mut bytes))
        .await
        .expect("the server closes");
    String::from_utf8(bytes).unwrap()
}

/// Sends a byte every now and then until the server has had enough; returns what it said.
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
        () = tokio::time::sleep(LONG) => panic!("the server is too patient"),
    }
    assert!(started.elapsed() >= SHORT / 2);
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn silent_and_dribbling_heads_are_closed() {
    let port = open(impatient());
    rest(&mut port.connect().await).await;
    dribble(port.send("GET / HTTP/1.1\r\nHost: x\r\nA: ").await).await;
    let mut idle = port.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(rest(&mut idle).await.contains("/problems/not_found"));
}

#[tokio::test]
async fn dribbling_bodies_are_told_and_closed() {
    let port = open(impatient());
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n";
    let answer = dribble(port.send(head).await).await;
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("/problems/body_timeout"),
        "{answer}"
    );
}

#[tokio::test]
async fn who_does_not_read_is_closed() {
    let mut port = open(impatient());
    let mut socket = port.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n").await;
    port.shutdown.drain();
    timeout(LONG, &mut port.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let mut bytes = Vec::new();
    let _ = timeout(LONG, socket.read_to_end(&mut bytes)).await.unwrap();
    assert!(bytes.len() < 64 * 1024 * 1024, "{} bytes came", bytes.len());
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused() {
    let port = open(HttpLimits {
        body_bytes: 100,
        ..HttpLimits::default()
    });
    let check = async |framing: &str, body: &str, status: &str| {
        let answer = port.ask("POST /echo", framing, body).await;
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
async fn a_path_may_take_larger_bodies_than_the_others() {
    let port = open(HttpLimits {
        body_bytes: 100,
        larger_bodies: &[LargerBody {
            path: "/echo",
            bytes: 200,
            read_timeout: LONG,
        }],
        ..HttpLimits::default()
    });
    let check = async |path: &str, bytes: usize, status: &str| {
        let body = format!("\"{}\"", "x".repeat(bytes - 2));
        let framing = format!("Content-Length: {bytes}");
        let answer = port.ask(&format!("POST {path}"), &framing, &body).await;
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
fn a_larger_body_may_have_any_segment_in_its_path() {
    fn check(path: &str, larger: bool) {
        let limits = HttpLimits {
            body_bytes: 1,
            larger_bodies: &[LargerBody {
                path: "/books/*/parts/*",
                bytes: 2,
                read_timeout: LONG,
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
async fn a_panic_costs_one_request_only() {
    let port = open(HttpLimits::default());
    let twice = "GET /panic HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answers = rest(&mut port.send(twice).await).await;
    assert!(answers.starts_with("HTTP/1.1 500"), "{answers}");
    assert!(answers.contains("/problems/internal"), "{answers}");
    assert!(answers.contains("HTTP/1.1 404"), "{answers}");
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_client_leaves() {
    let mut port = open(HttpLimits::default());
    let socket = port.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(port.event().await, "entered");
    drop(socket);
    assert_eq!(port.event().await, "dropped");
}

#[tokio::test]
async fn a_drain_finishes_what_is_under_way_and_closes_the_idle() {
    let mut port = open(HttpLimits::default());
    let mut idle = port.connect().await;
    let mut used = port.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(port.event().await, "entered");
    port.shutdown.drain();
    rest(&mut idle).await;
    port.finish.notify_one();
    assert!(rest(&mut used).await.ends_with("done"));
    timeout(LONG, &mut port.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(port.addr).await.is_err());
}

#[tokio::test]
async fn a_stop_waits_for_nobody() {
    let mut port = open(HttpLimits::default());
    let _socket = port.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(port.event().await, "entered");
    port.shutdown.stop();
    timeout(LONG, &mut port.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(port.event().await, "dropped");
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told() {
    let mut port = open(HttpLimits {
        connections: 1,
        ..HttpLimits::default()
    });
    let first = port.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(port.event().await, "entered");
    let answer = rest(&mut port.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await).await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("/problems/too_many_connections")
    );
    drop(first);
    assert_eq!(port.event().await, "dropped");
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
    let router = observed(router, &metrics);
    let listener = listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let limits = HttpLimits::default();
    let serving = shutdown.spawn(serve(listener, router, limits, shutdown.clone()));
    let ask = async |line: &str| {
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
        "GET /made/up",
    ] {
        rest(&mut ask(line).await).await;
    }
    let waiting = ask("GET /wait").await;
    timeout(LONG, events.recv()).await.unwrap();
    drop(waiting);
    timeout(LONG, events.recv()).await.unwrap();
    shutdown.stop();
    timeout(LONG, serving).await.unwrap().unwrap().unwrap();

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
