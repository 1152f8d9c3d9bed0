//! The MCP library answering by itself: one tool, no credentials, no bus, no device.
//! Never: a setting of the transport that the gateway does not have.

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

use super::{PAYLOAD_BYTES, say};
use crate::bench::reply::Reply;

/// The gateway's own default.
const BODY_LIMIT_BYTES: usize = 1 << 20;

/// Where it listens.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `HOST:PORT`
    #[arg(long)]
    listen: SocketAddr,
}

/// Its tool says at once what the devices say.
#[derive(Clone)]
struct Answering {
    data: Arc<str>,
}

impl ServerHandler for Answering {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_asked_right = request.name == "echo"
            && request.arguments.is_some_and(|arguments| {
                let text = arguments.get("text");
                text.is_some_and(Value::is_string)
            });
        if !is_asked_right {
            return Err(ErrorData::invalid_params("echo wants a text", None));
        }
        let said = ContentBlock::text(&*self.data);
        Ok(CallToolResult::success(vec![said]).into())
    }
}

/// Serves until stdin ends, on every core as the gateway does.
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
        // A socket that refuses the option is one whose client has left already.
        let _ = stream.set_nodelay(true);
    });
    // The path of a gateway, so that both are sent the same requests.
    let router = Router::new().route("/mcp/devices/{id}", post_service(service()));
    say(&Reply::default())?;
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        ended = commands.next_line() => Ok(ended.map(drop)?),
    }
}

fn service() -> StreamableHttpService<Answering, NeverSessionManager> {
    let settings = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(BODY_LIMIT_BYTES)
        .enforce_origin_validation();
    let server = Answering {
        data: "x".repeat(PAYLOAD_BYTES).into(),
    };
    let sessions = Arc::new(NeverSessionManager::default());
    StreamableHttpService::new(move || Ok(server.clone()), sessions, settings)
}
