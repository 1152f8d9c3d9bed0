//! A fake provider of language models over HTTP. The test receives every request and writes every
//! reply.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, HttpBody},
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

/// Upper bound for a request or a disconnect. A turn may be claimed again after its lease ends.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Capacity of the queues for requests and chunks.
const WAITING: usize = 1_024;
/// Characters per fragment of tool-call arguments.
const FRAGMENT: usize = 5;

/// A provider whose requests the test answers.
pub struct Provider {
    /// The base URL, without the path of the operation.
    pub url: String,
    asked: mpsc::Receiver<ProviderRequest>,
    seen: Seen,
    tasks: JoinSet<()>,
}

/// All request bodies so far.
type Seen = Arc<Mutex<Vec<Value>>>;
type BodyChunk = Result<Bytes, io::Error>;

/// A request and its open response.
pub struct ProviderRequest {
    pub body: Value,
    pub headers: HeaderMap,
    /// Present until the response starts.
    head: Option<oneshot::Sender<Response>>,
    /// Present after the response has started.
    pieces: Option<mpsc::Sender<BodyChunk>>,
}

#[derive(Clone)]
struct RequestSink {
    seen: Seen,
    asked: mpsc::Sender<ProviderRequest>,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, asked) = mpsc::channel(WAITING);
        let seen = Seen::default();
        let sink = RequestSink {
            seen: Arc::clone(&seen),
            asked: sender,
        };
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .with_state(sink);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            asked,
            seen,
            tasks,
        }
    }

    /// Starts a provider that answers concurrent requests with a script.
    pub async fn scripted<F>(script: impl Fn(ProviderRequest) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut provider = Self::start().await;
        let (_, unused) = mpsc::channel(1);
        let mut asked = std::mem::replace(&mut provider.asked, unused);
        provider.tasks.spawn(async move {
            let mut replies = JoinSet::new();
            while let Some(request) = asked.recv().await {
                replies.spawn(script(request));
            }
        });
        provider
    }

    /// The next request.
    pub async fn next_request(&mut self) -> ProviderRequest {
        let asked = timeout(REQUEST_TIMEOUT, self.asked.recv()).await;
        asked.expect("a request in time").expect("it listens")
    }

    /// Whether no request is queued.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// All request bodies, oldest first.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }
}

