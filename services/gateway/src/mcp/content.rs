//! How a call ended, as a tool's result.
//! Never: an annotation that a device gave its own content, or a block that is not what it says it is.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock},
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use switchboard_bus::{Answer, BusError};
use switchboard_protocol::outcome::{Delivered, Outcome, Violation};

use super::text::{clean, clean_value};
use crate::calls::{Attempt, milliseconds};

/// What a device answered. (Supplement 5.2; `content` and `input_required` are ours.)
#[derive(Deserialize)]
pub(super) struct DeviceResult<'a> {
    success: bool,
    #[serde(default)]
    data: Option<Value>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    content: Option<Vec<Value>>,
    /// What the device wants to know first.
    #[serde(default, borrow)]
    pub(super) input_required: Option<&'a RawValue>,
}

impl<'a> DeviceResult<'a> {
    /// The device's own result; `None` when the call ended without one.
    pub(super) fn of(answer: &'a Answer) -> Option<Self> {
        match answer.outcome {
            Outcome::Succeeded | Outcome::Failed => serde_json::from_slice(&answer.body).ok(),
            _ => None,
        }
    }

    /// The result as the tool's.
    pub(super) fn into_tool_result(self, attempt: &Attempt, answer: &Answer) -> CallToolResult {
        let mut structured = ending(attempt, Some(answer.outcome), answer.delivered);
        structured.insert("success".to_owned(), self.success.into());
        let error = self.error.map(|words| clean(&words).into_owned());
        let data = self.data.map(clean_value);
        let mut blocks = match (&error, &data) {
            (Some(words), _) if !self.success => vec![ContentBlock::text(words.clone())],
            _ => Vec::new(),
        };
        match self.content {
            Some(content) => blocks.extend(content.into_iter().enumerate().map(block)),
            None => blocks.extend(data.as_ref().map(|data| ContentBlock::text(words(data)))),
        }
        if blocks.is_empty() {
            let said = if self.success {
                "Done."
            } else {
                "The device says that it failed, and not why."
            };
            blocks.push(ContentBlock::text(said));
        }
        // What a failed call has to say need not look like what a successful one promises.
        if let (Some(data), true) = (data, self.success) {
            structured.insert("data".to_owned(), data);
        }
        if let Some(words) = error {
            structured.insert("error".to_owned(), words.into());
        }
        finish(blocks, structured, !self.success)
    }
}

/// A call that ended without a device's result.
pub(super) fn refused(attempt: &Attempt, answer: &Answer) -> CallToolResult {
    let outcome = answer.outcome;
    let (detail, errors) = match answer.refusal() {
        Some(refusal) => (refusal.detail, refusal.errors),
        None => (
            "the device's answer could not be read".to_owned(),
            Vec::new(),
        ),
    };
    let mut text = format!("{}: {detail}", outcome.as_str());
    for Violation { pointer, detail } in &errors {
        text.push_str(&format!("\n{pointer}: {detail}"));
    }
    let mut structured = ending(attempt, Some(outcome), answer.delivered);
    structured.insert("error".to_owned(), clean(&detail).into());
    if !errors.is_empty() {
        structured.insert("errors".to_owned(), clean_value(json!(errors)));
    }
    finish(vec![ContentBlock::text(clean(&text))], structured, true)
}

/// A call that the bus did not take: it has no outcome, and a retry is safe.
pub(super) fn not_accepted(attempt: &Attempt, error: &BusError) -> CallToolResult {
    tracing::warn!(%error, "a tool was not called because the bus is away");
    let detail =
        "The devices cannot be reached at the moment; nothing was sent, and a retry is safe.";
    let mut structured = ending(attempt, None, Delivered::No);
    structured.insert("error".to_owned(), detail.into());
    finish(vec![ContentBlock::text(detail)], structured, true)
}

/// A device that wants to know more, in a way that no client can be asked.
pub(super) fn not_asked(attempt: &Attempt, answer: &Answer, why: &str) -> CallToolResult {
    let detail =
        format!("The device needs to know more before it goes on, and cannot be told: {why}.");
    let mut structured = ending(attempt, Some(answer.outcome), answer.delivered);
    structured.insert("success".to_owned(), false.into());
    structured.insert("error".to_owned(), clean(&detail).into());
    finish(vec![ContentBlock::text(clean(&detail))], structured, true)
}

/// An error that came up after the device was called, with how the call ended beside what it says itself.
pub(super) fn with_ending(mut error: ErrorData, attempt: &Attempt, answer: &Answer) -> ErrorData {
    let mut data = ending(attempt, Some(answer.outcome), answer.delivered);
    match error.data.take() {
        Some(Value::Object(own)) => data.extend(own),
        Some(own) => {
            data.insert("cause".to_owned(), own);
        }
        None => {}
    }
    error.data = Some(Value::Object(data));
    error
}

fn ending(attempt: &Attempt, outcome: Option<Outcome>, delivered: Delivered) -> Map<String, Value> {
    let mut structured = Map::new();
    structured.insert("call_id".to_owned(), json!(attempt.id));
    if let Some(outcome) = outcome {
        structured.insert("outcome".to_owned(), json!(outcome));
    }
    structured.insert("delivered".to_owned(), json!(delivered));
    let elapsed = milliseconds(attempt.started.elapsed());
    structured.insert("elapsed_ms".to_owned(), json!(elapsed));
    structured
}

fn finish(
    blocks: Vec<ContentBlock>,
    structured: Map<String, Value>,
    failed: bool,
) -> CallToolResult {
    let mut result = if failed {
        CallToolResult::error(blocks)
    } else {
        CallToolResult::success(blocks)
    };
    result.structured_content = Some(Value::Object(structured));
    result
}

