//! A minimal MCP client that exposes headers and all messages.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::test_gateway::{TEST_TIMEOUT, TestGateway};

/// The endpoint of the device in these tests.
pub(crate) const DEVICE: &str = "/mcp/devices/toy-1";
/// The services of that device.
pub(crate) const TOOLS: &str = r#"{
    "echo": {"description": "回声", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
    "现在几点": {"description": "时间", "output": {"type": "string"}},
    "fail": {}, "invalid": {}, "talk": {}, "picture": {}, "silent": {}, "lost": {}
}"#;

pub(crate) fn names(result: &Value) -> Vec<&str> {
    let tools = result["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

pub(crate) const STATELESS: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// The response to one request.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    /// Notifications first, the response last.
    pub(crate) messages: Vec<Value>,
}

impl Exchange {
    /// The response.
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

/// A request of the stateless revision.
pub(crate) fn modern(
    gateway: &TestGateway,
    path: &str,
    method: &str,
    params: Value,
) -> RequestBuilder {
    modern_with(gateway, path, method, params, json!({}))
}

/// As [`modern`], with further members in `_meta`.
pub(crate) fn modern_with(
    gateway: &TestGateway,
    path: &str,
    method: &str,
    mut params: Value,
    mut meta: Value,
) -> RequestBuilder {
    let more = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
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
        gateway,
        path,
        STATELESS,
        &json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}),
    )
    .header("mcp-method", method);
    match name {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

/// A request of a revision with a handshake, as sent after it.
pub(crate) fn legacy(
    gateway: &TestGateway,
    path: &str,
    method: &str,
    params: Value,
) -> RequestBuilder {
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    post(gateway, path, LEGACY, &message)
}

pub(crate) fn post(
    gateway: &TestGateway,
    path: &str,
    version: &str,
    message: &Value,
) -> RequestBuilder {
    gateway
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

/// Opens the notification stream of a revision with a handshake.
pub(crate) fn get(gateway: &TestGateway, path: &str) -> RequestBuilder {
    let request = gateway.request(Method::GET, path);
    request
        .header("accept", "text/event-stream")
        .header("mcp-protocol-version", LEGACY)
}

/// Opens a subscription of the stateless revision.
pub(crate) fn listen(gateway: &TestGateway, path: &str, notifications: Value) -> RequestBuilder {
    let wanted = json!({ "notifications": notifications });
    modern(gateway, path, "subscriptions/listen", wanted)
}

/// Replaces the credential of a request.
pub(crate) fn with_credential(request: RequestBuilder, credential: &str) -> RequestBuilder {
    let (client, request) = request.build_split();
    let mut request = request.unwrap();
    let bearer = format!("Bearer {credential}").parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    RequestBuilder::from_parts(client, request)
}

/// A stream of messages without a defined end.
pub(crate) struct Stream {
    response: reqwest::Response,
    unread: String,
}

impl Stream {
    /// The stream of a revision with a handshake.
    pub(crate) async fn get(gateway: &TestGateway, path: &str) -> Self {
        Self::open(get(gateway, path)).await
    }

    /// A subscription of the stateless revision, after its acknowledgement.
    pub(crate) async fn listen(gateway: &TestGateway, path: &str, notifications: Value) -> Self {
        let mut stream = Self::open(listen(gateway, path, notifications)).await;
        let acknowledged = "notifications/subscriptions/acknowledged";
        assert_eq!(stream.next_method().await, acknowledged);
        stream
    }

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
        tokio::time::timeout(TEST_TIMEOUT, self.read())
            .await
            .unwrap()
            .unwrap()
    }

    /// The method of the next message.
    pub(crate) async fn next_method(&mut self) -> String {
        self.next().await["method"].as_str().unwrap().to_owned()
    }

    /// The next message, or `None` if none arrives within this time.
    pub(crate) async fn next_within(&mut self, time: Duration) -> Option<Value> {
        let next = tokio::time::timeout(time, self.read()).await;
        next.ok().map(Option::unwrap)
    }

    /// Reads until the stream ends properly.
    pub(crate) async fn end(&mut self, within: Duration) {
        let rest = async { while self.read().await.is_some() {} };
        tokio::time::timeout(within, rest).await.unwrap();
    }

    /// The next message, or `None` at the end. Cancel-safe.
    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.unread.split_once('\n') {
                let data = line.strip_prefix("data:").map(str::trim);
                let data = data.filter(|data| !data.is_empty());
                let message = data.map(|data| serde_json::from_str(data).unwrap());
                self.unread = rest.to_owned();
                if message.is_some() {
                    return message;
                }
                continue;
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.unread.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}
