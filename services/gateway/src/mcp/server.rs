//! The implementation of rmcp's server: one method for each request of the protocol.
//!
//! Invariant: nothing is stored between two requests of a client.
#![expect(
    deprecated,
    reason = "logging left the newest revision, and clients of the older ones still use it"
)]

use std::{borrow::Cow, sync::Arc};

use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
        CompletionInfo, CustomRequest, CustomResult, DiscoverResult, ErrorCode,
        GetPromptRequestParams, GetPromptResponse, Implementation, InitializeRequestParams,
        InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
        RequestMetaObject, ServerCapabilities, ServerConfig, SetLevelRequestParams,
        SubscribeRequestParams, SubscriptionFilter, SubscriptionsListenRequestParams,
        UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tracing::Instrument as _;

use super::{
    npc, prompts,
    readable::ReadScope,
    resources,
    subscriptions::subscribe,
    tools::{
        call,
        elicitation::without_settings,
        list,
        trace::{self, CallSpan},
    },
    transport::{
        auth::ClientContext,
        protocol_version::{self, is_stateless},
        reservation::{Reservation, reserve_page},
    },
};
use crate::Gateway;

/// How long a client may cache a result, in milliseconds. Short, because only listeners are
/// notified of changes.
const TTL_MS: u64 = 5_000;
/// The member of `_meta` in a list without the devices that are not connected.
const INCOMPLETE: &str = "switchboard/incomplete";

/// The members of `_meta` that a call needs after its start, besides the capabilities.
const NEEDED_META: [&str; 3] = [
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/logLevel",
];

/// One gateway as an MCP server; cheap to clone.
#[derive(Clone)]
pub(super) struct Server {
    gateway: Arc<Gateway>,
    /// Whether callers have the scope `read`. rmcp filters subscriptions without the request, so
    /// the caller is unknown there.
    can_read: bool,
}

impl Server {
    pub(super) fn new(gateway: Arc<Gateway>, can_read: bool) -> Self {
        Self { gateway, can_read }
    }
}

/// How long a result may be cached, and by whom. Older revisions have no such members.
fn caching(context: &RequestContext<RoleServer>) -> (Option<u64>, Option<CacheScope>) {
    if is_stateless(context) {
        (Some(TTL_MS), Some(CacheScope::Private))
    } else {
        (None, None)
    }
}

/// Adds the persona of the NPC for callers that can read it.
fn describe(client: &ClientContext, info: &mut ServerConfig) {
    if let Some(ReadScope::Npc(npc)) = client.readable() {
        npc::describe(npc, info);
    }
}

fn params_error<P: DeserializeOwned>(params: Value) -> Option<String> {
    serde_json::from_value::<P>(params)
        .err()
        .map(|error| error.to_string())
}

/// Drops what a call does not need of `_meta`, since it may take minutes.
fn keep_needed(meta: &mut RequestMetaObject) {
    let capabilities = meta.client_capabilities();
    meta.retain(|name, value| {
        NEEDED_META.contains(&name.as_str()) && !value.is_object() && !value.is_array()
    });
    if let Some(capabilities) = capabilities {
        meta.set_client_capabilities(without_settings(capabilities));
    }
}

