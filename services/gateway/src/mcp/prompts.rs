//! Templates and NPCs as MCP prompts: listed, rendered and completed.

use std::collections::BTreeMap;

use rmcp::{
    ErrorData, RoleServer,
    model::{
        ArgumentInfo, CompletionInfo, ContentBlock, GetPromptRequestParams, GetPromptResponse,
        GetPromptResult, InputResponses, Prompt, PromptArgument, PromptMessage, Role,
    },
    service::RequestContext,
};
use serde_json::{Map, Value, json};
use switchboard_catalog::{
    ListedPrompt, MAX_ATTACHED_BYTES, PromptContent, PromptMessage as TemplateMessage, PromptRole,
    RenderError, WholePrompt,
};
use switchboard_protocol::id::PictureId;
use switchboard_runtime::paging::Limit;
use switchboard_store::{Picture, Resource, ResourceBody};

use super::{
    readable::{Page, ReadScope, paginate, unavailable},
    resources::{self, pictures},
    tools::elicitation::{self, Elicitation, ElicitationError},
    transport::{auth::ClientContext, binding::Binding, protocol_version::is_stateless},
};
use crate::Gateway;

/// Prompts on one page.
const PAGE_LIMIT: Limit = Limit::fixed(100);

pub(super) async fn list(
    gateway: &Gateway,
    client: &ClientContext,
    cursor: Option<&str>,
) -> Result<Page<Prompt>, ErrorData> {
    let found = match client.readable() {
        None => return Ok(Page::empty()),
        Some(ReadScope::Org(org)) => {
            let found = gateway
                .store
                .list_prompts(org, cursor, PAGE_LIMIT.fetch_count())
                .await;
            found.map_err(|error| unavailable(&error))?
        }
        Some(ReadScope::Npc(npc)) => {
            let listed = npc.prompt().listed;
            let after_cursor = cursor.is_none_or(|cursor| *listed.name > *cursor);
            after_cursor.then_some(listed).into_iter().collect()
        }
    };
    Ok(paginate(
        found,
        PAGE_LIMIT,
        |prompt| prompt.name.clone(),
        prompt,
    ))
}

fn prompt(listed: ListedPrompt) -> Prompt {
    let arguments = listed.arguments.into_iter().map(|argument| {
        let mut shown = PromptArgument::new(argument.name).with_required(argument.required);
        shown.title = argument.title;
        shown.description = argument.description;
        shown
    });
    let arguments: Vec<_> = arguments.collect();
    let arguments = (!arguments.is_empty()).then_some(arguments);
    Prompt::new(listed.name, listed.description, arguments).with_title(listed.title)
}

