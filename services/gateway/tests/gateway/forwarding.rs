//! Requests that a service behind the gateway refuses before it has their bodies, or does not answer.

use std::time::Duration;

use axum::{
    Router,
    extract::{FromRequest as _, Request},
    routing::post,
};
use reqwest::Method;
use switchboard_gateway::{Forwarding, Upstream};
use switchboard_runtime::{
    api::Document,
    http::{self, HttpLimits},
    problem::{Problem, ProblemKind, RawBody},
    shutdown::Shutdown,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use utoipa::openapi::{HttpMethod, OpenApiBuilder, PathItem, PathsBuilder, path::OperationBuilder};

use crate::test_gateway::{TEST_TIMEOUT, TestGateway, send};

const PATH: &str = "/v1/things";
/// What the service accepts, which is less than the gateway does.
const LIMIT_BYTES: usize = 100_000;
const MIB: usize = 1024 * 1024;
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// Refuses a request before it reads the body, as services do with credentials.
async fn create(request: Request) -> Result<String, Problem> {
    if request.headers()["x-key"] != "right" {
        let problem = Problem::new(ProblemKind::UnknownApiKey, "The key is wrong.");
        return Err(problem);
    }
    let RawBody(body) = RawBody::from_request(request, &()).await?;
    Ok(body.len().to_string())
}

/// A service with one path.
struct TestService {
    url: String,
    tasks: Shutdown,
}

impl Drop for TestService {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl TestService {
    fn start() -> Self {
        let listener = http::listen("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let tasks = Shutdown::new();
        let limits = HttpLimits {
            body_bytes: LIMIT_BYTES,
            ..HttpLimits::default()
        };
        let router = Router::new().route(PATH, post(create));
        tasks.spawn(http::serve(listener, router, limits, tasks.clone()));
        Self { url, tasks }
    }
}

/// A gateway in front of a service. It accepts larger bodies.
async fn gateway(url: &str, head_timeout: Duration) -> TestGateway {
    let things = PathItem::new(HttpMethod::Post, OperationBuilder::new());
    let paths = PathsBuilder::new().path(PATH, things);
    let document = Document::new(OpenApiBuilder::new().paths(paths).build(), &[]);
    let service = ("control", "--control-url");
    let upstream = Upstream::new(service, &url.parse().unwrap(), document).unwrap();
    let forwarding = Forwarding {
        upstreams: vec![upstream],
        max_requests: 16,
        head_timeout,
    };
    let flags = ["--http-body-limit-bytes", "33554432"];
    TestGateway::with_forwarding(&flags, forwarding).await
}

fn head(key: &str, framing: &str) -> String {
    format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nX-Key: {key}\r\n{framing}\r\n\r\n")
}

async fn connect(gateway: &TestGateway, head: &str) -> TcpStream {
    let mut socket = TcpStream::connect(gateway.address()).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

/// Everything until the gateway ends the connection, which it does not reset.
async fn rest(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(TEST_TIMEOUT, socket.read_to_end(&mut bytes)).await;
    read.unwrap().unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn client_that_expects_100_continue_receives_the_refusal_of_the_service() {
    let service = TestService::start();
    let gateway = gateway(&service.url, TEST_TIMEOUT).await;
    let too_large = format!("Content-Length: {}", LIMIT_BYTES + 1);
    for (key, framing, status, part) in [
        (
            "wrong",
            "Content-Length: 50",
            401,
            "/problems/unknown_api_key",
        ),
        (
            "wrong",
            "Transfer-Encoding: chunked",
            401,
            "/problems/unknown_api_key",
        ),
        ("right", &too_large, 413, r#""limit":100000"#),
    ] {
        let head = head(key, &format!("{framing}\r\nExpect: 100-continue"));
        // The body is never sent.
        let answer = rest(&mut connect(&gateway, &head).await).await;
        let line = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&line), "{answer}");
        assert!(answer.contains(part), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    gateway.assert_metric(
        "switchboard_gateway_forwarded_total{outcome=\"answered\",service=\"control\"} 3",
    );
}

#[tokio::test]
async fn client_that_expects_100_continue_receives_that_of_the_service() {
    let service = TestService::start();
    let gateway = gateway(&service.url, TEST_TIMEOUT).await;
    let body = vec![b'x'; LIMIT_BYTES];
    let chunked = [b"186a0\r\n", &body[..], b"\r\n0\r\n\r\n"].concat();
    let known = format!("Content-Length: {LIMIT_BYTES}");
    for (framing, body) in [(&*known, body), ("Transfer-Encoding: chunked", chunked)] {
        let head = head(
            "right",
            &format!("{framing}\r\nConnection: close\r\nExpect: 100-continue"),
        );
        let mut socket = connect(&gateway, &head).await;
        let mut interim = [0; CONTINUE.len()];
        let read = timeout(TEST_TIMEOUT, socket.read_exact(&mut interim)).await;
        read.unwrap().unwrap();
        assert_eq!(interim, CONTINUE.as_bytes());
        socket.write_all(&body).await.unwrap();
        let answer = rest(&mut socket).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with("100000"), "{answer}");
    }
}

#[tokio::test]
async fn client_that_does_not_wait_for_100_continue_is_answered() {
    let service = TestService::start();
    let gateway = gateway(&service.url, TEST_TIMEOUT).await;
    for (key, expect, status) in [
        ("right", "100-continue", 200),
        ("wrong", "100-continue", 401),
        // The server ignores other expectations.
        ("right", "other", 200),
    ] {
        let framing = format!("Content-Length: 50\r\nConnection: close\r\nExpect: {expect}");
        let request = head(key, &framing) + &"x".repeat(50);
        let answer = rest(&mut connect(&gateway, &request).await).await;
        assert!(answer.contains(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn body_is_sent_to_a_service_without_100_continue() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\nhello") {
            assert_ne!(socket.read_buf(&mut received).await.unwrap(), 0);
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        socket.write_all(answer).await.unwrap();
    };
    let gateway = gateway(&url, TEST_TIMEOUT).await;
    let framing = "Content-Length: 5\r\nConnection: close\r\nExpect: 100-continue";
    let request = head("right", framing) + "hello";
    let client = async { rest(&mut connect(&gateway, &request).await).await };
    let (answer, ()) = tokio::join!(client, service);
    assert!(answer.contains("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("ok"), "{answer}");
}

#[tokio::test]
async fn upload_that_the_service_refuses_early_receives_413() {
    let service = TestService::start();
    let gateway = gateway(&service.url, TEST_TIMEOUT).await;
    let chunk = [b"100000\r\n", &vec![b'x'; MIB][..], b"\r\n"].concat();
    let known = format!("Content-Length: {}", 16 * MIB);
    for (framing, body) in [
        (&*known, vec![b'x'; 16 * MIB]),
        ("Transfer-Encoding: chunked", chunk.repeat(16)),
    ] {
        // Sends everything before it reads.
        let mut socket = connect(&gateway, &head("right", framing)).await;
        let sent = timeout(TEST_TIMEOUT, socket.write_all(&body)).await;
        sent.unwrap().unwrap();
        let answer = rest(&mut socket).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains(r#""limit":100000"#), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    // A client that reads while it sends.
    for _ in 0..5 {
        let request = gateway
            .anonymous(Method::POST, PATH)
            .header("x-key", "right");
        let answer = send(request.body(vec![b'x'; 16 * MIB])).await;
        assert_eq!(
            (answer.status, &answer.json["limit"]),
            (413, &LIMIT_BYTES.into())
        );
    }
    gateway.assert_metric(
        "switchboard_gateway_forwarded_total{outcome=\"answered\",service=\"control\"} 7",
    );
}

#[tokio::test]
async fn service_that_does_not_answer_in_time_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let gateway = gateway(&url, Duration::from_millis(200)).await;
    let request = gateway.anonymous(Method::POST, PATH).body("{}");
    let serve = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        // It reads, and is silent, until the gateway disconnects.
        let mut received = Vec::new();
        connection.read_to_end(&mut received).await.unwrap();
        String::from_utf8(received).unwrap()
    };
    let (answer, received) = tokio::join!(send(request), timeout(TEST_TIMEOUT, serve));
    assert!(received.unwrap().ends_with("\r\n\r\n{}"));
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json["type"], "/problems/service_unavailable");
    assert_eq!(answer.json["service"], "control");
    let detail = answer.json["detail"].as_str().unwrap();
    assert!(detail.contains("may have been carried out"), "{detail}");
    gateway.assert_metric(
        "switchboard_gateway_forwarded_total{outcome=\"timed_out\",service=\"control\"} 1",
    );
}
