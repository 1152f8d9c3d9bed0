//! An MCP server of the same library as the gateway: one tool, no credentials, no bus, no device.
//! It uses the transport settings of the gateway.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, routing::post_service, serve::ListenerExt as _};
use clap::Args;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities,
        ServerConfig,
    },
    service::RequestContext,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::never::NeverSessionManager,
    },
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
};

use super::{PAYLOAD_BYTES, write_reply};
use crate::reply::Reply;

/// The default of the gateway.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Listen address of the server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `HOST:PORT`
    #[arg(long)]
    listen: SocketAddr,
}

/// A server whose tool immediately returns the same data as the devices.
#[derive(Clone)]
struct EchoServer {
    data: Arc<str>,
}

impl ServerHandler for EchoServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_valid = request.name == "echo"
            && request.arguments.is_some_and(|arguments| {
                let text = arguments.get("text");
                text.is_some_and(Value::is_string)
            });
        if !is_valid {
            return Err(ErrorData::invalid_params("echo requires a text", None));
        }
        let content = ContentBlock::text(&*self.data);
        Ok(CallToolResult::success(vec![content]).into())
    }
}

/// Serves until stdin reaches end of input, on a multi-threaded runtime like the gateway.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(options));
    runtime.shutdown_background();
    outcome
}

async fn serve(options: &Options) -> anyhow::Result<()> {
    let listener = TcpListener::bind(options.listen).await?;
    let listener = listener.tap_io(|stream| {
        // The option fails only if the client has already disconnected.
        let _ = stream.set_nodelay(true);
    });
    // The same path as on the gateway, so that both receive the same requests.
    let router = Router::new().route("/mcp/devices/{id}", post_service(service()));
    write_reply(&Reply::default())?;
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        ended = commands.next_line() => Ok(ended.map(drop)?),
    }
}

fn service() -> StreamableHttpService<EchoServer, NeverSessionManager> {
    let settings = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_BODY_BYTES)
        .enforce_origin_validation();
    let server = EchoServer {
        data: "x".repeat(PAYLOAD_BYTES).into(),
    };
    let sessions = Arc::new(NeverSessionManager::default());
    StreamableHttpService::new(move || Ok(server.clone()), sessions, settings)
}