/// The client of a request, which the transport put into its extensions.
fn client(context: &RequestContext<RoleServer>) -> Result<&ClientContext, ErrorData> {
    let parts = context.extensions.get::<Parts>();
    parts
        .and_then(|parts| parts.extensions.get::<ClientContext>())
        .ok_or_else(|| ErrorData::internal_error("the request was not admitted", None))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_completions()
            .build();
        let implementation = Implementation::new("switchboard", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(implementation)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        protocol_version::supported()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut info = self.negotiate_initialize(&request)?;
        describe(client(&context)?, &mut info);
        Ok(info)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut info = self.get_info();
        describe(client(&context)?, &mut info);
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, info))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let client = client(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        let page = list::list(&self.gateway, client, cursor.as_deref()).await?;
        if let Some(permit) = page.permit {
            Reservation::add_page(&context, permit)?;
        }
        let mut result = ListToolsResult::with_all_items(page.tools);
        result.next_cursor = page.next_cursor;
        (result.ttl_ms, result.cache_scope) = caching(&context);
        if page.incomplete {
            let meta = Map::from_iter([(INCOMPLETE.to_owned(), true.into())]);
            result.meta = Some(MetaObject(meta));
            result.ttl_ms = result.ttl_ms.map(|_| 0);
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let span = trace::call_span(&request, &context);
        keep_needed(&mut context.meta);
        let client = client(&context)?;
        let call = CallSpan::new(&span);
        let ended = call::perform(&self.gateway, client, request, &context)
            .instrument(span)
            .await;
        call.end(&ended);
        ended
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let (gateway, client) = (&self.gateway, client(&context)?);
        let page = prompts::list(gateway, client, cursor.as_deref()).await?;
        reserve_page(gateway, client, &page.items, &context)?;
        let mut result = ListPromptsResult::with_all_items(page.items);
        result.next_cursor = page.next_cursor;
        (result.ttl_ms, result.cache_scope) = caching(&context);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&self.gateway, client(&context)?, request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let client = client(&context)?;
        let completion = match &request.r#ref {
            Reference::Prompt(prompt) => {
                prompts::complete(&self.gateway, client, &prompt.name, &request.argument).await?
            }
            Reference::Resource(template) => {
                let (argument, context) = (&request.argument, request.context.as_ref());
                let (gateway, template) = (&self.gateway, &template.uri);
                resources::complete(gateway, client, template, argument, context).await?
            }
            _ => CompletionInfo::default(),
        };
        Ok(CompleteResult::new(completion))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let (gateway, client) = (&self.gateway, client(&context)?);
        let page = resources::list(gateway, client, cursor.as_deref()).await?;
        reserve_page(gateway, client, &page.items, &context)?;
        let mut result = ListResourcesResult::with_all_items(page.items);
        result.next_cursor = page.next_cursor;
        (result.ttl_ms, result.cache_scope) = caching(&context);
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let (gateway, client) = (&self.gateway, client(&context)?);
        let page = resources::list_templates(gateway, client, cursor.as_deref()).await?;
        reserve_page(gateway, client, &page.items, &context)?;
        let mut result = ListResourceTemplatesResult::with_all_items(page.items);
        result.next_cursor = page.next_cursor;
        (result.ttl_ms, result.cache_scope) = caching(&context);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (gateway, client) = (&self.gateway, client(&context)?);
        let contents = resources::read(gateway, client, &request.uri, &context).await?;
        let mut result = ReadResourceResult::new(vec![contents]);
        (result.ttl_ms, result.cache_scope) = caching(&context);
        Ok(result.into())
    }

    /// Subscriptions need no state: the stream of an older revision reports every resource.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::check(&self.gateway, client(&context)?, &request.uri).await
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    /// The level is not stored: a client of an older revision receives `info` and above.
    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_stateless(&context) {
            return Err(ErrorData::method_not_found::<
                rmcp::model::SetLevelRequestMethod,
            >());
        }
        Ok(())
    }

    /// rmcp passes unknown methods, and supported methods with invalid params.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.unwrap_or_default();
        let error = match request.method.as_str() {
            // The stateless revision does not have these methods.
            "initialize" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
                if is_stateless(&context) =>
            {
                None
            }
            "initialize" => params_error::<InitializeRequestParams>(params),
            "tools/call" => params_error::<CallToolRequestParams>(params),
            "tools/list" => params_error::<PaginatedRequestParams>(params),
            "logging/setLevel" => params_error::<SetLevelRequestParams>(params),
            "prompts/get" => params_error::<GetPromptRequestParams>(params),
            "resources/read" => params_error::<ReadResourceRequestParams>(params),
            "resources/subscribe" => params_error::<SubscribeRequestParams>(params),
            "resources/unsubscribe" => params_error::<UnsubscribeRequestParams>(params),
            "completion/complete" => params_error::<CompleteRequestParams>(params),
            "prompts/list" | "resources/list" | "resources/templates/list" => {
                params_error::<PaginatedRequestParams>(params)
            }
            "subscriptions/listen" => params_error::<SubscriptionsListenRequestParams>(params),
            _ => None,
        };
        Err(match error {
            Some(error) => {
                let detail = format!("invalid params of {}: {error}", request.method);
                ErrorData::invalid_params(detail, None)
            }
            None => {
                let detail = format!("unknown method {:?}", request.method);
                ErrorData::new(ErrorCode::METHOD_NOT_FOUND, detail, None)
            }
        })
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(subscribe::permitted(requested, self.can_read))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        subscribe::run(&self.gateway, &context).await
    }
}
