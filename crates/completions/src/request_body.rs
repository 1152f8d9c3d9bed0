//! The JSON body of a request, in the form of OpenAI's `POST /chat/completions`.
//!
//! Arguments that are no JSON object are sent as `{}`: some providers reject the whole conversation
//! otherwise.

mod ids;

use async_openai::types::chat::{
    ChatCompletionMessageToolCall, ChatCompletionMessageToolCalls,
    ChatCompletionRequestAssistantMessage, ChatCompletionRequestMessage,
    ChatCompletionRequestMessageContentPartImage, ChatCompletionRequestMessageContentPartText,
    ChatCompletionRequestSystemMessage, ChatCompletionRequestToolMessage,
    ChatCompletionRequestUserMessage, ChatCompletionRequestUserMessageContent,
    ChatCompletionRequestUserMessageContentPart, ChatCompletionStreamOptions,
    ChatCompletionToolChoiceOption, CreateChatCompletionRequest, FunctionCall, ImageUrl,
    ToolChoiceOptions,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{Message, Picture, Request, Tool, ToolCall, settings::LimitField};
use ids::Ids;

/// A request, without the parts that depend on the provider.
pub(crate) struct RequestBody<'a> {
    request: &'a Request,
    body: CreateChatCompletionRequest,
}

/// The body with its tools, whose schemas are not parsed.
#[derive(Serialize)]
struct WithTools<'a> {
    #[serde(flatten)]
    body: &'a CreateChatCompletionRequest,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolJson<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct ToolJson<'a> {
    function: FunctionJson<'a>,
}

#[derive(Serialize)]
struct FunctionJson<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a RawValue,
}

/// The parts that depend on the provider.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub provider: &'a str,
    pub model: &'a str,
    pub limit_field: LimitField,
    pub with_temperature: bool,
    pub sees_pictures: bool,
}

impl<'a> RequestBody<'a> {
    pub(crate) fn new(request: &'a Request) -> Self {
        let may_not_call = !request.tools.is_empty() && !request.allows_calls;
        let body = CreateChatCompletionRequest {
            tool_choice: may_not_call.then_some(ChatCompletionToolChoiceOption::Mode(
                ToolChoiceOptions::None,
            )),
            stream: Some(true),
            stream_options: Some(ChatCompletionStreamOptions {
                include_usage: Some(true),
                include_obfuscation: None,
            }),
            ..CreateChatCompletionRequest::default()
        };
        Self { request, body }
    }

    /// Whether the request sets a temperature.
    pub(crate) const fn has_temperature(&self) -> bool {
        self.request.temperature.is_some()
    }

    /// Encodes the request for a provider.
    pub(crate) fn encode(&mut self, target: Target<'_>) -> Result<Bytes, serde_json::Error> {
        let Request {
            messages,
            temperature,
            max_tokens,
            ..
        } = self.request;
        target.model.clone_into(&mut self.body.model);
        let mut ids = Ids::new(target.provider);
        let messages = messages
            .iter()
            .map(|one| message(one, &mut ids, target.sees_pictures));
        self.body.messages = messages.collect();
        self.body.temperature = temperature.filter(|_| target.with_temperature);
        let (old, new) = match target.limit_field {
            LimitField::MaxTokens => (*max_tokens, None),
            LimitField::MaxCompletionTokens => (None, *max_tokens),
        };
        #[expect(deprecated, reason = "most providers support no other")]
        {
            self.body.max_tokens = old;
        }
        self.body.max_completion_tokens = new;
        let with_tools = WithTools {
            body: &self.body,
            tools: self.request.tools.iter().map(tool).collect(),
        };
        let bytes = serde_json::to_vec(&with_tools).map(Bytes::from);
        // Pictures may be large, and the reply may take long.
        self.body.messages = Vec::new();
        bytes
    }
}

fn tool(tool: &Tool) -> ToolJson<'_> {
    ToolJson {
        function: FunctionJson {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.parameters,
        },
    }
}

fn message<'a>(
    message: &'a Message,
    ids: &mut Ids<'a>,
    sees_pictures: bool,
) -> ChatCompletionRequestMessage {
    match message {
        Message::System(text) => {
            ChatCompletionRequestMessage::System(ChatCompletionRequestSystemMessage {
                content: text.clone().into(),
                name: None,
            })
        }
        Message::User(text) => {
            ChatCompletionRequestMessage::User(ChatCompletionRequestUserMessage {
                content: text.clone().into(),
                name: None,
            })
        }
        Message::UserPicture { text, picture } => {
            ChatCompletionRequestMessage::User(ChatCompletionRequestUserMessage {
                content: with_picture(text, picture, sees_pictures),
                name: None,
            })
        }
        Message::Assistant {
            text,
            calls,
            provider,
        } => {
            ids.start_round(calls, provider.as_deref());
            let calls: Vec<_> = calls.iter().map(|one| call(one, ids)).collect();
            // A message must have text or calls, so an empty text is sent without calls.
            let has_text = !text.is_empty() || calls.is_empty();
            ChatCompletionRequestMessage::Assistant(ChatCompletionRequestAssistantMessage {
                content: has_text.then(|| text.clone().into()),
                tool_calls: (!calls.is_empty()).then_some(calls),
                ..ChatCompletionRequestAssistantMessage::default()
            })
        }
        Message::ToolResult { call_id, text } => {
            ChatCompletionRequestMessage::Tool(ChatCompletionRequestToolMessage {
                content: text.clone().into(),
                tool_call_id: ids.get(call_id),
            })
        }
    }
}

