//! What a gateway sends to a service, and what it sends back.

use axum::{
    body::Body,
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use super::{
    fake_service::{Client, FakeService, Pieces},
    forwarded, start_gateway,
};
use crate::cluster::TestCluster;

const MIB: usize = 1024 * 1024;
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The values of a header, in their order.
fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values
        .map(|value| value.to_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn request_and_response_are_streamed_without_the_headers_of_a_connection() {
    let cluster = TestCluster::start(0).await;
    let mut service = FakeService::start().await;
    let gateway = start_gateway(&cluster, &["--control-url", &service.url]);
    let mut client = Client::connect(&gateway).await;
    let path = "/v1/skills-books/book_1/parts/1?why=%2Fthis";
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: devices.example.com\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n\
         Keep-Alive: timeout=5\r\nTE: trailers\r\nProxy-Authorization: Basic c2VjcmV0\r\nUpgrade: websocket\r\n\
         X-Forwarded-For: 203.0.113.9\r\nAuthorization: Bearer secret\r\nIdempotency-Key: one\r\n\
         traceparent: {TRACE}\r\nContent-Length: {}\r\n\r\n",
        2 * MIB
    );
    client.send(head.as_bytes()).await;
    let half = vec![b'x'; MIB];
    client.send(&half).await;
    // The service has the first half before the client sends the second one.
    let mut forwarded_one = service.next_request().await;
    forwarded_one.read(MIB).await;
    client.send(&half).await;
    forwarded_one.read(MIB).await;
    let request = &forwarded_one.request;
    assert_eq!(request.method(), Method::PUT);
    assert_eq!(request.uri().path_and_query().unwrap(), path);
    let headers = request.headers();
    for name in [
        "x-mine",
        "keep-alive",
        "te",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(values(headers, name), [""; 0], "{name}");
    }
    for (name, expected) in [
        ("host", service.url.strip_prefix("http://").unwrap()),
        ("authorization", "Bearer secret"),
        ("idempotency-key", "one"),
        ("traceparent", TRACE),
        // Of the connection to the service.
        ("connection", "close"),
        ("content-length", &(2 * MIB).to_string()),
    ] {
        assert_eq!(values(headers, name), [expected], "{name}");
    }
    let addresses = values(headers, "x-forwarded-for").join(", ");
    assert_eq!(addresses, "203.0.113.9, 127.0.0.1");

    let (pieces, body) = Pieces::channel();
    let response = Response::builder().status(StatusCode::ACCEPTED);
    let response = response.header("connection", "x-own").header("x-own", "1");
    let response = response.header("etag", "\"7\"").body(body).unwrap();
    forwarded_one.response.send(response).unwrap();
    let head = client.read_until("\r\n\r\n").await.to_lowercase();
    assert!(head.starts_with("http/1.1 202 "), "{head}");
    assert!(head.contains("\r\netag: \"7\""), "{head}");
    assert!(!head.contains("x-own"), "{head}");
    // The client has each piece before the service sends the next one.
    for piece in ["first", "second"] {
        pieces
            .send(Bytes::from_static(piece.as_bytes()))
            .await
            .unwrap();
        client.read_until(piece).await;
    }
    drop(pieces);
    client.read_until("0\r\n\r\n").await;
    forwarded(&gateway, "control", "answered", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_ends_at_the_service_when_its_client_disconnects() {
    let cluster = TestCluster::start(0).await;
    let mut service = FakeService::start().await;
    let gateway = start_gateway(&cluster, &["--control-url", &service.url]);
    let head = b"GET /v1/npcs HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Before the response.
    let mut client = Client::connect(&gateway).await;
    client.send(head).await;
    let mut request = service.next_request().await;
    drop(client);
    request.wait_closed().await;
    forwarded(&gateway, "control", "cancelled", 1).await;
    // Within the response.
    let mut client = Client::connect(&gateway).await;
    client.send(head).await;
    let request = service.next_request().await;
    let (pieces, body) = Pieces::channel();
    request.response.send(body.into_response()).unwrap();
    pieces.send(Bytes::from_static(b"first")).await.unwrap();
    client.read_until("first").await;
    drop(client);
    pieces.closed().await;
    forwarded(&gateway, "control", "cancelled", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn body_over_the_limit_ends_the_request_at_the_service() {
    let cluster = TestCluster::start(0).await;
    let mut service = FakeService::start().await;
    let gateway = start_gateway(&cluster, &["--control-url", &service.url]);
    let mut client = Client::connect(&gateway).await;
    let head = b"POST /v1/npcs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(head).await;
    client.send(format!("{MIB:x}\r\n").as_bytes()).await;
    client.send(&vec![b' '; MIB]).await;
    let mut request = service.next_request().await;
    request.read(MIB).await;
    client.send(b"\r\n1\r\n \r\n").await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    client.read_until("/problems/body_too_large").await;
    request.body_breaks().await;
    forwarded(&gateway, "control", "body_failed", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_is_not_answered_may_have_been_carried_out() {
    let cluster = TestCluster::start(0).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let gateway = start_gateway(&cluster, &["--control-url", &url]);
    let request = cluster
        .http
        .post(format!("{}/v1/npcs", gateway.address("http_url")));
    let request = request.bearer_auth(&cluster.org.key).json(&json!({}));
    let serve = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1024];
        assert!(connection.read(&mut buffer).await.unwrap() > 0);
        // A second attempt would be a second connection.
        drop(connection);
        listener.accept().await
    };
    let answer = tokio::select! {
        _ = serve => panic!("the request was sent twice"),
        answer = request.send() => answer.unwrap(),
    };
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["type"], "/problems/service_unavailable");
    assert_eq!(problem["service"], "control");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("may have been carried out"), "{detail}");
    forwarded(&gateway, "control", "lost", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_requests_of_one_organisation_leave_room_for_others() {
    let cluster = TestCluster::start(0).await;
    let mut service = FakeService::start().await;
    let arguments = ["--control-url", &service.url, "--forwarded-requests", "4"];
    let gateway = start_gateway(&cluster, &arguments);
    let other = cluster.another_org("second").await;
    let get = |key: &str| {
        let url = format!("{}/v1/npcs", gateway.address("http_url"));
        let request = cluster.http.get(url).bearer_auth(key);
        async move { request.send().await.unwrap() }
    };
    let first = tokio::join!(get(&cluster.org.key), async {
        let first = service.next_request().await;
        // The share of an organisation is a quarter: one.
        let refused = get(&cluster.org.key).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["budget"], "forwarded_requests", "{problem}");
        forwarded(&gateway, "control", "refused", 1).await;
        let second = tokio::join!(get(&other.key), async {
            let second = service.next_request().await;
            second.response.send(Body::empty().into_response()).unwrap();
        });
        assert_eq!(second.0.status(), StatusCode::OK);
        first.response.send(Body::empty().into_response()).unwrap();
    });
    assert_eq!(first.0.status(), StatusCode::OK);
    // The end of the response returns its slot.
    let again = tokio::join!(get(&cluster.org.key), async {
        let again = service.next_request().await;
        again.response.send(Body::empty().into_response()).unwrap();
    });
    assert_eq!(again.0.status(), StatusCode::OK);
}
