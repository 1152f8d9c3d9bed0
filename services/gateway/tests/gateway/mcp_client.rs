//! A minimal MCP client that shows everything that came over HTTP.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::stage::{LONG, Stage};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// What came back for one request.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    /// Notifications first, the answer last.
    pub(crate) messages: Vec<Value>,
}

impl Exchange {
    /// The answer.
    pub(crate) fn last(&self) -> &Value {
        self.messages.last().unwrap()
    }

    pub(crate) fn result(&self) -> &Value {
        let result = &self.last()["result"];
        assert!(result.is_object(), "{self:?}");
        result
    }

    pub(crate) fn error_code(&self) -> i64 {
        let code = &self.last()["error"]["code"];
        assert!(code.is_i64(), "{self:?}");
        code.as_i64().unwrap()
    }

    pub(crate) fn notifications(&self) -> &[Value] {
        &self.messages[..self.messages.len() - 1]
    }
}

/// A request of the newest revision, with what that one brings along.
pub(crate) fn modern(stage: &Stage, path: &str, method: &str, params: Value) -> RequestBuilder {
    modern_with(stage, path, method, params, json!({}))
}

/// The same with more in its `_meta`.
pub(crate) fn modern_with(
    stage: &Stage,
    path: &str,
    method: &str,
    mut params: Value,
    mut meta: Value,
) -> RequestBuilder {
    let more = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let meta = meta.as_object_mut().unwrap();
    meta.extend(more.as_object().unwrap().clone());
    meta.entry("io.modelcontextprotocol/clientCapabilities")
        .or_insert(json!({}));
    params["_meta"] = Value::Object(meta.clone());
    let name = params
        .get("name")
        .or(params.get("uri"))
        .and_then(Value::as_str);
    let name = name.map(str::to_owned);
    let request = post(
        stage,
        path,
        MODERN,
        &json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}),
    )
    .header("mcp-method", method);
    match name {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

/// A request of the revision before, after its handshake.
pub(crate) fn legacy(stage: &Stage, path: &str, method: &str, params: Value) -> RequestBuilder {
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    post(stage, path, LEGACY, &message)
}

pub(crate) fn post(stage: &Stage, path: &str, version: &str, message: &Value) -> RequestBuilder {
    stage
        .request(Method::POST, path)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", version)
        .body(message.to_string())
}

pub(crate) async fn exchange(request: RequestBuilder) -> Exchange {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let text = response.text().await.unwrap();
    let is_stream = headers
        .get("content-type")
        .is_some_and(|kind| kind.to_str().unwrap().starts_with("text/event-stream"));
    let messages = if is_stream {
        let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let lines = lines.map(str::trim).filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    } else if text.is_empty() {
        Vec::new()
    } else {
        vec![serde_json::from_str(&text).unwrap_or(Value::String(text))]
    };
    Exchange {
        status,
        headers,
        messages,
    }
}

/// Opens a stream of notifications in the revisions with a handshake.
pub(crate) fn get(stage: &Stage, path: &str) -> RequestBuilder {
    let request = stage.request(Method::GET, path);
    request
        .header("accept", "text/event-stream")
        .header("mcp-protocol-version", LEGACY)
}

/// A stream of messages that does not end by itself.
pub(crate) struct Stream {
    response: reqwest::Response,
    unread: String,
}

impl Stream {
    pub(crate) async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            unread: String::new(),
        }
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        tokio::time::timeout(LONG, async {
            loop {
                if let Some((line, rest)) = self.unread.split_once('\n') {
                    let data = line
                        .strip_prefix("data:")
                        .map(str::trim)
                        .unwrap_or_default();
                    let message = (!data.is_empty()).then(|| serde_json::from_str(data).unwrap());
                    self.unread = rest.to_owned();
                    if let Some(message) = message {
                        return message;
                    }
                    continue;
                }
                let chunk = self.response.chunk().await.unwrap();
                let chunk = chunk.unwrap();
                self.unread.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        })
        .await
        .unwrap()
    }
}
