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
        CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
        CompletionInfo, CustomRequest, CustomResult, DiscoverResult, ErrorCode,
        GetPromptRequestParams, GetPromptResponse, Implementation, InitializeRequestParams,
        InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
        ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
        SubscriptionFilter, SubscriptionsListenRequestParams, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tracing::Instrument as _;

use super::{
    access::Visit, era, knowledge::Readable, listing, npc, prompts, resources, subscription,
    tool_call, trace,
};
use crate::Gateway;

/// How long a client may keep what it read, in milliseconds. Short: listeners are told at once, others are not.
const TTL_MS: u64 = 5_000;
/// What a list's `_meta` says when devices that sleep are missing in it.
const INCOMPLETE: &str = "switchboard/incomplete";

/// One gateway as an MCP server; cheap to clone.
#[derive(Clone)]
pub(super) struct Server {
    gateway: Arc<Gateway>,
    /// Whether those who ask have the scope `read`: what they are told of is decided where nothing else of them is known.
    reads: bool,
}

impl Server {
    pub(super) fn new(gateway: Arc<Gateway>, reads: bool) -> Self {
        Self { gateway, reads }
    }
}

/// How long an answer may be kept, and by whom; older revisions have no words for it.
fn freshness(context: &RequestContext<RoleServer>) -> (Option<u64>, Option<CacheScope>) {
    if era::is_modern(context) {
        (Some(TTL_MS), Some(CacheScope::Private))
    } else {
        (None, None)
    }
}

/// Says who is at the other end, to those who may read that.
fn introduce(visit: &Visit, info: &mut ServerConfig) {
    if let Some(Readable::OfNpc(npc)) = visit.reads() {
        npc::introduce(npc, info);
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
        era::served()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut info = self.negotiate_initialize(&request)?;
        introduce(visit(&context)?, &mut info);
        Ok(info)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut info = self.get_info();
        introduce(visit(&context)?, &mut info);
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, info))
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
        (result.ttl_ms, result.cache_scope) = freshness(&context);
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
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let visit = visit(&context)?;
        let span = trace::of_call(&request, &context);
        let performing = trace::Performing::begin(&span);
        let ended = tool_call::perform(&self.gateway, visit, request, &context)
            .instrument(span)
            .await;
        performing.end(&ended);
        ended
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let page = prompts::list(&self.gateway, visit(&context)?, cursor.as_deref()).await?;
        let mut result = ListPromptsResult::with_all_items(page.items);
        result.next_cursor = page.next_cursor;
        (result.ttl_ms, result.cache_scope) = freshness(&context);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&self.gateway, visit(&context)?, request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let visit = visit(&context)?;
        let completion = match &request.r#ref {
            Reference::Prompt(prompt) => {
                prompts::complete(&self.gateway, visit, &prompt.name, &request.argument).await?
            }
            Reference::Resource(template) => {
                let (argument, context) = (&request.argument, request.context.as_ref());
                let (gateway, template) = (&self.gateway, &template.uri);
                resources::complete(gateway, visit, template, argument, context).await?
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
        let page = resources::list(&self.gateway, visit(&context)?, cursor.as_deref()).await?;
        let mut result = ListResourcesResult::with_all_items(page.items);
        result.next_cursor = page.next_cursor;
        (result.ttl_ms, result.cache_scope) = freshness(&context);
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let (gateway, visit) = (&self.gateway, visit(&context)?);
        let page = resources::list_templates(gateway, visit, cursor.as_deref()).await?;
        let mut result = ListResourceTemplatesResult::with_all_items(page.items);
        result.next_cursor = page.next_cursor;
        (result.ttl_ms, result.cache_scope) = freshness(&context);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (gateway, visit) = (&self.gateway, visit(&context)?);
        let contents = resources::read(gateway, visit, &request.uri, &context).await?;
        let mut result = ReadResourceResult::new(vec![contents]);
        (result.ttl_ms, result.cache_scope) = freshness(&context);
        Ok(result.into())
    }

    /// No session keeps what a client of an older revision follows: its stream tells of every resource.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::check(&self.gateway, visit(&context)?, &request.uri).await
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
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
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.unwrap_or_default();
        let fault = match request.method.as_str() {
            // Whatever their params are: the newest revision does not have them.
            "initialize" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
                if era::is_modern(&context) =>
            {
                None
            }
            "initialize" => fault_in::<InitializeRequestParams>(params),
            "tools/call" => fault_in::<CallToolRequestParams>(params),
            "tools/list" => fault_in::<PaginatedRequestParams>(params),
            "logging/setLevel" => fault_in::<SetLevelRequestParams>(params),
            "prompts/get" => fault_in::<GetPromptRequestParams>(params),
            "resources/read" => fault_in::<ReadResourceRequestParams>(params),
            "resources/subscribe" => fault_in::<SubscribeRequestParams>(params),
            "resources/unsubscribe" => fault_in::<UnsubscribeRequestParams>(params),
            "completion/complete" => fault_in::<CompleteRequestParams>(params),
            "prompts/list" | "resources/list" | "resources/templates/list" => {
                fault_in::<PaginatedRequestParams>(params)
            }
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
        Some(subscription::audible(requested, self.reads))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        subscription::run(&self.gateway, &context).await
    }
}