pub(super) async fn get(
    gateway: &Gateway,
    client: &ClientContext,
    request: GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, ErrorData> {
    let scope = client.readable().ok_or_else(|| unknown(&request.name))?;
    let prompt = find(gateway, scope, &request.name).await?;
    let mut values = string_values(request.arguments.unwrap_or_default())?;
    add_responses(&prompt, request.input_responses.as_ref(), &mut values)?;
    if let Some(elicitation) = missing_values(&prompt, &values, context) {
        let binding = Binding::new(client, "prompts/get", &request.name, b"");
        let (sealer, store) = (&gateway.mcp.sealer, &gateway.store);
        let capabilities = context.client_capabilities().unwrap_or_default();
        let required = elicitation.request(sealer, store, &binding, &capabilities);
        return match required.await {
            Ok(required) => Ok(required.into()),
            Err(ElicitationError::Refused(error)) => Err(error),
            Err(ElicitationError::Invalid(reason)) => Err(ErrorData::internal_error(reason, None)),
        };
    }
    let rendered = prompt.render(&values);
    let rendered = rendered.map_err(|error| invalid_values(&error))?;
    let messages = messages(gateway, scope, rendered, context).await?;
    let mut result = GetPromptResult::new(messages);
    result.description = prompt.listed.description;
    Ok(result.into())
}

/// Completions of an argument: the author's values with the prefix that the client sent.
pub(super) async fn complete(
    gateway: &Gateway,
    client: &ClientContext,
    name: &str,
    argument: &ArgumentInfo,
) -> Result<CompletionInfo, ErrorData> {
    let scope = client.readable().ok_or_else(|| unknown(name))?;
    let prompt = find(gateway, scope, name).await?;
    let arguments = prompt.listed.arguments.into_iter();
    let values = arguments
        .filter(|declared| declared.name == argument.name)
        .flat_map(|declared| declared.values)
        .filter(|value| value.starts_with(&argument.value))
        .take(CompletionInfo::MAX_VALUES)
        .collect();
    CompletionInfo::with_all_values(values).map_err(|error| ErrorData::internal_error(error, None))
}

async fn find(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    name: &str,
) -> Result<WholePrompt, ErrorData> {
    let found = match scope {
        ReadScope::Org(org) => {
            let found = gateway.store.prompt_by_name(org, name).await;
            found.map_err(|error| unavailable(&error))?
        }
        ReadScope::Npc(npc) => (npc.prompt_name() == name).then(|| npc.prompt()),
    };
    found.ok_or_else(|| unknown(name))
}

/// The values of a prompt must be strings. (MCP, server/prompts.)
fn string_values(arguments: Map<String, Value>) -> Result<BTreeMap<String, String>, ErrorData> {
    arguments
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(value) => Ok((name, value)),
            _ => {
                let detail = format!("the argument `{name}` of a prompt must be a string");
                Err(ErrorData::invalid_params(detail, None))
            }
        })
        .collect()
}

