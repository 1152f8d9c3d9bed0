//! A fake provider that follows a script, byte for byte.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

/// A step of a script.
#[derive(Debug, Clone)]
pub enum Step {
    /// Write these bytes.
    Send(Vec<u8>),
    /// Wait for a permit.
    Wait(Arc<Semaphore>),
    /// Close the connection.
    Close,
    /// Keep the connection open until the client closes it.
    Hold,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub head: String,
    pub body: Value,
}

/// A fake provider. It stops with the test.
pub struct FakeProvider {
    pub address: SocketAddr,
    pub requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// One permit for each connection that the client closed during [`Step::Hold`].
    pub disconnected: Arc<Semaphore>,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

struct Script {
    answers: Mutex<std::vec::IntoIter<Vec<Step>>>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    disconnected: Arc<Semaphore>,
}

impl FakeProvider {
    /// Starts a provider. Request n gets response n; further requests get status 500.
    pub async fn start(answers: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, disconnected) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let script = Arc::new(Script {
            answers: Mutex::new(answers.into_iter()),
            requests: Arc::clone(&requests),
            disconnected: Arc::clone(&disconnected),
        });
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                open.spawn(serve(socket, Arc::clone(&script)));
            }
        });
        Self {
            address,
            requests,
            disconnected,
            connections,
            _tasks: tasks,
        }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn request_counts(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub fn last_request(&self) -> ReceivedRequest {
        self.requests.lock().unwrap().last().unwrap().clone()
    }
}

async fn serve(mut socket: TcpStream, script: Arc<Script>) {
    socket.set_nodelay(true).unwrap();
    while let Some(requests) = read(&mut socket).await {
        script.requests.lock().unwrap().push(requests);
        let answer = script.answers.lock().unwrap().next();
        let unexpected = || plain(500, "", "unexpected request");
        for act in answer.unwrap_or_else(unexpected) {
            match act {
                Step::Send(bytes) => {
                    if socket.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Step::Wait(gate) => gate.acquire().await.unwrap().forget(),
                Step::Close => return,
                Step::Hold => {
                    let mut rest = [0; 16];
                    while matches!(socket.read(&mut rest).await, Ok(1..)) {}
                    script.disconnected.add_permits(1);
                    return;
                }
            }
        }
    }
}

async fn read(socket: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut found = Vec::new();
    loop {
        if let Some(end) = found.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(found[..end].to_vec()).unwrap();
            let length = head.to_lowercase().lines().find_map(|line| {
                let length = line.strip_prefix("content-length: ")?;
                length.parse::<usize>().ok()
            });
            let body = &found[end + 4..];
            if body.len() == length.unwrap() {
                let body = serde_json::from_slice(body).unwrap();
                return Some(ReceivedRequest { head, body });
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(length @ 1..) => found.extend(&piece[..length]),
            _ => return None,
        }
    }
}

/// A response in one piece. Headers are lines with their ends.
pub fn plain(status: u16, headers: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n");
    vec![Step::Send([head.as_bytes(), body.as_bytes()].concat())]
}

/// The head of a stream.
pub fn head() -> Step {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    Step::Send(head.into())
}

/// A chunk of a stream.
pub fn piece(bytes: &[u8]) -> Step {
    let size = format!("{:x}\r\n", bytes.len());
    Step::Send([size.as_bytes(), bytes, b"\r\n"].concat())
}

/// An event of a stream.
pub fn event(data: &str) -> Step {
    piece(format!("data: {data}\n\n").as_bytes())
}

/// The end of a stream.
pub fn end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// A complete stream of these events and `[DONE]`.
pub fn stream(events: &[&str]) -> Vec<Step> {
    let events = events.iter().map(|data| event(data));
    let last = [event("[DONE]"), end()];
    std::iter::once(head()).chain(events).chain(last).collect()
}

/// An event with this text.
pub fn text_chunk(text: &str) -> String {
    serde_json::json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})
        .to_string()
}

/// An event with a finish reason.
pub fn finish_chunk(word: &str) -> String {
    serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]}).to_string()
}

/// A complete reply with this text.
pub fn reply_with(text: &str) -> Vec<Step> {
    stream(&[&text_chunk(text), &finish_chunk("stop")])
}
