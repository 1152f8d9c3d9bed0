//! The end of a call as the result of `tools/call`.
//!
//! Invariants: annotations that a device sends are dropped; a content block matches its declared
//! type; an invalid field of a result affects no other field.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};
use switchboard_bus::{Answer, BusError};
use switchboard_protocol::outcome::{Delivered, Outcome, Violation};
use switchboard_runtime::problem::ProblemKind;
use switchboard_tools::text::{clean, clean_value};

use crate::calls::{Attempt, milliseconds};

/// For the model, beside data that does not match the output schema of the tool.
const INVALID_DATA: &str = "[The device's `data` does not match the output schema of this tool, or could not be checked. The call was executed.]";

/// A device's result. Each field is parsed on its own, so that an invalid one affects no other.
/// (Supplement 5.2; `content` and `input_required` are extensions.)
pub(super) struct DeviceResult<'a> {
    success: bool,
    fields: Fields<'a>,
    /// Why the result could not be parsed.
    fault: Option<serde_json::Error>,
}

/// Of duplicate names the last one wins, as in most JSON parsers. `null` counts as absent.
#[derive(Default)]
struct Fields<'a> {
    data: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
    input_required: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut fields = Fields::default();
        while let Some(Name(name)) = members.next_key()? {
            let place = match &*name {
                "data" => &mut fields.data,
                "error" => &mut fields.error,
                "content" => &mut fields.content,
                "input_required" => &mut fields.input_required,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let value: &RawValue = members.next_value()?;
            *place = (value.get() != "null").then_some(value);
        }
        Ok(fields)
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> DeviceResult<'a> {
    /// The result of the device. `None` if the call ended without one.
    pub(super) fn parse(answer: &'a Answer) -> Option<Self> {
        let success = match answer.outcome {
            Outcome::Succeeded => true,
            Outcome::Failed => false,
            _ => return None,
        };
        let (fields, fault) = match serde_json::from_slice(&answer.body) {
            Ok(fields) => (fields, None),
            Err(error) => (Fields::default(), Some(error)),
        };
        Some(Self {
            success,
            fields,
            fault,
        })
    }

    /// The input that the device requires before it can continue.
    pub(super) const fn input_required(&self) -> Option<&'a RawValue> {
        self.fields.input_required
    }

    /// The data of a success that the device sent with nothing else. `None` for any other result.
    pub(super) fn only_data(&self, answer: &Answer) -> Option<&'a RawValue> {
        let fields = &self.fields;
        let others = [fields.error, fields.content, fields.input_required];
        let is_plain = self.success && self.fault.is_none() && answer.result_valid;
        let data = fields.data?;
        (is_plain && others.iter().all(Option::is_none)).then_some(data)
    }

    pub(super) fn into_tool_result(self, attempt: &Attempt, answer: &Answer) -> CallToolResult {
        let mut structured = call_details(attempt, Some(answer.outcome), answer.delivered);
        structured.insert("success".to_owned(), self.success.into());
        let mut blocks = Vec::new();
        let mut notes = Vec::new();
        if let Some(fault) = &self.fault {
            notes.push(invalid_field("result", &fault.to_string()));
        }
        if let Some(error) = self.fields.error {
            let message = error_message(error);
            if !self.success {
                blocks.push(ContentBlock::text(message.clone()));
            }
            structured.insert("error".to_owned(), message.into());
        }
        let content = self.fields.content.and_then(|content| {
            let parsed = content_blocks(content);
            parsed.map_err(|fault| notes.push(fault)).ok()
        });
        let data_as_text = content.is_none();
        blocks.extend(content.unwrap_or_default());
        if !answer.result_valid {
            structured.insert("result_valid".to_owned(), false.into());
            notes.push(INVALID_DATA.to_owned());
        }
        if let Some(data) = self.fields.data {
            // Structured content must match the output schema. The data of a failed call need not,
            // and data that is marked is not known to, so it is text only.
            let as_value = self.success && answer.result_valid;
            let (text, value) = parse_data(data, data_as_text || !answer.result_valid, as_value);
            blocks.extend(text.map(ContentBlock::text));
            match value {
                Some(Ok(value)) => {
                    structured.insert("data".to_owned(), value);
                }
                Some(Err(fault)) => notes.push(invalid_field("data", &fault.to_string())),
                None => {}
            }
        }
        if blocks.is_empty() {
            let text = if self.success {
                "Done."
            } else {
                "The device reported a failure without a reason."
            };
            blocks.push(ContentBlock::text(text));
        }
        blocks.extend(notes.into_iter().map(ContentBlock::text));
        finish(blocks, structured, !self.success)
    }
}

