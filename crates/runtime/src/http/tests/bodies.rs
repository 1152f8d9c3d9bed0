//! Clients that send a body which the server does not read: they receive the response.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn as client;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

const MIB: usize = 1024 * 1024;

fn limited() -> TestServer {
    open(HttpLimits {
        body_bytes: 100,
        ..HttpLimits::default()
    })
}

fn post(path: &str, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}\r\n\r\n"
    )
}

/// Sends everything before it reads, as many clients do.
async fn upload(server: &TestServer, head: &str, body: &[u8]) -> String {
    let mut socket = server.send(head).await;
    let sent = timeout(LONG_TIMEOUT, socket.write_all(body)).await;
    sent.expect("the server reads").expect("it does not reset");
    let mut bytes = Vec::new();
    let read = timeout(LONG_TIMEOUT, socket.read_to_end(&mut bytes)).await;
    read.expect("the response ends").expect("it is not reset");
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn client_that_sends_a_large_body_first_receives_413_with_the_limit() {
    let server = limited();
    let head = post("/echo", &format!("Content-Length: {}", 16 * MIB));
    let answer = upload(&server, &head, &vec![b'x'; 16 * MIB]).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    let detail = "The body has 16777216 bytes; at most 100 bytes are accepted.";
    assert!(answer.contains(detail), "{answer}");
    assert!(answer.contains(r#""limit":100"#), "{answer}");

    let head = post("/echo", "Transfer-Encoding: chunked");
    let chunk = [b"100000\r\n".to_vec(), vec![b'x'; MIB], b"\r\n".to_vec()].concat();
    let answer = upload(&server, &head, &chunk.repeat(16)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let detail = "The body is longer than 100 bytes, which is the maximum.";
    assert!(answer.contains(detail), "{answer}");
}

#[tokio::test]
async fn client_of_a_path_that_reads_no_body_receives_its_response() {
    let server = open(HttpLimits::default());
    let head = post("/none", &format!("Content-Length: {MIB}"));
    let answer = upload(&server, &head, &vec![b'x'; MIB]).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn client_that_expects_100_continue_receives_the_final_status_at_once() {
    let server = limited();
    for (path, bytes, status) in [("/echo", 101, "413"), ("/none", 99, "404")] {
        let expect = format!("Content-Length: {bytes}\r\nExpect: 100-continue");
        let mut socket = server.send(&post(path, &expect)).await;
        // The body is never sent.
        let answer = rest(&mut socket).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    let expect = "Content-Length: 2\r\nConnection: close\r\nExpect: 100-continue";
    let mut socket = server.send(&post("/echo", expect)).await;
    let mut interim = [0; 25];
    let read = timeout(LONG_TIMEOUT, socket.read_exact(&mut interim)).await;
    read.unwrap().unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"[]").await.unwrap();
    let answer = rest(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// A client whose body has been refused, and that neither sends it nor closes.
async fn refused(server: &TestServer) -> TcpStream {
    let mut socket = server.send(&post("/echo", "Content-Length: 101")).await;
    let answer = rest(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    socket
}

#[tokio::test]
async fn client_that_neither_sends_nor_closes_is_waited_for_5_s() {
    let server = limited();
    let mut socket = refused(&server).await;
    let advance = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    advance(4).await;
    // It may still send: a closed socket would reset all writes but the first.
    for _ in 0..5 {
        socket.write_all(b"x").await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    advance(1).await;
    let closed = async {
        while socket.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let closed = timeout(LONG_TIMEOUT / 4, closed).await;
    closed.expect("the server closes the connection");
}

#[tokio::test]
async fn drain_does_not_wait_for_refused_clients() {
    let mut server = limited();
    let _lingering = refused(&server).await;
    // A connection that stays open: the server has read the small body, its handler has not.
    let request = post("/none", "Content-Length: 2") + "[]";
    let mut idle = server.send(&request).await;
    let read = timeout(LONG_TIMEOUT, idle.read(&mut [0; 1])).await;
    assert_eq!(read.unwrap().unwrap(), 1);
    // And one with the beginning of a head.
    let _slow = server.send("GET / HTTP/1.1\r\nHost").await;
    server.drains().await;
}

/// Uploads with a client of hyper; returns what it receives.
async fn received<B>(
    sending: impl Future<Output = hyper::Result<hyper::Response<B>>>,
) -> (u16, String)
where
    B: hyper::body::Body<Error = hyper::Error>,
{
    let response = timeout(LONG_TIMEOUT, sending).await.unwrap().unwrap();
    let status = response.status().as_u16();
    let body = timeout(LONG_TIMEOUT, response.into_body().collect()).await;
    let body = body.unwrap().unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn client_of_hyper_receives_413_with_the_limit() {
    let server = limited();
    let tasks = Shutdown::new();
    let request = || {
        let request = hyper::Request::post(format!("http://{}/echo", server.addr));
        let request = request
            .header("host", "x")
            .header("content-type", "application/json");
        let body = Full::new(Bytes::from(vec![b'x'; 16 * MIB]));
        request.body(body).unwrap()
    };
    // How much is sent before the response is read, is a matter of timing.
    for _ in 0..5 {
        let io = TokioIo::new(server.connect().await);
        let (mut http1, connection) = client::http1::handshake(io).await.unwrap();
        tasks.spawn(connection);
        let io = TokioIo::new(server.connect().await);
        let executor = TokioExecutor::new();
        let (mut http2, connection) = client::http2::handshake(executor, io).await.unwrap();
        tasks.spawn(connection);
        for (status, answer) in [
            received(http1.send_request(request())).await,
            received(http2.send_request(request())).await,
        ] {
            assert_eq!(status, 413, "{answer}");
            assert!(answer.contains(r#""limit":100"#), "{answer}");
        }
    }
}
