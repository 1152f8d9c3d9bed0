//! Calls tools as an MCP client of revision 2026-07-28 does, one kept-alive connection per worker.
//! Never: an answer that is taken for a success because it came.

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
    closed_loop::{Caller, turn},
    device_name,
    http_connections::{HttpConnections, Server},
};

/// What the newest revision wants with every request, since no handshake has told it before.
const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Where the server is, and whose tools are called.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    /// Devices 0 to this, exclusive, are called in turn
    #[arg(long)]
    devices: u32,
}

/// One tool call, over and over; only its id and its device change.
pub(super) struct McpCaller {
    devices: u32,
    /// What of the body stands behind the id.
    tail: String,
    expected: String,
    last_id: AtomicU64,
    connections: HttpConnections,
}

#[derive(Deserialize)]
struct Answer<'a> {
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
            connections: HttpConnections::to(options.server),
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

    /// An error unless this is the tool's own answer to the request with this id.
    fn check(&self, answer: &str, id: u64) -> anyhow::Result<()> {
        let (head, body) = answer.split_once("\r\n\r\n").context("an endless head")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "the status is not 200");
        let answer: Answer<'_> = serde_json::from_str(body)?;
        ensure!(answer.id == id, "the answer to another request than {id}");
        ensure!(!answer.result.is_error, "the tool failed");
        let as_expected =
            matches!(&answer.result.content[..], [said] if said.text == self.expected);
        ensure!(as_expected, "not what the tool says");
        Ok(())
    }
}

impl Caller for McpCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        let device = turn(worker, sequence, self.devices);
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let request = self.request(device, id);
        let answer = self.connections.ask(worker, &request).await?;
        self.check(&answer, id)
            .with_context(|| format!("answered with {answer}"))
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
    async fn only_the_answer_of_the_tool_counts() {
        let caller = McpCaller::start(options()).await.unwrap();
        let payload = "x".repeat(PAYLOAD_BYTES);
        let check = |status: &str, body: String, holds: bool| {
            let answer = format!("HTTP/1.1 {status}\r\n\r\n{body}");
            assert_eq!(caller.check(&answer, 7).is_ok(), holds, "{answer}");
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
    async fn a_request_declares_its_length() {
        let caller = McpCaller::start(options()).await.unwrap();
        let request = caller.request(0, 12_345);
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        assert!(head.lines().any(|line| line == length), "{request}");
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
