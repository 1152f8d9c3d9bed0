//! Templates and NPCs as prompts: listed, read with values, completed.
//! Never: a question to a client that cannot be asked one, or an answer without a bound.

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
use switchboard_protocol::id::PictureId;
use switchboard_store::{
    ListedPrompt, Picture, PromptContent, PromptMessage as Written, PromptRole, RenderError,
    Resource, ResourceBody, SHOWN_LIMIT_BYTES, WholePrompt,
};

use super::{
    access::Visit,
    binding::Binding,
    era::is_modern,
    input::{self, Unasked, Wanted},
    knowledge::{Page, Readable, paged, unreadable},
    pictures, resources,
};
use crate::Gateway;

/// Prompts on one page.
const A_PAGE: u32 = 100;

pub(super) async fn list(
    gateway: &Gateway,
    visit: &Visit,
    cursor: Option<&str>,
) -> Result<Page<Prompt>, ErrorData> {
    let found = match visit.reads() {
        None => return Ok(Page::empty()),
        Some(Readable::Of(org)) => {
            let found = gateway.store.list_prompts(org, cursor, A_PAGE + 1).await;
            found.map_err(|error| unreadable(&error))?
        }
        Some(Readable::OfNpc(npc)) => {
            let listed = npc.prompt().listed;
            let behind = cursor.is_none_or(|cursor| *listed.name > *cursor);
            behind.then_some(listed).into_iter().collect()
        }
    };
    Ok(paged(found, A_PAGE, |prompt| prompt.name.clone(), listed))
}

fn listed(prompt: ListedPrompt) -> Prompt {
    let arguments = prompt.arguments.into_iter().map(|argument| {
        let mut shown = PromptArgument::new(argument.name).with_required(argument.required);
        shown.title = argument.title;
        shown.description = argument.description;
        shown
    });
    let arguments: Vec<_> = arguments.collect();
    let arguments = (!arguments.is_empty()).then_some(arguments);
    Prompt::new(prompt.name, prompt.description, arguments).with_title(prompt.title)
}

pub(super) async fn get(
    gateway: &Gateway,
    visit: &Visit,
    request: GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, ErrorData> {
    let readable = visit.reads().ok_or_else(|| unknown(&request.name))?;
    let prompt = find(gateway, readable, &request.name).await?;
    let mut values = values_of(request.arguments.unwrap_or_default())?;
    answers(&prompt, request.input_responses.as_ref(), &mut values)?;
    if let Some(questions) = questions(&prompt, &values, context) {
        let binding = Binding::new(visit, "prompts/get", &request.name, b"");
        let seal = &gateway.mcp.seal;
        let able = context.client_capabilities().unwrap_or_default();
        let asked = seal.ask(&gateway.store, &binding, questions, &able).await;
        return match asked {
            Ok(asked) => Ok(asked.into()),
            Err(Unasked::Refused(error)) => Err(error),
            Err(Unasked::Malformed(why)) => Err(ErrorData::internal_error(why, None)),
        };
    }
    let written = prompt.render(&values).map_err(|error| unfit(&error))?;
    let messages = messages(gateway, readable, written, context).await?;
    let mut result = GetPromptResult::new(messages);
    result.description = prompt.listed.description;
    Ok(result.into())
}

/// Suggestions for an argument's value: what begins as the client began, in the order of the author.
pub(super) async fn complete(
    gateway: &Gateway,
    visit: &Visit,
    name: &str,
    argument: &ArgumentInfo,
) -> Result<CompletionInfo, ErrorData> {
    let readable = visit.reads().ok_or_else(|| unknown(name))?;
    let prompt = find(gateway, readable, name).await?;
    let known = prompt.listed.arguments.into_iter();
    let values = known
        .filter(|known| known.name == argument.name)
        .flat_map(|known| known.values)
        .filter(|value| value.starts_with(&argument.value))
        .take(CompletionInfo::MAX_VALUES)
        .collect();
    CompletionInfo::with_all_values(values).map_err(|error| ErrorData::internal_error(error, None))
}

async fn find(
    gateway: &Gateway,
    readable: Readable<'_>,
    name: &str,
) -> Result<WholePrompt, ErrorData> {
    let found = match readable {
        Readable::Of(org) => {
            let found = gateway.store.prompt_by_name(org, name).await;
            found.map_err(|error| unreadable(&error))?
        }
        Readable::OfNpc(npc) => (npc.prompt_name() == name).then(|| npc.prompt()),
    };
    found.ok_or_else(|| unknown(name))
}

/// Values of a prompt are strings. (MCP, server/prompts.)
fn values_of(arguments: Map<String, Value>) -> Result<BTreeMap<String, String>, ErrorData> {
    arguments
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(value) => Ok((name, value)),
            _ => {
                let detail = format!("the argument `{name}` of a prompt has to be a string");
                Err(ErrorData::invalid_params(detail, None))
            }
        })
        .collect()
}