/// Adds the user's responses to an earlier elicitation.
fn add_responses(
    prompt: &WholePrompt,
    responses: Option<&InputResponses>,
    values: &mut BTreeMap<String, String>,
) -> Result<(), ErrorData> {
    let Some(responses) = responses else {
        return Ok(());
    };
    elicitation::check_responses(responses)?;
    for argument in &prompt.listed.arguments {
        let Some(response) = responses.get(&argument.name) else {
            continue;
        };
        match (&response["action"], &response["content"][&argument.name]) {
            (Value::String(action), Value::String(value)) if action == "accept" => {
                values.insert(argument.name.clone(), value.clone());
            }
            (Value::String(action), _) if action == "decline" || action == "cancel" => {
                let detail = format!("the user did not enter a value for `{}`", argument.name);
                return Err(ErrorData::invalid_params(detail, None));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The elicitation of missing values, if the client supports it.
fn missing_values(
    prompt: &WholePrompt,
    values: &BTreeMap<String, String>,
    context: &RequestContext<RoleServer>,
) -> Option<Elicitation> {
    let capabilities = context.client_capabilities()?;
    if !is_stateless(context) || capabilities.elicitation.is_none() {
        return None;
    }
    let missing = prompt.listed.arguments.iter();
    let missing =
        missing.filter(|argument| argument.required && !values.contains_key(&argument.name));
    let requests: Map<String, Value> = missing
        .filter_map(|argument| {
            let question = argument.question.as_ref()?;
            let mut schema = json!({"type": "string"});
            if let Some(title) = &argument.title {
                schema["title"] = title.as_str().into();
            }
            if let Some(description) = &argument.description {
                schema["description"] = description.as_str().into();
            }
            let request = json!({"method": "elicitation/create", "params": {
                "message": question,
                "requestedSchema": {
                    "type": "object",
                    "properties": {argument.name.as_str(): schema},
                    "required": [argument.name],
                },
            }});
            Some((argument.name.clone(), request))
        })
        .collect();
    (!requests.is_empty()).then(|| Elicitation::stateless(requests))
}

/// A message whose picture has not been read yet.
struct PendingMessage {
    role: Role,
    content: PendingContent,
}

enum PendingContent {
    Text(String),
    Picture(Picture),
    Resource(Resource),
}

impl PendingMessage {
    async fn load(
        gateway: &Gateway,
        scope: ReadScope<'_>,
        message: TemplateMessage,
    ) -> Result<Self, ErrorData> {
        let role = match message.role {
            PromptRole::User => Role::User,
            PromptRole::Assistant => Role::Assistant,
        };
        let content = match message.content {
            PromptContent::Text { text } => PendingContent::Text(text),
            PromptContent::Image { picture_id } => {
                PendingContent::Picture(picture(gateway, scope, picture_id).await?)
            }
            PromptContent::Resource { uri } => {
                PendingContent::Resource(resources::find(gateway, scope, &uri).await?)
            }
        };
        Ok(Self { role, content })
    }

    /// Bytes of its picture, and of all embedded content.
    fn bytes(&self) -> (u64, u64) {
        match &self.content {
            // The text of a prompt has a limit of its own.
            PendingContent::Text(_) => (0, 0),
            PendingContent::Picture(Picture { size_bytes, .. })
            | PendingContent::Resource(Resource {
                body: ResourceBody::Picture { size_bytes, .. },
                ..
            }) => {
                let bytes = u64::try_from(*size_bytes).unwrap_or_default();
                (bytes, bytes)
            }
            PendingContent::Resource(Resource {
                body: ResourceBody::Text(text),
                ..
            }) => (0, u64::try_from(text.len()).unwrap_or(u64::MAX)),
        }
    }

    /// Reads the picture, whose bytes must have been reserved.
    async fn read(self, gateway: &Gateway) -> Result<PromptMessage, ErrorData> {
        let content = match self.content {
            PendingContent::Text(text) => ContentBlock::text(text),
            PendingContent::Picture(picture) => {
                let data = pictures::read_base64(gateway, &picture.key()).await?;
                ContentBlock::image(data, picture.mime_type)
            }
            PendingContent::Resource(found) => {
                ContentBlock::resource(resources::contents(gateway, found).await?)
            }
        };
        Ok(PromptMessage::new(self.role, content))
    }
}

/// The messages with their embedded content. Pictures are read only when the total size is known to
/// be within the limit.
async fn messages(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    rendered: Vec<TemplateMessage>,
    context: &RequestContext<RoleServer>,
) -> Result<Vec<PromptMessage>, ErrorData> {
    let mut pending = Vec::with_capacity(rendered.len());
    let (mut picture_bytes, mut total_bytes) = (0_u64, 0_u64);
    for message in rendered {
        let message = PendingMessage::load(gateway, scope, message).await?;
        let (picture, all) = message.bytes();
        picture_bytes = picture_bytes.saturating_add(picture);
        total_bytes = total_bytes.saturating_add(all);
        if total_bytes > MAX_ATTACHED_BYTES {
            let detail = format!(
                "with these values the pictures and resources of the prompt exceed {MAX_ATTACHED_BYTES} bytes"
            );
            return Err(ErrorData::invalid_params(detail, None));
        }
        pending.push(message);
    }
    let budget = &gateway.mcp.picture_budget;
    budget.reserve(scope.org(), picture_bytes, context).await?;
    let mut messages = Vec::with_capacity(pending.len());
    for message in pending {
        messages.push(message.read(gateway).await?);
    }
    Ok(messages)
}

async fn picture(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    id: PictureId,
) -> Result<Picture, ErrorData> {
    let found = gateway.store.picture(scope.org().into(), id).await;
    found.map_err(|error| unavailable(&error))?.ok_or_else(|| {
        let detail = format!("the prompt refers to the picture {id}, which no longer exists");
        ErrorData::internal_error(detail, None)
    })
}

fn unknown(name: &str) -> ErrorData {
    let detail = format!("there is no prompt {name:?}; see prompts/list");
    ErrorData::invalid_params(detail, None)
}

fn invalid_values(error: &RenderError) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}
