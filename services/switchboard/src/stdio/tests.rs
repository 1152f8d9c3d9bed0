//! Conversations with gateways that do not do their part, and with clients that do not do theirs.
//! Never: a gateway that answers; those are tested end to end.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use super::{Gateway, converse};
use crate::site::Site;

const SOON: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n";
const HANDSHAKE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}
"#;

/// A site that answers every request with these bytes, and then stays connected without another.
struct Mute {
    site: Site,
    listener: TcpListener,
    held: Vec<TcpStream>,
}

impl Mute {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut site =
            Site::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        site.quiet = SOON;
        Self {
            site,
            listener,
            held: Vec::new(),
        }
    }

    /// Takes the next request with this method, and answers it; others are not answered.
    async fn answer(&mut self, method: &str, with: &[u8]) {
        loop {
            let (mut stream, _) = timeout(PATIENCE, self.listener.accept())
                .await
                .unwrap()
                .unwrap();
            let mut head = [0; 4];
            stream.read_exact(&mut head).await.unwrap();
            let asked = head.starts_with(method.as_bytes());
            if asked {
                // Whoever asked may have had enough before the end.
                let _ = stream.write_all(with).await;
            }
            self.held.push(stream);
            if asked {
                return;
            }
        }
    }

    /// A conversation that is the client's to begin, and how it ends.
    fn converse(&self) -> (DuplexStream, DuplexStream, JoinSet<anyhow::Result<()>>) {
        let gateway = Gateway::new(self.site.clone(), &"key".into(), "/mcp".into()).unwrap();
        let (stdin, input) = tokio::io::duplex(4096);
        let (output, stdout) = tokio::io::duplex(64);
        let ended = JoinSet::from_iter([converse(gateway, input, output, SOON)]);
        (stdin, stdout, ended)
    }
}

/// The next answer; what is told between is passed over.
async fn hear_answer(stdout: &mut BufReader<DuplexStream>) -> Value {
    loop {
        let heard = hear(stdout).await;
        if !heard["id"].is_null() {
            return heard;
        }
    }
}

async fn hear(stdout: &mut BufReader<DuplexStream>) -> Value {
    let mut line = String::new();
    let heard = timeout(PATIENCE, stdout.read_line(&mut line));
    heard.await.unwrap().unwrap();
    serde_json::from_str(&line).unwrap()
}

/// What became of the call, and why.
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
async fn a_gateway_that_falls_silent_or_does_not_end_is_given_up() {
    let mut gateway = Mute::start().await;
    let (mut stdin, stdout, _ended) = gateway.converse();
    let mut stdout = BufReader::new(stdout);
    stdin.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    hear(&mut stdout).await;
    // What follows the changes connects anew, again and again.
    for _ in 0..2 {
        gateway.answer("GET", STREAM.as_bytes()).await;
    }
    stdin.write_all(CALL.as_bytes()).await.unwrap();
    gateway.answer("POST", STREAM.as_bytes()).await;
    let answer = hear_answer(&mut stdout).await;
    assert!(lost(&answer).contains("nothing came for 100ms"), "{answer}");
    stdin.write_all(CALL.as_bytes()).await.unwrap();
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n";
    let endless = [head.as_bytes(), &vec![b' '; 17_000_000]].concat();
    gateway.answer("POST", &endless).await;
    let answer = hear_answer(&mut stdout).await;
    assert!(
        lost(&answer).contains("more than 16777216 bytes"),
        "{answer}"
    );
}

#[tokio::test]
async fn what_is_under_way_when_the_input_ends_holds_nobody_up() {
    let gateway = Mute::start().await;
    let (mut stdin, stdout, mut ended) = gateway.converse();
    stdin.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    stdin.write_all(CALL.as_bytes()).await.unwrap();
    drop(stdin);
    let mut stdout = BufReader::new(stdout);
    hear(&mut stdout).await;
    assert!(lost(&hear(&mut stdout).await).contains("stdin ended"));
    timeout(PATIENCE, ended.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nobody_up_after_its_input_has_ended() {
    let gateway = Mute::start().await;
    let (mut stdin, _stdout, mut ended) = gateway.converse();
    stdin.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    drop(stdin);
    let ended = timeout(PATIENCE, ended.join_next()).await.unwrap();
    let error = ended.unwrap().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "stdout is not read");
}
