//! A stand-in for a provider of language models: speaks over HTTP as they do, and says what its test has it say.
//! Never: a reply of its own, or a request that its test does not see.

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

/// How long a request, or somebody who hangs up, is waited for: a turn may be taken anew when its lease has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests and pieces that may wait.
const WAITING: usize = 1_024;
/// Arguments come in pieces of so many characters.
const FRAGMENT: usize = 5;

/// One that is asked, and answers when its test says so.
pub struct Provider {
    /// Where it is asked, without the path of the one operation.
    pub url: String,
    asked: mpsc::Receiver<Asked>,
    seen: Seen,
    tasks: JoinSet<()>,
}

/// What was asked so far.
type Seen = Arc<Mutex<Vec<Value>>>;
type Piece = Result<Bytes, io::Error>;

/// A request, and the way to who sent it.
pub struct Asked {
    pub body: Value,
    pub headers: HeaderMap,
    /// Until there is a head.
    head: Option<oneshot::Sender<Response>>,
    /// From then on.
    pieces: Option<mpsc::Sender<Piece>>,
}

#[derive(Clone)]
struct Desk {
    seen: Seen,
    asked: mpsc::Sender<Asked>,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, asked) = mpsc::channel(WAITING);
        let seen = Seen::default();
        let desk = Desk {
            seen: Arc::clone(&seen),
            asked: sender,
        };
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .with_state(desk);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            asked,
            seen,
            tasks,
        }
    }

    /// One that replies by itself, to any number of requests at a time.
    pub async fn scripted<F>(script: impl Fn(Asked) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut provider = Self::start().await;
        let (_, nobody) = mpsc::channel(1);
        let mut asked = std::mem::replace(&mut provider.asked, nobody);
        provider.tasks.spawn(async move {
            let mut replies = JoinSet::new();
            while let Some(request) = asked.recv().await {
                replies.spawn(script(request));
            }
        });
        provider
    }

    /// The next request.
    pub async fn asked(&mut self) -> Asked {
        let asked = timeout(PATIENCE, self.asked.recv()).await;
        asked.expect("a request in time").expect("it listens")
    }

    /// Whether nothing has been asked that was not taken.
    pub fn is_at_rest(&self) -> bool {
        self.asked.is_empty()
    }

    /// All that it was asked, the oldest first.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }
}

async fn complete(
    State(desk): State<Desk>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let (head, answered) = oneshot::channel();
    desk.seen.lock().unwrap().push(body.clone());
    let asked = Asked {
        body,
        headers,
        head: Some(head),
        pieces: None,
    };
    if desk.asked.send(asked).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    // A test that has ended answers nobody.
    let answered = answered.await;
    answered.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

impl Asked {
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().expect("messages")
    }

    /// What the model is told of itself.
    pub fn system(&self) -> &str {
        assert_eq!(self.messages()[0]["role"], "system", "{}", self.body);
        self.messages()[0]["content"].as_str().expect("a text")
    }

    /// What is asked.
    pub fn question(&self) -> &str {
        let mut questions = self.messages().iter().rev();
        let last = questions.find(|message| message["role"] == "user");
        last.expect("a question")["content"]
            .as_str()
            .expect("a text")
    }

    /// What follows the question: the calls of the last round, and what the model was told of each.
    pub fn last_round(&self) -> (Vec<Value>, Vec<Value>) {
        let is_call = |message: &Value| message["tool_calls"].is_array();
        let asking = self.messages().iter().rposition(is_call);
        let asking = asking.unwrap_or_else(|| panic!("no calls in {}", self.body));
        let calls = self.messages()[asking]["tool_calls"].as_array().unwrap();
        (calls.clone(), self.messages()[asking + 1..].to_vec())
    }

    /// Words.
    pub async fn says(&mut self, words: &str) {
        self.delta(json!({"content": words})).await;
    }

    /// Any piece.
    pub async fn delta(&mut self, delta: Value) {
        let chunk = self.chunk(&delta, None);
        self.write(&chunk).await;
    }

    /// Calls, each as `(id, name, arguments)`, in fragments, and the end; an empty id is left out.
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
        self.ends("tool_calls").await;
    }

    /// All that it has to say.
    pub async fn replies(mut self, words: &str) {
        self.says(words).await;
        self.ends("stop").await;
    }

    /// Nothing more, for this reason; then what it took.
    pub async fn ends(mut self, why: &str) {
        let chunk = self.chunk(&json!({}), Some(why));
        self.write(&chunk).await;
        let mut usage = self.chunk(&json!({}), None);
        usage["choices"] = json!([]);
        usage["usage"] = json!({"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29});
        self.write(&usage).await;
        self.send(Ok(Bytes::from_static(b"data: [DONE]\n\n"))).await;
    }

    /// Its connection breaks.
    pub async fn breaks_off(mut self) {
        self.send(Err(io::ErrorKind::ConnectionReset.into())).await;
    }

    /// It does not reply at all.
    pub fn refuses(mut self, status: u16, retry_after: Option<u32>) {
        let status = StatusCode::from_u16(status).unwrap();
        let body = json!({"error": {"message": "not now", "type": "server_error"}});
        let mut response = (status, Json(body)).into_response();
        if let Some(seconds) = retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        let head = self.head.take().expect("no word of it was said");
        assert!(head.send(response).is_ok(), "nobody waits for it");
    }

    /// Waits until nobody listens any more.
    pub async fn hung_up(&mut self) {
        let closed = async {
            match (&mut self.head, &self.pieces) {
                (Some(head), _) => head.closed().await,
                (None, Some(pieces)) => pieces.closed().await,
                (None, None) => {}
            }
        };
        timeout(PATIENCE, closed).await.expect("it listens still");
    }

    fn is_heard(&self) -> bool {
        let head = self.head.as_ref().is_some_and(|head| !head.is_closed());
        head || self.pieces.as_ref().is_some_and(|to| !to.is_closed())
    }

    /// Fails when who asked has hung up.
    #[track_caller]
    pub fn must_be_heard(&self) {
        assert!(self.is_heard(), "hung up on {}", self.body);
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

    async fn send(&mut self, piece: Piece) {
        if let Some(head) = self.head.take() {
            let (pieces, body) = mpsc::channel(WAITING);
            let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
            let response = (kind, Body::new(Reply(body))).into_response();
            // Whoever hung up hears nothing.
            let _ = head.send(response);
            self.pieces = Some(pieces);
        }
        if let Some(pieces) = &self.pieces {
            let _ = pieces.send(piece).await;
        }
    }
}

/// A reply as it is written.
struct Reply(mpsc::Receiver<Piece>);

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