/// Adds what the user answered to the questions asked before.
fn answers(
    prompt: &WholePrompt,
    responses: Option<&InputResponses>,
    values: &mut BTreeMap<String, String>,
) -> Result<(), ErrorData> {
    let Some(responses) = responses else {
        return Ok(());
    };
    input::check(responses)?;
    for argument in &prompt.listed.arguments {
        let Some(answer) = responses.get(&argument.name) else {
            continue;
        };
        match (&answer["action"], &answer["content"][&argument.name]) {
            (Value::String(action), Value::String(value)) if action == "accept" => {
                values.insert(argument.name.clone(), value.clone());
            }
            (Value::String(action), _) if action == "decline" || action == "cancel" => {
                let detail = format!("the user did not say what `{}` is", argument.name);
                return Err(ErrorData::invalid_params(detail, None));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What the user has to be asked, if the client can ask at all.
fn questions(
    prompt: &WholePrompt,
    values: &BTreeMap<String, String>,
    context: &RequestContext<RoleServer>,
) -> Option<Wanted> {
    let able = context.client_capabilities()?;
    if !is_modern(context) || able.elicitation.is_none() {
        return None;
    }
    let missing = prompt.listed.arguments.iter();
    let missing =
        missing.filter(|argument| argument.required && !values.contains_key(&argument.name));
    let questions: Map<String, Value> = missing
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
    (!questions.is_empty()).then(|| Wanted::questions(questions))
}

/// A message whose picture is not read yet.
struct Found {
    role: Role,
    content: FoundContent,
}

enum FoundContent {
    Text(String),
    Picture(Picture),
    Resource(Resource),
}

impl Found {
    async fn of(
        gateway: &Gateway,
        readable: Readable<'_>,
        written: Written,
    ) -> Result<Self, ErrorData> {
        let role = match written.role {
            PromptRole::User => Role::User,
            PromptRole::Assistant => Role::Assistant,
        };
        let content = match written.content {
            PromptContent::Text { text } => FoundContent::Text(text),
            PromptContent::Image { picture_id } => {
                FoundContent::Picture(picture(gateway, readable, picture_id).await?)
            }
            PromptContent::Resource { uri } => {
                FoundContent::Resource(resources::find(gateway, readable, &uri).await?)
            }
        };
        Ok(Self { role, content })
    }

    /// Bytes of pictures, and all that it shows.
    fn bytes(&self) -> (u64, u64) {
        match &self.content {
            // The author's words have a limit of their own.
            FoundContent::Text(_) => (0, 0),
            FoundContent::Picture(Picture { size_bytes, .. })
            | FoundContent::Resource(Resource {
                body: ResourceBody::Picture { size_bytes, .. },
                ..
            }) => {
                let bytes = u64::try_from(*size_bytes).unwrap_or_default();
                (bytes, bytes)
            }
            FoundContent::Resource(Resource {
                body: ResourceBody::Text(text),
                ..
            }) => (0, u64::try_from(text.len()).unwrap_or(u64::MAX)),
        }
    }

    /// As clients read it. There has to be room for its picture.
    async fn read(self, gateway: &Gateway) -> Result<PromptMessage, ErrorData> {
        let content = match self.content {
            FoundContent::Text(text) => ContentBlock::text(text),
            FoundContent::Picture(picture) => {
                let data = pictures::encoded(gateway, &picture.key()).await?;
                ContentBlock::image(data, picture.mime_type)
            }
            FoundContent::Resource(found) => {
                ContentBlock::resource(resources::contents(gateway, found).await?)
            }
        };
        Ok(PromptMessage::new(self.role, content))
    }
}

/// The messages with all that they show, of which no byte is read from the object store before all of it is known to fit.
async fn messages(
    gateway: &Gateway,
    readable: Readable<'_>,
    written: Vec<Written>,
    context: &RequestContext<RoleServer>,
) -> Result<Vec<PromptMessage>, ErrorData> {
    let mut found = Vec::with_capacity(written.len());
    let (mut of_pictures, mut shown) = (0_u64, 0_u64);
    for message in written {
        let message = Found::of(gateway, readable, message).await?;
        let (pictures, all) = message.bytes();
        of_pictures = of_pictures.saturating_add(pictures);
        shown = shown.saturating_add(all);
        if shown > SHOWN_LIMIT_BYTES {
            let detail = format!(
                "with these values the prompt shows pictures and resources of more than {SHOWN_LIMIT_BYTES} bytes"
            );
            return Err(ErrorData::invalid_params(detail, None));
        }
        found.push(message);
    }
    gateway.mcp.pictures.reserve(of_pictures, context).await?;
    let mut messages = Vec::with_capacity(found.len());
    for message in found {
        messages.push(message.read(gateway).await?);
    }
    Ok(messages)
}

async fn picture(
    gateway: &Gateway,
    readable: Readable<'_>,
    id: PictureId,
) -> Result<Picture, ErrorData> {
    let found = gateway.store.picture(readable.org().into(), id).await;
    found.map_err(|error| unreadable(&error))?.ok_or_else(|| {
        let detail = format!("the prompt shows the picture {id}, which is not there any more");
        ErrorData::internal_error(detail, None)
    })
}

fn unknown(name: &str) -> ErrorData {
    let detail = format!("there is no prompt {name:?}; prompts/list has those that there are");
    ErrorData::invalid_params(detail, None)
}

fn unfit(error: &RenderError) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}
