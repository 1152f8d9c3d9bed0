//! The fixture tools of the conformance suite, as services of one device: their registration, and
//! their results, which depend only on the call.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::questions;

/// A red picture of one pixel (PNG) in Base64.
pub(super) const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// An empty sound (WAV) in Base64.
const SILENCE: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// Changes the set of tools.
pub(super) const TRIGGER_TOOLS: &str = "test_trigger_tool_change";
/// Changes the set of prompts.
pub(super) const TRIGGER_PROMPTS: &str = "test_trigger_prompt_change";
/// The tool that is added and removed.
const COMES_AND_GOES: &str = "test_tool_that_comes_and_goes";

/// Every permanent tool with its description.
const TOOLS: [(&str, &str); 27] = [
    ("test_simple_text", "Answers with a text"),
    ("test_image_content", "Answers with a picture"),
    ("test_audio_content", "Answers with a sound"),
    ("test_embedded_resource", "Answers with a resource"),
    (
        "test_multiple_content_types",
        "Answers with a text, a picture and a resource",
    ),
    ("test_error_handling", "Fails with an error"),
    ("test_tool_with_progress", "Says three times how far it is"),
    ("test_tool_with_logging", "Logs three times what it does"),
    ("test_logging_tool", "Logs once what it does"),
    (TRIGGER_TOOLS, "Registers a tool more, or one less"),
    (TRIGGER_PROMPTS, "Adds a prompt"),
    (
        "json_schema_2020_12_tool",
        "Tool with JSON Schema 2020-12 features",
    ),
    (
        "test_custom_header",
        "Takes a parameter that clients repeat in a header",
    ),
    ("test_missing_capability", "Needs the client's model"),
    ("test_streaming_elicitation", "Asks while it streams"),
    ("test_sampling", "Asks the client's model"),
    ("test_elicitation", "Asks for a name and an address"),
    (
        "test_elicitation_sep1034_defaults",
        "Asks with a default for each kind of field",
    ),
    (
        "test_elicitation_sep1330_enums",
        "Asks with every kind of choice",
    ),
    (
        "test_input_required_result_elicitation",
        "Asks for a name and greets",
    ),
    (
        "test_input_required_result_sampling",
        "Asks the client's model for a capital",
    ),
    (
        "test_input_required_result_list_roots",
        "Asks for the client's roots",
    ),
    (
        "test_input_required_result_request_state",
        "Asks, and wants its state back",
    ),
    (
        "test_input_required_result_multiple_inputs",
        "Asks three things at once",
    ),
    (
        "test_input_required_result_multi_round",
        "Asks twice, one after the other",
    ),
    (
        "test_input_required_result_tampered_state",
        "Asks, and takes no other state",
    ),
    (
        "test_input_required_result_capabilities",
        "Asks the person and the model, whichever there is",
    ),
];

/// A received call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) params: Value,
    /// The input requests of the previous call, or null.
    pub(super) input: Value,
}

/// A notification before the result: the type of the message and its `data` without `call_id`.
type Notification = (&'static str, Map<String, Value>);

/// The services to register; `one_more` adds the optional tool.
pub(super) fn services(one_more: bool) -> Value {
    let coming = one_more.then_some((COMES_AND_GOES, "Is there, or is not"));
    let services: Map<_, _> = TOOLS
        .into_iter()
        .chain(coming)
        .map(|(name, description)| {
            let service = json!({"description": description, "parameters": parameters(name)});
            (name.to_owned(), service)
        })
        .collect();
    Value::Object(services)
}

fn parameters(tool: &str) -> Value {
    let one_text = |name: &str, description: &str| {
        json!({
            "type": "object",
            "properties": {name: {"type": "string", "description": description}},
            "required": [name],
        })
    };
    match tool {
        "test_sampling" => one_text("prompt", "What the model is asked"),
        "test_elicitation" => one_text("message", "What the person is asked"),
        "test_custom_header" => json!({
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }),
        "json_schema_2020_12_tool" => all_of_the_draft(),
        _ => json!({"type": "object", "properties": {}}),
    }
}

/// The schema features that the suite checks, except `$anchor`, which devices may not use.
fn all_of_the_draft() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

/// The notifications of a tool in order, with a pause after each.
pub(super) fn notifications(tool: &str) -> Vec<Notification> {
    let log = |message: &str| {
        let members = [("level", "info"), ("message", message)];
        let data = members.map(|(name, value)| (name.to_owned(), value.into()));
        ("log", Map::from_iter(data))
    };
    let progress = |done: u32| {
        let members = [("progress", done), ("total", 100)];
        let data = members.map(|(name, value)| (name.to_owned(), value.into()));
        ("progress", Map::from_iter(data))
    };
    match tool {
        "test_tool_with_progress" => [0, 50, 100].map(progress).into(),
        "test_tool_with_logging" => [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ]
        .map(log)
        .into(),
        "test_logging_tool" => vec![log("Nobody asked for this")],
        _ => Vec::new(),
    }
}

/// The device's result.
pub(super) fn result(call: &Call) -> Value {
    match call.tool.as_str() {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => content(json!([picture()])),
        "test_audio_content" => {
            content(json!([{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}]))
        }
        "test_embedded_resource" => content(json!([{"type": "resource", "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }}])),
        "test_multiple_content_types" => content(json!([
            {"type": "text", "text": "Multiple content types test:"},
            picture(),
            {"type": "resource", "resource": {
                "uri": "test://mixed-content-resource",
                "mimeType": "application/json",
                "text": r#"{"test":"data","value":123}"#,
            }},
        ])),
        "test_error_handling" => {
            json!({"success": false, "error": "This tool intentionally returns an error for testing"})
        }
        _ => questions::result(call)
            .unwrap_or_else(|| text(format!("{} has done what it does.", call.tool))),
    }
}

fn picture() -> Value {
    json!({"type": "image", "data": PIXEL, "mimeType": "image/png"})
}

fn content(blocks: Value) -> Value {
    json!({"success": true, "content": blocks})
}

/// A successful result with this text.
pub(super) fn text<'a>(message: impl Into<Cow<'a, str>>) -> Value {
    content(json!([{"type": "text", "text": message.into()}]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str) -> Call {
        Call {
            id: "1".to_owned(),
            tool: tool.to_owned(),
            params: json!({}),
            input: Value::Null,
        }
    }

    #[test]
    fn every_tool_with_own_result_is_registered() {
        let services = services(false);
        for (name, _) in TOOLS {
            let result = result(&call(name));
            assert!(services[name].is_object(), "{name}");
            assert!(result["success"].is_boolean(), "{name}: {result}");
        }
        assert!(services[COMES_AND_GOES].is_null());
        assert!(super::services(true)[COMES_AND_GOES].is_object());
    }
}