/// A string as it is, anything else as JSON.
fn words(data: &Value) -> String {
    match data {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A block as the device sent it, or a text that says what is wrong with it.
fn block((at, sent): (usize, Value)) -> ContentBlock {
    read_block(sent).unwrap_or_else(|fault| {
        ContentBlock::text(format!(
            "[The device's content block {at} is left out: {fault}.]"
        ))
    })
}

fn read_block(sent: Value) -> Result<ContentBlock, String> {
    let Value::Object(mut members) = clean_value(sent) else {
        return Err("a block is an object with a `type`".to_owned());
    };
    members.remove("annotations");
    members.remove("_meta");
    if members.get("type").is_some_and(|kind| kind == "resource")
        && !members.contains_key("resource")
    {
        // The stdio reference prints resources with their members beside the type.
        members.remove("type");
        members = Map::from_iter([
            ("type".to_owned(), "resource".into()),
            ("resource".to_owned(), Value::Object(members)),
        ]);
    }
    let block = serde_json::from_value(Value::Object(members))
        .map_err(|error| clean(&error.to_string()).into_owned())?;
    match &block {
        ContentBlock::Image(image) => check_binary(&image.data, &image.mime_type, "image/")?,
        ContentBlock::Audio(audio) => check_binary(&audio.data, &audio.mime_type, "audio/")?,
        _ => {}
    }
    Ok(block)
}

fn check_binary(data: &str, mime_type: &str, family: &str) -> Result<(), String> {
    if !mime_type.starts_with(family) {
        return Err(format!("its `mimeType` has to begin with {family}"));
    }
    BASE64_STANDARD
        .decode(data)
        .map(drop)
        .map_err(|error| format!("its `data` is not Base64: {error}"))
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::outcome::Refusal;

    use super::*;

    fn attempt() -> Attempt {
        let key = switchboard_protocol::id::DeviceKey {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            device: "toy-1".parse().unwrap(),
        };
        let request = crate::calls::CallRequest {
            service: "wave".into(),
            params: bytes::Bytes::from_static(b"{}"),
            input: bytes::Bytes::new(),
            timeout: std::time::Duration::from_secs(1),
        };
        Attempt::begin(key, request)
    }

    fn result_of(json: &str) -> Value {
        let success = json.contains("\"success\":true");
        let answer = Answer::result(success, json.to_owned().into());
        let result = DeviceResult::of(&answer).unwrap();
        serde_json::to_value(result.into_tool_result(&attempt(), &answer)).unwrap()
    }

    #[test]
    fn a_device_result_becomes_content_and_structure() {
        fn check(json: &str, content: Value, is_error: bool) {
            let result = result_of(json);
            assert_eq!(result["content"], content, "{json}");
            assert_eq!(result["isError"], is_error, "{json}");
            let structured = &result["structuredContent"];
            assert_eq!(structured["success"], !is_error, "{json}");
            assert_eq!(structured["delivered"], "yes", "{json}");
        }
        let text = |words: &str| json!([{"type": "text", "text": words}]);
        check(
            r#"{"success":true,"data":"现在\u200b三点"}"#,
            text("现在三点"),
            false,
        );
        check(
            r#"{"success":true,"data":{"b":1.50}}"#,
            text(r#"{"b":1.5}"#),
            false,
        );
        check(r#"{"success":true}"#, text("Done."), false);
        check(r#"{"success":false,"error":"坏了"}"#, text("坏了"), true);
        check(
            r#"{"success":false,"error":"no","data":[1]}"#,
            json!([{"type": "text", "text": "no"}, {"type": "text", "text": "[1]"}]),
            true,
        );
        check(
            r#"{"success":true,"content":[{"type":"image","data":"AAAA","mimeType":"image/png","annotations":{"priority":1}}]}"#,
            json!([{"type": "image", "data": "AAAA", "mimeType": "image/png"}]),
            false,
        );
        check(
            r#"{"success":true,"content":[{"type":"resource","uri":"file:///a","mimeType":"text/plain","text":"t"}]}"#,
            json!([{"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "t"}}]),
            false,
        );
    }

    #[test]
    fn blocks_that_are_not_what_they_say_are_left_out_with_words() {
        fn check(block: &str, part: &str) {
            let result = result_of(&format!(r#"{{"success":true,"content":[{block}]}}"#));
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("block 0") && text.contains(part), "{text}");
        }
        check(
            r#"{"type":"image","data":"not base64!","mimeType":"image/png"}"#,
            "Base64",
        );
        check(
            r#"{"type":"image","data":"AAAA","mimeType":"text/html"}"#,
            "image/",
        );
        check(r#"{"type":"video"}"#, "video");
        check("7", "object");
    }

    #[test]
    fn a_refusal_says_whether_the_device_may_have_acted() {
        let refusal = Refusal {
            detail: "The params do not match.".to_owned(),
            errors: vec![Violation {
                pointer: "/a".to_owned(),
                detail: "is missing".to_owned(),
            }],
        };
        let answer = Answer::refused(Outcome::Invalid, &refusal);
        let result = serde_json::to_value(refused(&attempt(), &answer)).unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(
            result["content"][0]["text"],
            "invalid: The params do not match.\n/a: is missing"
        );
        assert_eq!(result["structuredContent"]["outcome"], "invalid");
        assert_eq!(result["structuredContent"]["delivered"], "no");
        assert_eq!(result["structuredContent"]["errors"][0]["pointer"], "/a");
    }
}
