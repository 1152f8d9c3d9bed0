//! An MCP server of the same library as the gateway: one tool, no credentials, no bus, no device.
//! It uses the transport settings of the gateway.

use std::sync::Arc;

use axum::{Router, routing::post_service};
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

use super::PAYLOAD_BYTES;

/// The default of the gateway.
const MAX_BODY_BYTES: usize = 1 << 20;

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

/// The same path as on the gateway, so that both receive the same requests.
pub(super) fn router() -> Router {
    Router::new().route("/mcp/devices/{id}", post_service(service()))
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
