//! Connections over HTTP: authentication decides which ones can be replaced, and to whom bodies are
//! charged.

use secrecy::ExposeSecret;
use switchboard_identity::ApiKeySecret;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::test_gateway::{TEST_TIMEOUT, TestGateway};

const CONNECTIONS: usize = 4;
const TOOLS_LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Sends a request on a connection that stays open, and returns the status.
async fn status(socket: &mut TcpStream, key: &ApiKeySecret, line: &str, body: &str) -> String {
    let key = key.expose_secret();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    let read = timeout(TEST_TIMEOUT, socket.read_exact(&mut head)).await;
    read.unwrap().unwrap();
    // The next read begins with the next response.
    let mut rest = vec![0; 64 * 1024];
    let read = timeout(TEST_TIMEOUT, socket.read(&mut rest)).await;
    read.unwrap().unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[tokio::test]
async fn authenticated_connection_outlives_silent_ones() {
    let flag = format!("--http-connections={CONNECTIONS}");
    for (line, body) in [("GET /v1/devices", ""), ("POST /mcp", TOOLS_LIST)] {
        let gateway = TestGateway::with_flags(&[&flag]).await;
        let mut socket = TcpStream::connect(gateway.address()).await.unwrap();
        assert_eq!(status(&mut socket, &gateway.key, line, body).await, "200");
        let mut silent = Vec::new();
        for _ in 0..4 * CONNECTIONS {
            silent.push(TcpStream::connect(gateway.address()).await.unwrap());
        }
        let closed = timeout(TEST_TIMEOUT, silent[0].read(&mut [0; 1])).await;
        assert!(!matches!(closed.unwrap(), Ok(1..)));
        assert_eq!(status(&mut socket, &gateway.key, line, body).await, "200");
    }
}
