//! Sessions with failing gateways and failing clients. Working gateways are tested end to end.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use super::{Gateway, serve_with_grace};
use crate::http_client::HttpClient;

const SHORT_TIMEOUT: Duration = Duration::from_millis(100);
const TEST_TIMEOUT: Duration = Duration::from_secs(10);
const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n";
const HANDSHAKE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}
"#;

/// A server that sends one response per request and then keeps the connection open.
struct SilentServer {
    client: HttpClient,
    listener: TcpListener,
    held: Vec<TcpStream>,
}

impl SilentServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client =
            HttpClient::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        client.idle_timeout = SHORT_TIMEOUT;
        Self {
            client,
            listener,
            held: Vec::new(),
        }
    }

    /// Answers the next request with this method and ignores others.
    async fn answer(&mut self, method: &str, with: &[u8]) {
        loop {
            let (mut stream, _) = timeout(TEST_TIMEOUT, self.listener.accept())
                .await
                .unwrap()
                .unwrap();
            let mut head = [0; 4];
            stream.read_exact(&mut head).await.unwrap();
            let matches = head.starts_with(method.as_bytes());
            if matches {
                // The client may disconnect before the end.
                let _ = stream.write_all(with).await;
            }
            self.held.push(stream);
            if matches {
                return;
            }
        }
    }

    /// Starts a session; returns stdin, stdout and its result.
    fn start_session(&self) -> (DuplexStream, DuplexStream, JoinSet<anyhow::Result<()>>) {
        let gateway = Gateway::new(self.client.clone(), &"key".into(), "/mcp".into()).unwrap();
        let (stdin, input) = tokio::io::duplex(4096);
        let (output, stdout) = tokio::io::duplex(64);
        let ended = JoinSet::from_iter([serve_with_grace(gateway, input, output, SHORT_TIMEOUT)]);
        (stdin, stdout, ended)
    }
}

/// Reads the next response and skips notifications.
async fn read_response(stdout: &mut BufReader<DuplexStream>) -> Value {
    loop {
        let message = read_message(stdout).await;
        if !message["id"].is_null() {
            return message;
        }
    }
}

async fn read_message(stdout: &mut BufReader<DuplexStream>) -> Value {
    let mut line = String::new();
    let message = timeout(TEST_TIMEOUT, stdout.read_line(&mut line));
    message.await.unwrap().unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Asserts that the call was lost and returns the reason.
fn lost(answer: &Value) -> &str {
    let result = &answer["result"]["structuredContent"];
    assert_eq!(
        (
            answer["id"].as_i64(),
            result["outcome"].as_str(),
            result["delivered"].as_str()
        ),
        (Some(1), Some("lost"), Some("unknown")),
        "{answer}"
    );
    result["error"].as_str().unwrap()
}

#[tokio::test]
async fn silent_or_endless_gateway_response_is_lost() {
    let mut gateway = SilentServer::start().await;
    let (mut stdin, stdout, _ended) = gateway.start_session();
    let mut stdout = BufReader::new(stdout);
    stdin.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    read_message(&mut stdout).await;
    // The relay of changes reconnects repeatedly.
    for _ in 0..2 {
        gateway.answer("GET", STREAM.as_bytes()).await;
    }
    stdin.write_all(CALL.as_bytes()).await.unwrap();
    gateway.answer("POST", STREAM.as_bytes()).await;
    let answer = read_response(&mut stdout).await;
    assert!(
        lost(&answer).contains("no data received for 100ms"),
        "{answer}"
    );
    stdin.write_all(CALL.as_bytes()).await.unwrap();
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n";
    let endless = [head.as_bytes(), &vec![b' '; 17_000_000]].concat();
    gateway.answer("POST", &endless).await;
    let answer = read_response(&mut stdout).await;
    assert!(lost(&answer).contains("exceeds 16777216 bytes"), "{answer}");
}

#[tokio::test]
async fn end_of_input_aborts_slow_requests() {
    let gateway = SilentServer::start().await;
    let (mut stdin, stdout, mut ended) = gateway.start_session();
    stdin.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    stdin.write_all(CALL.as_bytes()).await.unwrap();
    drop(stdin);
    let mut stdout = BufReader::new(stdout);
    read_message(&mut stdout).await;
    assert!(lost(&read_message(&mut stdout).await).contains("stdin ended"));
    timeout(TEST_TIMEOUT, ended.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let gateway = SilentServer::start().await;
    let (mut stdin, _stdout, mut ended) = gateway.start_session();
    stdin.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    drop(stdin);
    let ended = timeout(TEST_TIMEOUT, ended.join_next()).await.unwrap();
    let error = ended.unwrap().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the client does not read stdout");
}
