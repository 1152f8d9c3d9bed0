//! A fake service behind a gateway, and a client that writes and reads single pieces.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use hyper::body::Frame;
use switchboard_test_support::switchboard::Program;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

/// Upper bound for anything that a test waits for.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Capacity of the queues.
const WAITING: usize = 64;

/// A service whose requests the test answers.
pub struct FakeService {
    pub url: String,
    requests: mpsc::Receiver<ForwardedRequest>,
    _tasks: JoinSet<()>,
}

/// A request and its open response.
pub struct ForwardedRequest {
    pub request: Request,
    pub response: oneshot::Sender<Response>,
}

/// A response body fed by a channel.
pub struct Pieces(mpsc::Receiver<Bytes>);

/// A client with one connection.
pub struct Client {
    stream: TcpStream,
    received: String,
}

impl FakeService {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel(WAITING);
        let router = Router::new().fallback(receive).with_state(sender);
        let serve = async move { axum::serve(listener, router).await.unwrap() };
        Self {
            url,
            requests,
            _tasks: JoinSet::from_iter([serve]),
        }
    }

    pub async fn next_request(&mut self) -> ForwardedRequest {
        let next = timeout(TIMEOUT, self.requests.recv()).await;
        next.expect("a request in time").expect("it listens")
    }
}

async fn receive(
    State(requests): State<mpsc::Sender<ForwardedRequest>>,
    request: Request,
) -> Response {
    let (sender, response) = oneshot::channel();
    let request = ForwardedRequest {
        request,
        response: sender,
    };
    let _ = requests.send(request).await;
    let response = response.await;
    response.unwrap_or_else(|_| StatusCode::IM_A_TEAPOT.into_response())
}

impl ForwardedRequest {
    /// Reads this many bytes of the body.
    pub async fn read(&mut self, bytes: usize) {
        let mut missing = bytes;
        while missing > 0 {
            let body = self.request.body_mut();
            let next = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
            let frame = timeout(TIMEOUT, next).await.expect("a piece in time");
            let data = frame.expect("more of the body").unwrap().into_data();
            missing -= data.unwrap().len().min(missing);
        }
    }

    /// Reads the body until it ends before it is complete.
    pub async fn body_breaks(&mut self) {
        let body = self.request.body_mut();
        loop {
            let next = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
            let frame = timeout(TIMEOUT, next).await.expect("an end in time");
            if frame.expect("no complete body").is_err() {
                return;
            }
        }
    }

    /// Waits until the gateway has disconnected.
    pub async fn wait_closed(&mut self) {
        let closed = timeout(TIMEOUT, self.response.closed()).await;
        closed.expect("the request is closed");
    }
}

impl Pieces {
    /// A body, and what writes its pieces.
    pub fn channel() -> (mpsc::Sender<Bytes>, Body) {
        let (sender, pieces) = mpsc::channel(WAITING);
        (sender, Body::new(Self(pieces)))
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Client {
    /// Connects to the HTTP port of a process.
    pub async fn connect(process: &Program) -> Self {
        let url = process.address("http_url");
        let address = url.strip_prefix("http://").unwrap();
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            received: String::new(),
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads until this text has arrived, and returns everything before it.
    pub async fn read_until(&mut self, text: &str) -> String {
        loop {
            if let Some((before, after)) = self.received.split_once(text) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.received = after;
                return before;
            }
            let mut buffer = [0; 4096];
            let read = timeout(TIMEOUT, self.stream.read(&mut buffer)).await;
            let read = read
                .unwrap_or_else(|_| panic!("no {text} in {}", self.received))
                .unwrap();
            assert_ne!(read, 0, "no {text} in {}", self.received);
            let read = String::from_utf8_lossy(&buffer[..read]);
            self.received.push_str(&read);
        }
    }
}