/// The device's error message. A value that is not a string is shown as JSON.
fn error_message(error: &RawValue) -> String {
    match serde_json::from_str(error.get()) {
        Ok(Name(message)) => clean(&message).into_owned(),
        Err(_) => clean(error.get()).into_owned(),
    }
}

pub(super) type Parsed = Result<Value, serde_json::Error>;

/// The data as text and as a value, each if requested. As text, a string is unquoted; any other
/// value is the device's own JSON, which is serialised again if it contains `\u` escapes.
pub(super) fn parse_data(
    data: &RawValue,
    as_text: bool,
    as_value: bool,
) -> (Option<String>, Option<Parsed>) {
    let json = data.get();
    let is_plain =
        !json.starts_with('"') && memchr::memmem::find(json.as_bytes(), b"\\u").is_none();
    let parsed = (as_value || (as_text && !is_plain)).then(|| serde_json::from_str(json));
    let value = parsed.map(|parsed: Parsed| parsed.map(clean_value));
    let text = as_text.then(|| match &value {
        Some(Ok(Value::String(text))) => text.clone(),
        Some(Ok(value)) if !is_plain => value.to_string(),
        _ => clean(json).into_owned(),
    });
    (text, value.filter(|value| as_value || value.is_err()))
}

fn invalid_field(field: &str, fault: &str) -> String {
    let fault = clean(fault);
    format!("[The device's `{field}` cannot be parsed: {fault}.]")
}

/// The content blocks that a device sent. An invalid block becomes a text that describes it.
fn content_blocks(content: &RawValue) -> Result<Vec<ContentBlock>, String> {
    let sent: Vec<&RawValue> = serde_json::from_str(content.get()).map_err(|_| {
        "[The device's `content` is omitted: it is not a list of blocks.]".to_owned()
    })?;
    Ok(sent.into_iter().enumerate().map(block).collect())
}

/// The result of a call that ended without an answer from the device.
pub(super) fn refused(attempt: &Attempt, answer: &Answer) -> CallToolResult {
    let outcome = answer.outcome;
    let (detail, errors) = match answer.refusal() {
        Some(refusal) => (refusal.detail, refusal.errors),
        None => ("the reason could not be parsed".to_owned(), Vec::new()),
    };
    let mut text = format!("{}: {detail}", outcome.as_str());
    for Violation { pointer, detail } in &errors {
        text.push_str(&format!("\n{pointer}: {detail}"));
    }
    let mut structured = call_details(attempt, Some(outcome), answer.delivered);
    structured.insert("error".to_owned(), clean(&detail).into());
    if !errors.is_empty() {
        structured.insert("errors".to_owned(), clean_value(json!(errors)));
    }
    finish(vec![ContentBlock::text(clean(&text))], structured, true)
}

/// The result of a call of a service that no one has approved as it is. Nothing was sent.
pub(super) fn not_approved(attempt: &Attempt) -> CallToolResult {
    let (device, service) = (&attempt.device.device, clean(&attempt.request.service));
    let kind = ProblemKind::ApprovalRequired;
    let detail = format!(
        "The service {service:?} of the device {device} has no approval, or has changed since it was approved; a person \
         approves it with PUT /v1/devices/{device}/services/{service}/approval. Nothing was sent."
    );
    let mut structured = call_details(attempt, None, Delivered::No);
    structured.insert(
        "type".to_owned(),
        format!("/problems/{}", kind.slug()).into(),
    );
    structured.insert("error".to_owned(), detail.clone().into());
    finish(vec![ContentBlock::text(detail)], structured, true)
}