/// The text and the picture, or what stands for it, as text.
fn with_picture(
    text: &str,
    picture: &Picture,
    sees_pictures: bool,
) -> ChatCompletionRequestUserMessageContent {
    if !sees_pictures {
        let both = format!("{text}\n\n{}", picture.description);
        return both.trim_start().into();
    }
    let encoded = BASE64_STANDARD.encode(&picture.bytes);
    let image_url = ImageUrl {
        url: format!("data:{};base64,{encoded}", picture.media_type),
        detail: None,
    };
    let image = ChatCompletionRequestMessageContentPartImage {
        image_url,
        ..ChatCompletionRequestMessageContentPartImage::default()
    };
    let image = ChatCompletionRequestUserMessageContentPart::ImageUrl(image);
    let mut parts = vec![image];
    if !text.is_empty() {
        let text = ChatCompletionRequestMessageContentPartText {
            text: text.to_owned(),
            ..ChatCompletionRequestMessageContentPartText::default()
        };
        parts.insert(0, ChatCompletionRequestUserMessageContentPart::Text(text));
    }
    ChatCompletionRequestUserMessageContent::Array(parts)
}

fn call(call: &ToolCall, ids: &Ids<'_>) -> ChatCompletionMessageToolCalls {
    let arguments = call.arguments.as_ref().ok();
    let arguments = arguments.and_then(|arguments| serde_json::to_string(arguments).ok());
    ChatCompletionMessageToolCalls::Function(ChatCompletionMessageToolCall {
        id: ids.get(&call.id),
        function: FunctionCall {
            name: call.name.clone(),
            arguments: arguments.unwrap_or_else(|| "{}".to_owned()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json, value::to_raw_value};

    const TARGET: Target<'_> = Target {
        provider: "a",
        model: "m",
        limit_field: LimitField::MaxTokens,
        with_temperature: true,
        sees_pictures: true,
    };

    fn body(request: &Request, target: Target<'_>) -> Value {
        read(&RequestBody::new(request).encode(target).unwrap())
    }

    fn read(body: &[u8]) -> Value {
        serde_json::from_slice(body).unwrap()
    }

    #[test]
    fn conversation_is_encoded() {
        let call = |id: &str, arguments| ToolCall {
            id: id.to_owned(),
            name: "lamp_on".to_owned(),
            arguments,
        };
        let arguments = json!({"level": 3}).as_object().unwrap().clone();
        let assistant = |text: &str, calls| Message::Assistant {
            text: text.to_owned(),
            calls,
            provider: Some("a".to_owned()),
        };
        let request = Request {
            messages: vec![
                Message::System("be brief".to_owned()),
                Message::User("light".to_owned()),
                assistant(
                    "",
                    vec![call("1", Ok(arguments)), call("2", Err("{".to_owned()))],
                ),
                Message::ToolResult {
                    call_id: "1".to_owned(),
                    text: "on".to_owned(),
                },
                assistant("", Vec::new()),
            ],
            temperature: Some(0.7),
            ..Request::default()
        };
        let called = |id: &str, arguments: &str| json!({"type": "function", "id": id, "function": {"name": "lamp_on", "arguments": arguments}});
        let expected = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "light"},
                {"role": "assistant", "tool_calls": [called("1", r#"{"level":3}"#), called("2", "{}")]},
                {"role": "tool", "tool_call_id": "1", "content": "on"},
                {"role": "assistant", "content": ""},
            ],
            "temperature": 0.7,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        assert_eq!(body(&request, TARGET), expected);
    }

    #[test]
    fn picture_is_sent_to_models_that_see_it() {
        let check = |text: &str, sees_pictures, expected: Value| {
            let picture = Picture {
                media_type: "image/png".to_owned(),
                bytes: Bytes::from_static(b"\x89PNG"),
                description: "[a dog]".to_owned(),
            };
            let text = text.to_owned();
            let request = Request {
                messages: vec![Message::UserPicture { text, picture }],
                ..Request::default()
            };
            let target = Target {
                sees_pictures,
                ..TARGET
            };
            assert_eq!(body(&request, target)["messages"][0]["content"], expected);
        };
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}});
        let text = json!({"type": "text", "text": "What is this?"});
        check("What is this?", true, json!([text, image]));
        check("", true, json!([image]));
        check("What is this?", false, json!("What is this?\n\n[a dog]"));
        check("", false, json!("[a dog]"));
    }

    #[test]
    fn temperature_can_be_omitted() {
        let request = Request {
            temperature: Some(0.5),
            ..Request::default()
        };
        let mut body = RequestBody::new(&request);
        assert!(body.has_temperature());
        for with_temperature in [true, false, true] {
            let target = Target {
                with_temperature,
                ..TARGET
            };
            let body = read(&body.encode(target).unwrap());
            let expected = json!(0.5);
            let expected = with_temperature.then_some(&expected);
            assert_eq!(body.get("temperature"), expected);
        }
    }

    #[test]
    fn tools_are_sent_without_permission_to_call() {
        let mut request = Request {
            tools: vec![Tool {
                name: "lamp_on".to_owned(),
                description: "Light.".to_owned(),
                parameters: to_raw_value(&json!({"type": "object"})).unwrap().into(),
            }],
            ..Request::default()
        };
        let tools = json!([{"type": "function", "function":
            {"name": "lamp_on", "description": "Light.", "parameters": {"type": "object"}}}]);
        let may_not = body(&request, TARGET);
        assert_eq!(may_not["tools"], tools);
        assert_eq!(may_not["tool_choice"], "none");
        request.allows_calls = true;
        let may = body(&request, TARGET);
        assert_eq!(may["tools"], tools);
        assert_eq!(may.get("tool_choice"), None);
        request.tools.clear();
        request.allows_calls = false;
        let without = body(&request, TARGET);
        assert_eq!(
            (without.get("tools"), without.get("tool_choice")),
            (None, None)
        );
    }

    #[test]
    fn limit_uses_the_field_of_the_provider() {
        let request = Request {
            max_tokens: Some(9),
            ..Request::default()
        };
        let mut body = RequestBody::new(&request);
        let mut fields = |limit_field| {
            let target = Target {
                limit_field,
                ..TARGET
            };
            let body = read(&body.encode(target).unwrap());
            (
                body["max_tokens"].clone(),
                body["max_completion_tokens"].clone(),
            )
        };
        assert_eq!(fields(LimitField::MaxTokens), (json!(9), Value::Null));
        assert_eq!(
            fields(LimitField::MaxCompletionTokens),
            (Value::Null, json!(9))
        );
        assert_eq!(fields(LimitField::MaxTokens), (json!(9), Value::Null));
    }

    /// The ids of each round of calls, and of its results.
    fn ids(body: &Value) -> Vec<(Vec<&str>, Vec<&str>)> {
        let mut rounds = Vec::new();
        for message in body["messages"].as_array().unwrap() {
            if let Some(calls) = message["tool_calls"].as_array() {
                let ids = calls.iter().map(|call| call["id"].as_str().unwrap());
                rounds.push((ids.collect(), Vec::new()));
            }
            if let Some(id) = message["tool_call_id"].as_str() {
                rounds.last_mut().unwrap().1.push(id);
            }
        }
        rounds
    }

    #[test]
    fn ids_of_other_providers_are_replaced() {
        let rounds: [(&[&str], Option<&str>); 4] = [
            (&["1754_0", "1754_1"], None),
            (&["functions.lamp_on:0"], Some("a")),
            (&["call_3a", "call_3b"], Some("b")),
            // Some providers repeat an id in each round.
            (&["functions.lamp_on:0"], Some("a")),
        ];
        let round = |(ids, provider): (&[&str], Option<&str>)| {
            let call = |id: &&str| ToolCall {
                id: (*id).to_owned(),
                name: "lamp_on".to_owned(),
                arguments: Ok(serde_json::Map::new()),
            };
            let calling = Message::Assistant {
                text: String::new(),
                calls: ids.iter().map(call).collect(),
                provider: provider.map(str::to_owned),
            };
            let result = |id: &&str| Message::ToolResult {
                call_id: (*id).to_owned(),
                text: "on".to_owned(),
            };
            let results: Vec<_> = ids.iter().rev().map(result).collect();
            [vec![calling], results].concat()
        };
        let request = Request {
            messages: rounds.into_iter().flat_map(round).collect(),
            ..Request::default()
        };
        let check = |provider: &str, expected: [&[&str]; 4]| {
            let body = body(&request, Target { provider, ..TARGET });
            for ((calls, results), expected) in ids(&body).into_iter().zip(expected) {
                assert_eq!(calls, expected, "{provider}");
                let results: Vec<_> = results.into_iter().rev().collect();
                assert_eq!(results, expected, "{provider}");
            }
        };
        let own: &[&str] = &["functions.lamp_on:0"];
        let numbered = ["call00001", "call00002"].as_slice();
        let of_b = ["call00004", "call00005"].as_slice();
        check("a", [numbered, own, of_b, &["call00006"]]);
        check("c", [numbered, &["call00003"], of_b, &["call00006"]]);
        let strict = body(
            &request,
            Target {
                provider: "c",
                ..TARGET
            },
        );
        let is_accepted_by_all =
            |id: &&str| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric());
        let all = ids(&strict).into_iter().flat_map(|(calls, _)| calls);
        assert!(all.collect::<Vec<_>>().iter().all(is_accepted_by_all));
    }
}
