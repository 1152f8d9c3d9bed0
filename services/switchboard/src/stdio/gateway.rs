//! The gateway behind a conversation on stdin and stdout.
//! Never: a request sent twice that may have reached a device.

use std::time::Duration;

use anyhow::anyhow;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use rand::RngExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::message::{self, Code, Id, Request};
use crate::{
    events::Events,
    exit::Failure,
    site::{Answer, Ask, AskError, Site},
};

/// The revision that is spoken here. (MCP stdio reference.)
pub(super) const REVISION: &str = "2025-11-25";
/// How long a request waits for a gateway that is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts, at most.
const PAUSE: Duration = Duration::from_millis(500);
/// Longer than any call may take.
const LONGEST_CALL: Duration = Duration::from_secs(330);
/// How long the answer to anything else may take.
const LONGEST: Duration = Duration::from_secs(45);

/// One endpoint of a gateway, and the credential for it.
pub(crate) struct Gateway {
    site: Site,
    path: String,
    headers: HeaderMap,
}

/// The members of a problem document that matter here.
#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    detail: String,
}

impl Gateway {
    /// The endpoint at `path`.
    ///
    /// # Errors
    /// When the key cannot stand in a header.
    pub(crate) fn new(site: Site, key: &SecretString, path: String) -> Result<Self, Failure> {
        let credential = format!("Bearer {}", key.expose_secret());
        let mut credential = HeaderValue::from_str(&credential)
            .map_err(|_| Failure::usage("--api-key: a key cannot hold line breaks and the like"))?;
        credential.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, credential);
        let revision = HeaderValue::from_static(REVISION);
        headers.insert("mcp-protocol-version", revision);
        Ok(Self {
            site,
            path,
            headers,
        })
    }

    /// Answers a request with what the gateway says, after what the device says meanwhile.
    pub(super) async fn forward(&self, request: &Request, out: &mpsc::Sender<String>) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.exchange(request, out).await {
                Ok(answer) => return answer,
                Err(AskError::NotSent(error)) if Instant::now() < deadline => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "the gateway cannot be reached; a request waits for it"
                    );
                    tokio::time::sleep(pause()).await;
                }
                // A list can be asked for again whatever became of the first attempt.
                Err(AskError::Broken(_)) if !request.is_call() && Instant::now() < deadline => {
                    tokio::time::sleep(pause()).await;
                }
                Err(error) => return unanswered(request, &error),
            }
        }
    }

    async fn exchange(
        &self,
        request: &Request,
        out: &mpsc::Sender<String>,
    ) -> Result<String, AskError> {
        let body = json!({
            "jsonrpc": "2.0", "id": request.id, "method": request.method,
            "params": request.params.as_deref(),
        });
        let mut headers = self.headers.clone();
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, both);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let ask = Ask {
            method: Method::POST,
            path: &self.path,
            headers,
            body: without_null_params(body),
            within: if request.is_call() {
                LONGEST_CALL
            } else {
                LONGEST
            },
        };
        let mut answer = self.site.open(ask).await?;
        if is_stream(&answer) {
            return relay(request, answer, out).await;
        }
        let whole = answer.whole().await?;
        translate(request, &answer, &whole)
    }

    /// Opens the stream of what changes.
    pub(super) async fn listen(&self) -> Result<Events, AskError> {
        let mut headers = self.headers.clone();
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        let ask = Ask {
            method: Method::GET,
            path: &self.path,
            headers,
            body: Vec::new(),
            within: PATIENCE,
        };
        let answer = self.site.open(ask).await?;
        if answer.status != StatusCode::OK || !is_stream(&answer) {
            let status = answer.status;
            return Err(AskError::Broken(anyhow!("the gateway answered {status}")));
        }
        Ok(Events::of(answer))
    }
}

/// Passes on what is said before the answer, each at once.
async fn relay(
    request: &Request,
    answer: Answer,
    out: &mpsc::Sender<String>,
) -> Result<String, AskError> {
    let mut events = Events::of(answer);
    while let Some(event) = events.next().await? {
        let event = event.data;
        if !message::is_notification(&event) {
            return request.id.answered(&event).ok_or_else(no_answer);
        }
        // Nobody reads any more when this fails, and the loop that reads ends by itself.
        let _ = out.send(message::on_one_line(&event)).await;
    }
    Err(no_answer())
}

fn no_answer() -> AskError {
    AskError::Broken(anyhow!("what the gateway said ended without an answer"))
}

/// Full jitter: clients of a restarted gateway do not come back all at once.
fn pause() -> Duration {
    PAUSE.mul_f64(rand::rng().random())
}

/// JSON-RPC knows absent params, and none that are null.
fn without_null_params(mut message: Value) -> Vec<u8> {
    if let Some(members) = message.as_object_mut()
        && members.get("params").is_some_and(Value::is_null)
    {
        members.remove("params");
    }
    message.to_string().into_bytes()
}

fn is_stream(answer: &Answer) -> bool {
    let kind = answer.headers.get(header::CONTENT_TYPE);
    kind.and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// The gateway's answer as this conversation has it.
fn translate(request: &Request, answer: &Answer, body: &[u8]) -> Result<String, AskError> {
    if let Some(answer) = request.id.answered(&String::from_utf8_lossy(body)) {
        return Ok(answer);
    }
    if answer.status.is_success() {
        return Err(no_answer());
    }
    let detail =
        serde_json::from_slice::<Problem>(body).map_or(String::new(), |problem| problem.detail);
    let status = answer.status;
    let (code, data) = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = answer.headers.get(header::RETRY_AFTER);
            let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
            let waits_ms = seconds.unwrap_or(1).saturating_mul(1_000);
            (
                Code::Overloaded,
                Some(json!({"retry_after_ms": waits_ms, "delivered": "no"})),
            )
        }
        _ => (Code::InternalError, None),
    };
    let detail = format!("the gateway answered {status}: {detail}");
    Ok(message::refusal_with(
        Some(&request.id),
        code,
        &detail,
        data,
    ))
}

/// What became of a request that nobody answered.
pub(super) fn unanswered(request: &Request, error: &AskError) -> String {
    let (outcome, delivered) = match error {
        AskError::NotSent(_) => (None, "no"),
        AskError::Broken(_) => (Some("lost"), "unknown"),
    };
    if !request.is_call() {
        let detail = format!("the gateway cannot be asked: {error}");
        return message::refusal(Some(&request.id), Code::InternalError, &detail);
    }
    let detail = match error {
        AskError::NotSent(error) => format!(
            "The gateway cannot be reached; nothing was sent, and a retry is safe: {error:#}."
        ),
        AskError::Broken(error) => {
            format!("The gateway broke off; the device may have acted: {error:#}.")
        }
    };
    let mut structured = json!({"delivered": delivered, "error": detail});
    if let (Some(outcome), Some(members)) = (outcome, structured.as_object_mut()) {
        members.insert("outcome".to_owned(), outcome.into());
    }
    result(&request.id, &detail, structured)
}

fn result(id: &Id, detail: &str, structured: Value) -> String {
    let result = json!({
        "content": [{"type": "text", "text": detail}], "structuredContent": structured, "isError": true,
    });
    message::success(id, &result)
}
