//! Forwarding of MCP requests to the gateway.
//!
//! Invariant: a call that may have reached a device is not sent again.

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
    http_client::{HttpClient, HttpError, HttpRequest, HttpResponse},
};

/// Protocol revision of stdio sessions.
pub(super) const REVISION: &str = "2025-11-25";
/// Time to retry while the gateway is unreachable.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum delay between two attempts.
const MAX_RETRY_BACKOFF: Duration = Duration::from_millis(500);
/// Timeout of a tool call; longer than any call.
const CALL_TIMEOUT: Duration = Duration::from_secs(330);
/// Timeout of other requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(45);

/// An MCP endpoint of a gateway with a credential.
pub(crate) struct Gateway {
    http: HttpClient,
    path: String,
    headers: HeaderMap,
}

/// A problem document.
#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    detail: String,
}

impl Gateway {
    /// Creates a client of the endpoint at `path`.
    ///
    /// # Errors
    /// When a header cannot carry the key.
    pub(crate) fn new(http: HttpClient, key: &SecretString, path: String) -> Result<Self, Failure> {
        let credential = format!("Bearer {}", key.expose_secret());
        let mut credential = HeaderValue::from_str(&credential)
            .map_err(|_| Failure::usage("--api-key: the key contains invalid characters"))?;
        credential.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, credential);
        let revision = HeaderValue::from_static(REVISION);
        headers.insert("mcp-protocol-version", revision);
        Ok(Self {
            http,
            path,
            headers,
        })
    }

    /// Forwards a request and returns the response. Notifications that precede it go to `out`.
    pub(super) async fn forward(&self, request: &Request, out: &mpsc::Sender<String>) -> String {
        let deadline = Instant::now() + RETRY_TIMEOUT;
        loop {
            match self.exchange(request, out).await {
                Ok(response) => return response,
                Err(HttpError::NotSent(error)) if Instant::now() < deadline => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "the gateway is unreachable; retrying"
                    );
                    tokio::time::sleep(retry_delay()).await;
                }
                // Other requests are safe to repeat.
                Err(HttpError::Broken(_)) if !request.is_call() && Instant::now() < deadline => {
                    tokio::time::sleep(retry_delay()).await;
                }
                Err(error) => return failure_response(request, &error),
            }
        }
    }

    async fn exchange(
        &self,
        request: &Request,
        out: &mpsc::Sender<String>,
    ) -> Result<String, HttpError> {
        let body = json!({
            "jsonrpc": "2.0", "id": request.id, "method": request.method,
            "params": request.params.as_deref(),
        });
        let mut headers = self.headers.clone();
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, both);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let http_request = HttpRequest {
            method: Method::POST,
            path: &self.path,
            headers,
            body: without_null_params(body),
            timeout: if request.is_call() {
                CALL_TIMEOUT
            } else {
                REQUEST_TIMEOUT
            },
        };
        let mut response = self.http.open(http_request).await?;
        if is_stream(&response) {
            return relay(request, response, out).await;
        }
        let body_bytes = response.read_to_end().await?;
        translate(request, &response, &body_bytes)
    }

    /// Opens the notification stream.
    pub(super) async fn listen(&self) -> Result<Events, HttpError> {
        let mut headers = self.headers.clone();
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        let http_request = HttpRequest {
            method: Method::GET,
            path: &self.path,
            headers,
            body: Vec::new(),
            timeout: RETRY_TIMEOUT,
        };
        let response = self.http.open(http_request).await?;
        if response.status != StatusCode::OK || !is_stream(&response) {
            let status = response.status;
            return Err(HttpError::Broken(anyhow!("the gateway returned {status}")));
        }
        Ok(Events::new(response))
    }
}

/// Forwards notifications until the response arrives.
async fn relay(
    request: &Request,
    response: HttpResponse,
    out: &mpsc::Sender<String>,
) -> Result<String, HttpError> {
    let mut events = Events::new(response);
    while let Some(event) = events.next().await? {
        let event = event.data;
        if !message::is_notification(&event) {
            return request.id.response_line(&event).ok_or_else(no_response);
        }
        // Fails if the output has closed; then reading stops as well.
        let _ = out.send(message::to_single_line(&event)).await;
    }
    Err(no_response())
}

fn no_response() -> HttpError {
    HttpError::Broken(anyhow!("the gateway closed the stream without a response"))
}

/// Full jitter: clients do not reconnect in step when a gateway restarts.
fn retry_delay() -> Duration {
    MAX_RETRY_BACKOFF.mul_f64(rand::rng().random())
}

/// JSON-RPC allows absent params, but not null.
fn without_null_params(mut message: Value) -> Vec<u8> {
    if let Some(members) = message.as_object_mut()
        && members.get("params").is_some_and(Value::is_null)
    {
        members.remove("params");
    }
    message.to_string().into_bytes()
}

fn is_stream(response: &HttpResponse) -> bool {
    let kind = response.headers.get(header::CONTENT_TYPE);
    kind.and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Converts a response of the gateway into the response of this session.
fn translate(request: &Request, response: &HttpResponse, body: &[u8]) -> Result<String, HttpError> {
    if let Some(response) = request.id.response_line(&String::from_utf8_lossy(body)) {
        return Ok(response);
    }
    if response.status.is_success() {
        return Err(no_response());
    }
    let detail =
        serde_json::from_slice::<Problem>(body).map_or(String::new(), |problem| problem.detail);
    let status = response.status;
    let (code, data) = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = response.headers.get(header::RETRY_AFTER);
            let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
            let waits_ms = seconds.unwrap_or(1).saturating_mul(1_000);
            (
                Code::Overloaded,
                Some(json!({"retry_after_ms": waits_ms, "delivered": "no"})),
            )
        }
        _ => (Code::InternalError, None),
    };
    let detail = format!("the gateway returned {status}: {detail}");
    Ok(message::refusal_with(
        Some(&request.id),
        code,
        &detail,
        data,
    ))
}

/// Returns the response for a request that the gateway did not answer.
pub(super) fn failure_response(request: &Request, error: &HttpError) -> String {
    let (outcome, delivered) = match error {
        HttpError::NotSent(_) => (None, "no"),
        HttpError::Broken(_) => (Some("lost"), "unknown"),
    };
    if !request.is_call() {
        let detail = format!("the gateway did not respond: {error}");
        return message::refusal(Some(&request.id), Code::InternalError, &detail);
    }
    let detail = match error {
        HttpError::NotSent(error) => {
            format!("The gateway is unreachable; nothing was sent, and a retry is safe: {error:#}.")
        }
        HttpError::Broken(error) => {
            format!("The connection to the gateway failed; the device may have acted: {error:#}.")
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
