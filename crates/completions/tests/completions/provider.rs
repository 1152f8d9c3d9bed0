//! A provider that answers by a script: byte for byte, cut where the script says.
//! Never: an answer to a request that the script does not expect.

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

/// What a provider does when it is asked.
#[derive(Debug, Clone)]
pub enum Act {
    /// These bytes are written.
    Send(Vec<u8>),
    /// Nothing happens before somebody adds a permit.
    Await(Arc<Semaphore>),
    /// The connection is closed.
    Close,
    /// The connection stays open until the other side closes it.
    Hold,
}

/// What was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub head: String,
    pub body: Value,
}

/// One provider. It ends with the test.
pub struct Provider {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    /// A permit for each connection that the other side closed while it was held.
    pub left: Arc<Semaphore>,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

struct Script {
    answers: Mutex<std::vec::IntoIter<Vec<Act>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    left: Arc<Semaphore>,
}

impl Provider {
    /// Answers the first request by the first of these, and so on; all that come later with 500.
    pub async fn start(answers: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, left) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let script = Arc::new(Script {
            answers: Mutex::new(answers.into_iter()),
            asked: Arc::clone(&asked),
            left: Arc::clone(&left),
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
            asked,
            left,
            connections,
            _tasks: tasks,
        }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn times_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    pub fn last_asked(&self) -> Asked {
        self.asked.lock().unwrap().last().unwrap().clone()
    }
}

async fn serve(mut socket: TcpStream, script: Arc<Script>) {
    socket.set_nodelay(true).unwrap();
    while let Some(asked) = read(&mut socket).await {
        script.asked.lock().unwrap().push(asked);
        let answer = script.answers.lock().unwrap().next();
        let unexpected = || plain(500, "", "nobody expected this request");
        for act in answer.unwrap_or_else(unexpected) {
            match act {
                Act::Send(bytes) => {
                    if socket.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Act::Await(gate) => gate.acquire().await.unwrap().forget(),
                Act::Close => return,
                Act::Hold => {
                    let mut rest = [0; 16];
                    while matches!(socket.read(&mut rest).await, Ok(1..)) {}
                    script.left.add_permits(1);
                    return;
                }
            }
        }
    }
}

async fn read(socket: &mut TcpStream) -> Option<Asked> {
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
                return Some(Asked { head, body });
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(length @ 1..) => found.extend(&piece[..length]),
            _ => return None,
        }
    }
}

/// An answer in one piece. Headers come as lines, each with its end.
pub fn plain(status: u16, headers: &str, body: &str) -> Vec<Act> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n");
    vec![Act::Send([head.as_bytes(), body.as_bytes()].concat())]
}

/// The head of a stream.
pub fn head() -> Act {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    Act::Send(head.into())
}

/// A piece of a stream, which arrives as such.
pub fn piece(bytes: &[u8]) -> Act {
    let size = format!("{:x}\r\n", bytes.len());
    Act::Send([size.as_bytes(), bytes, b"\r\n"].concat())
}

/// An event of a stream.
pub fn event(data: &str) -> Act {
    piece(format!("data: {data}\n\n").as_bytes())
}

/// The end of a stream.
pub fn end() -> Act {
    Act::Send(b"0\r\n\r\n".to_vec())
}

/// A whole stream of these events, and `[DONE]`.
pub fn stream(events: &[&str]) -> Vec<Act> {
    let events = events.iter().map(|data| event(data));
    let last = [event("[DONE]"), end()];
    std::iter::once(head()).chain(events).chain(last).collect()
}

/// A chunk that says this.
pub fn says(text: &str) -> String {
    serde_json::json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})
        .to_string()
}

/// A chunk that ends the reply.
pub fn stops(word: &str) -> String {
    serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]}).to_string()
}

/// A whole reply that says this.
pub fn saying(text: &str) -> Vec<Act> {
    stream(&[&says(text), &stops("stop")])
}