async fn complete(
    State(sink): State<RequestSink>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let (head, answered) = oneshot::channel();
    sink.seen.lock().unwrap().push(body.clone());
    let asked = ProviderRequest {
        body,
        headers,
        head: Some(head),
        pieces: None,
    };
    if sink.asked.send(asked).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    // The test may have ended.
    let answered = answered.await;
    answered.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

impl ProviderRequest {
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().expect("messages")
    }

    /// The system prompt.
    pub fn system(&self) -> &str {
        assert_eq!(self.messages()[0]["role"], "system", "{}", self.body);
        self.messages()[0]["content"].as_str().expect("a text")
    }

    /// The last user message.
    pub fn user_message(&self) -> &str {
        let mut questions = self.messages().iter().rev();
        let last = questions.find(|message| message["role"] == "user");
        last.expect("a question")["content"]
            .as_str()
            .expect("a text")
    }

    /// The calls of the last round, and the messages with their results.
    pub fn last_round(&self) -> (Vec<Value>, Vec<Value>) {
        let is_call = |message: &Value| message["tool_calls"].is_array();
        let asking = self.messages().iter().rposition(is_call);
        let asking = asking.unwrap_or_else(|| panic!("no calls in {}", self.body));
        let calls = self.messages()[asking]["tool_calls"].as_array().unwrap();
        (calls.clone(), self.messages()[asking + 1..].to_vec())
    }

    /// Sends a chunk of text.
    pub async fn send_text(&mut self, text: &str) {
        self.delta(json!({"content": text})).await;
    }

    /// Sends any chunk.
    pub async fn delta(&mut self, delta: Value) {
        let chunk = self.chunk(&delta, None);
        self.write(&chunk).await;
    }

    /// Sends calls, each `(id, name, arguments)`, in fragments, and ends. An empty id is omitted.
    pub async fn calls(mut self, calls: &[(&str, &str, &str)]) {
        for (index, (id, name, arguments)) in calls.iter().enumerate() {
            let mut call = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
            if id.is_empty() {
                call.as_object_mut().unwrap().remove("id");
            }
            self.delta(json!({"role": "assistant", "content": null, "tool_calls": [call]}))
                .await;
            let letters: Vec<_> = arguments.chars().collect();
            for fragment in letters.chunks(FRAGMENT) {
                let fragment: String = fragment.iter().collect();
                let call = json!({"index": index, "function": {"arguments": fragment}});
                self.delta(json!({"tool_calls": [call]})).await;
            }
        }
        self.finish("tool_calls").await;
    }

    /// Sends a complete reply.
    pub async fn reply(mut self, text: &str) {
        self.send_text(text).await;
        self.finish("stop").await;
    }

    /// Ends the reply with this finish reason, followed by the usage.
    pub async fn finish(mut self, why: &str) {
        let chunk = self.chunk(&json!({}), Some(why));
        self.write(&chunk).await;
        let mut usage = self.chunk(&json!({}), None);
        usage["choices"] = json!([]);
        usage["usage"] = json!({"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29});
        self.write(&usage).await;
        self.send(Ok(Bytes::from_static(b"data: [DONE]\n\n"))).await;
    }

    /// Breaks the connection.
    pub async fn reset(mut self) {
        self.send(Err(io::ErrorKind::ConnectionReset.into())).await;
    }

    /// Responds with an error status.
    pub fn reject(mut self, status: u16, retry_after: Option<u32>) {
        let status = StatusCode::from_u16(status).unwrap();
        let body = json!({"error": {"message": "not now", "type": "server_error"}});
        let mut response = (status, Json(body)).into_response();
        if let Some(seconds) = retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        let head = self.head.take().expect("no part of the reply was sent");
        assert!(head.send(response).is_ok(), "no task waits for it");
    }

    /// Waits until the client has disconnected.
    pub async fn wait_closed(&mut self) {
        let closed = async {
            match (&mut self.head, &self.pieces) {
                (Some(head), _) => head.closed().await,
                (None, Some(pieces)) => pieces.closed().await,
                (None, None) => {}
            }
        };
        timeout(REQUEST_TIMEOUT, closed)
            .await
            .expect("it listens still");
    }

    fn is_open(&self) -> bool {
        let head = self.head.as_ref().is_some_and(|head| !head.is_closed());
        head || self.pieces.as_ref().is_some_and(|to| !to.is_closed())
    }

    /// Fails if the client has disconnected.
    #[track_caller]
    pub fn assert_open(&self) {
        assert!(self.is_open(), "disconnected: {}", self.body);
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        json!({
            "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG", "object": "chat.completion.chunk", "created": 1_741_570_283,
            "model": self.body["model"], "system_fingerprint": "fp_44709d6fcb",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        })
    }

    async fn write(&mut self, event: &Value) {
        self.send(Ok(format!("data: {event}\n\n").into())).await;
    }

    async fn send(&mut self, piece: BodyChunk) {
        if let Some(head) = self.head.take() {
            let (pieces, body) = mpsc::channel(WAITING);
            let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
            let response = (kind, Body::new(Reply(body))).into_response();
            // The client may have disconnected.
            let _ = head.send(response);
            self.pieces = Some(pieces);
        }
        if let Some(pieces) = &self.pieces {
            let _ = pieces.send(piece).await;
        }
    }
}

/// A response body fed by a channel.
struct Reply(mpsc::Receiver<BodyChunk>);

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = ready!(self.0.poll_recv(context));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }
}