/// The result of a call that the bus did not accept. It has no outcome.
pub(super) fn bus_unavailable(attempt: &Attempt, error: &BusError) -> CallToolResult {
    tracing::warn!(%error, "tool not called: the bus is unavailable");
    let detail =
        "The devices cannot be reached at the moment; nothing was sent, and a retry is safe.";
    let mut structured = call_details(attempt, None, Delivered::No);
    structured.insert("error".to_owned(), detail.into());
    finish(vec![ContentBlock::text(detail)], structured, true)
}

/// The result of a call whose device requires input in a form that cannot be requested.
pub(super) fn elicitation_failed(
    attempt: &Attempt,
    answer: &Answer,
    reason: &str,
) -> CallToolResult {
    let detail = format!("The device requires input that cannot be requested: {reason}.");
    let mut structured = call_details(attempt, Some(answer.outcome), answer.delivered);
    structured.insert("success".to_owned(), false.into());
    structured.insert("error".to_owned(), clean(&detail).into());
    finish(vec![ContentBlock::text(clean(&detail))], structured, true)
}

/// Adds the details of the call to an error that occurred after the device answered.
pub(super) fn with_call_details(
    mut error: ErrorData,
    attempt: &Attempt,
    answer: &Answer,
) -> ErrorData {
    let mut data = call_details(attempt, Some(answer.outcome), answer.delivered);
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

fn call_details(
    attempt: &Attempt,
    outcome: Option<Outcome>,
    delivered: Delivered,
) -> Map<String, Value> {
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

/// A content block, or a text that describes why it is invalid.
fn block((index, sent): (usize, &RawValue)) -> ContentBlock {
    let parsed = serde_json::from_str(sent.get());
    let parsed = parsed
        .map_err(|error| error.to_string())
        .and_then(parse_block);
    parsed.unwrap_or_else(|fault| {
        ContentBlock::text(format!(
            "[The device's content block {index} is omitted: {fault}.]"
        ))
    })
}

fn parse_block(sent: Value) -> Result<ContentBlock, String> {
    let Value::Object(mut members) = clean_value(sent) else {
        return Err("a block is an object with a `type`".to_owned());
    };
    members.remove("annotations");
    members.remove("_meta");
    if members.get("type").is_some_and(|kind| kind == "resource")
        && !members.contains_key("resource")
    {
        // The stdio reference puts the members of a resource beside its type.
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
        return Err(format!("its `mimeType` must begin with {family}"));
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
        Attempt {
            id: switchboard_protocol::id::CallId::from_uuid(uuid::Uuid::now_v7()),
            device: key,
            request,
            started: std::time::Instant::now(),
            cancel_key: None,
            origin: None,
            registration: None,
        }
    }

    fn result_of(json: &str) -> Value {
        let success = json.contains("\"success\":true");
        assert_ne!(success, json.contains("\"success\":false"), "{json}");
        let answer = Answer::result(success, json.to_owned().into());
        let result = DeviceResult::parse(&answer).unwrap();
        serde_json::to_value(result.into_tool_result(&attempt(), &answer)).unwrap()
    }

    #[test]
    fn device_result_has_content_and_structure() {
        fn check(json: &str, content: Value, is_error: bool) {
            let result = result_of(json);
            assert_eq!(result["content"], content, "{json}");
            assert_eq!(result["isError"], is_error, "{json}");
            let structured = &result["structuredContent"];
            assert_eq!(structured["success"], !is_error, "{json}");
            assert_eq!(structured["delivered"], "yes", "{json}");
        }
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        check(
            r#"{"success":true,"data":"现在\u200b三点"}"#,
            text("现在三点"),
            false,
        );
        check(
            r#"{"success":true,"data":{"b":1.50}}"#,
            text(r#"{"b":1.50}"#),
            false,
        );
        check(
            r#"{"success":true,"data":["\u4e09\u200b\u70b9"]}"#,
            text(r#"["三点"]"#),
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

    /// The fields beside `success`, parts of the text blocks, and `data` and `error` as structured
    /// content.
    const INVALID_FIELDS: [(&str, &[&str], &str, &str); 13] = [
        (
            r#""data":{"far":1e999}"#,
            &[r#"{"far":1e999}"#, "`data` cannot be parsed"],
            "",
            "",
        ),
        (
            r#""data":"a\ud800b""#,
            &[r#""a\ud800b""#, "`data` cannot be parsed"],
            "",
            "",
        ),
        (
            r#""data":["\ud800"],"error":"e""#,
            &[r#"["\ud800"]"#, "`data`"],
            "",
            "e",
        ),
        (
            r#""content":{"type":"text"},"data":7"#,
            &["7", "not a list"],
            "7",
            "",
        ),
        (r#""content":"words""#, &["Done.", "not a list"], "", ""),
        (r#""content":null,"data":null"#, &["Done."], "", ""),
        (
            r#""content":[{"type":"text","text":"\udc00"},{"type":"text","text":"b"}],"data":[1]"#,
            &["block 0", "b"],
            "[1]",
            "",
        ),
        (
            r#""error":{"code":5},"data":1"#,
            &["1"],
            "1",
            r#"{"code":5}"#,
        ),
        (r#""error":["\ud800"]"#, &["Done."], "", r#"["\ud800"]"#),
        (r#""data":1,"data":2,"other":1e999"#, &["2"], "2", ""),
        (
            r#""data":12345678901234567890123"#,
            &["12345678901234567890123"],
            "1.2345678901234568e+22",
            "",
        ),
        (
            r#""\ud800":1"#,
            &["Done.", "`result` cannot be parsed"],
            "",
            "",
        ),
        (r#""error":null"#, &["Done."], "", ""),
    ];

    #[test]
    fn invalid_field_affects_no_other() {
        for (fields, texts, data, error) in INVALID_FIELDS {
            for success in [true, false] {
                let result = result_of(&format!(r#"{{"success":{success},{fields}}}"#));
                assert_eq!(result["isError"], !success, "{result}");
                let structured = &result["structuredContent"];
                assert_eq!(structured["success"], success, "{result}");
                let message = structured.get("error").and_then(Value::as_str);
                assert_eq!(message.unwrap_or_default(), error, "{result}");
                if !success {
                    continue;
                }
                let value = structured.get("data").map(Value::to_string);
                assert_eq!(value.unwrap_or_default(), data, "{result}");
                let blocks = result["content"].as_array().unwrap();
                assert_eq!(blocks.len(), texts.len(), "{result}");
                for (block, part) in blocks.iter().zip(texts) {
                    let text = block["text"].as_str().unwrap();
                    assert!(text.contains(part), "{text} does not contain {part}");
                }
            }
        }
    }

    #[test]
    fn data_that_is_marked_is_no_structured_content() {
        let fields = [
            r#""data":{"n":"one"}"#,
            r#""data":{"n":"one"},"content":[{"type":"text","text":"hello"}]"#,
        ];
        for (fields, texts) in fields.into_iter().zip([1, 2]) {
            let body = format!(r#"{{"success":true,{fields}}}"#);
            let mut answer = Answer::result(true, body.into());
            answer.result_valid = false;
            let result = DeviceResult::parse(&answer).unwrap();
            let result = result.into_tool_result(&attempt(), &answer);
            let result = serde_json::to_value(result).unwrap();
            // The device has acted: an error would invite the model to call again.
            assert_eq!(result["isError"], false, "{result}");
            let structured = &result["structuredContent"];
            assert_eq!(structured["result_valid"], false, "{result}");
            assert!(structured.get("data").is_none(), "{result}");
            let blocks = result["content"].as_array().unwrap();
            assert_eq!(blocks.len(), texts + 1, "{result}");
            assert_eq!(blocks[texts - 1]["text"], r#"{"n":"one"}"#);
            assert_eq!(blocks[texts]["text"], INVALID_DATA);
        }
    }

    #[test]
    fn invalid_block_is_replaced_by_a_text() {
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
    fn refused_call_reports_delivery() {
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
