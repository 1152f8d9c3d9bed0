//! Calls tools like an MCP client of protocol revision 2026-07-28, on one keep-alive connection per
//! worker. Every response is parsed and compared with the expected result.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Deserialize;

use super::{
    PAYLOAD_BYTES,
    bus_caller::params,
    closed_loop::{Caller, select_device},
    device_name,
    http_connections::{HttpConnections, Server},
};

/// `_meta` of every request. Revision 2026-07-28 has no handshake and requires it in each request.
const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Address of the server and the devices whose tools are called.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    /// Number of devices to call in turn, starting with device 0
    #[arg(long)]
    devices: u32,
}

/// A caller that repeats one tool call; only the request id and the device change.
pub(super) struct McpCaller {
    devices: u32,
    /// The part of the request body after the id.
    tail: String,
    expected: String,
    last_id: AtomicU64,
    connections: HttpConnections,
}

#[derive(Deserialize)]
struct Response<'a> {
    id: u64,
    #[serde(borrow)]
    result: ToolResult<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(default)]
    is_error: bool,
    #[serde(borrow)]
    content: Vec<Text<'a>>,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl McpCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let arguments = params();
        Ok(Self {
            connections: HttpConnections::new(options.server),
            devices: options.devices,
            tail: format!(
                r#","method":"tools/call","params":{{"name":"echo","arguments":{arguments},"_meta":{META}}}}}"#
            ),
            expected: "x".repeat(PAYLOAD_BYTES),
            last_id: AtomicU64::new(0),
        })
    }

    fn request(&self, device: u32, id: u64) -> String {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id}"#);
        format!(
            "POST /mcp/devices/{} HTTP/1.1\r\n{}content-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: tools/call\r\nmcp-name: echo\r\ncontent-length: {}\r\n\r\n{head}{}",
            device_name(device),
            self.connections.head(),
            head.len() + self.tail.len(),
            self.tail,
        )
    }

    /// Checks that this is the expected tool result for the request with this id.
    fn check(&self, response: &str, id: u64) -> anyhow::Result<()> {
        let (head, body) = response
            .split_once("\r\n\r\n")
            .context("the response head is incomplete")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "the status is not 200");
        let response: Response<'_> = serde_json::from_str(body)?;
        ensure!(
            response.id == id,
            "the response id is {}, expected {id}",
            response.id
        );
        ensure!(!response.result.is_error, "the tool failed");
        let as_expected =
            matches!(&response.result.content[..], [content] if content.text == self.expected);
        ensure!(as_expected, "unexpected tool result");
        Ok(())
    }
}

impl Caller for McpCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        let device = select_device(worker, sequence, self.devices);
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let request = self.request(device, id);
        let response = self.connections.send(worker, &request).await?;
        self.check(&response, id)
            .with_context(|| format!("unexpected response {response}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            server: Server {
                address: ([127, 0, 0, 1], 1).into(),
                api_key: "key".to_owned(),
            },
            devices: 1,
        }
    }

    #[tokio::test]
    async fn response_other_than_expected_result_is_an_error() {
        let caller = McpCaller::start(options()).await.unwrap();
        let payload = "x".repeat(PAYLOAD_BYTES);
        let check = |status: &str, body: String, holds: bool| {
            let response = format!("HTTP/1.1 {status}\r\n\r\n{body}");
            assert_eq!(caller.check(&response, 7).is_ok(), holds, "{response}");
        };
        let result = |id: u64, text: &str, is_error: bool| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}],"isError":{is_error}}}}}"#
            )
        };
        check("200 OK", result(7, &payload, false), true);
        check("429 Too Many Requests", result(7, &payload, false), false);
        check("200 OK", result(8, &payload, false), false);
        check("200 OK", result(7, &payload, true), false);
        check("200 OK", result(7, "offline", false), false);
        let refused = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"no"}}"#;
        check("200 OK", refused.to_owned(), false);
    }

    #[tokio::test]
    async fn request_content_length_matches_body() {
        let caller = McpCaller::start(options()).await.unwrap();
        let request = caller.request(0, 12_345);
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        assert!(head.lines().any(|line| line == length), "{request}");
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
