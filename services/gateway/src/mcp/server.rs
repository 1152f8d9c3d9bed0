//! The requests of the protocol, each answered from what it brings along.
//! Never: anything remembered between two requests of a client.
#![expect(
    deprecated,
    reason = "logging left the newest revision, and clients of the older ones still use it"
)]

use std::{borrow::Cow, sync::Arc};

use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult,
        ErrorCode, Implementation, InitializeRequestParams, ListToolsResult,
        PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
        SetLevelRequestParams, SubscriptionFilter, SubscriptionsListenRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{access::Visit, era, listing, subscription, tool_call};
use crate::Gateway;

/// How long a client may keep a list, in milliseconds. Short: listeners are told at once, others are not.
pub(super) const LIST_TTL_MS: u64 = 5_000;

/// One gateway as an MCP server; cheap to clone.
#[derive(Clone)]
pub(super) struct Server {
    gateway: Arc<Gateway>,
}

impl Server {
    pub(super) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway }
    }
}

fn fault_in<P: DeserializeOwned>(params: Value) -> Option<String> {
    serde_json::from_value::<P>(params)
        .err()
        .map(|error| error.to_string())
}

/// Who sent a request and to which endpoint; the gate in front put it there.
pub(super) fn visit(context: &RequestContext<RoleServer>) -> Result<&Visit, ErrorData> {
    let parts = context.extensions.get::<Parts>();
    parts
        .and_then(|parts| parts.extensions.get::<Visit>())
        .ok_or_else(|| ErrorData::internal_error("the request came in past the gate", None))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let implementation = Implementation::new("switchboard", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(implementation)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        era::served()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let visit = visit(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        let page = listing::tools(&self.gateway, visit, cursor.as_deref()).await?;
        let mut result = ListToolsResult::with_all_items(page.tools);
        result.next_cursor = page.next_cursor;
        if era::is_modern(&context) {
            result.ttl_ms = Some(LIST_TTL_MS);
            result.cache_scope = Some(CacheScope::Private);
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let visit = visit(&context)?;
        tool_call::perform(&self.gateway, visit, request, &context).await
    }

    /// No session keeps the level: a client of an older revision is sent `info` and above.
    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if era::is_modern(&context) {
            return Err(ErrorData::method_not_found::<
                rmcp::model::SetLevelRequestMethod,
            >());
        }
        Ok(())
    }

    /// A method that is served here comes this way only when its params are not what they should be.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.unwrap_or_default();
        let fault = match request.method.as_str() {
            "initialize" => fault_in::<InitializeRequestParams>(params),
            "tools/call" => fault_in::<CallToolRequestParams>(params),
            "tools/list" => fault_in::<PaginatedRequestParams>(params),
            "logging/setLevel" => fault_in::<SetLevelRequestParams>(params),
            "subscriptions/listen" => fault_in::<SubscriptionsListenRequestParams>(params),
            _ => None,
        };
        Err(match fault {
            Some(fault) => {
                let detail = format!("the params of {} do not fit: {fault}", request.method);
                ErrorData::invalid_params(detail, None)
            }
            None => {
                let detail = format!("there is no method {:?} here", request.method);
                ErrorData::new(ErrorCode::METHOD_NOT_FOUND, detail, None)
            }
        })
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let visit = visit(context.request_context())?;
        subscription::run(&self.gateway, visit, &context).await;
        Ok(())
    }
}
