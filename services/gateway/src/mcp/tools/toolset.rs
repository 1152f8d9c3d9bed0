//! A device's registered services as MCP tools.
//!
//! Invariant: annotations that a device sends are dropped. What a tool may do is decided by the
//! operator's policies.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rmcp::model::{JsonObject, Tool};
use serde_json::{Map, Value, json};
use switchboard_protocol::schema::Digest;
use switchboard_runtime::response_budget::json_bytes;
use switchboard_tools::{
    Naming, describe,
    text::{clean, clean_schema, clean_to, has_hidden_members},
};

use super::headers::ParamHeaders;

/// Longer titles are truncated. Protects the context of a model.
const MAX_TITLE_BYTES: usize = 256;
/// The timeout of a service that declares none: the default timeout of MCP clients.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// What the name and the title of a device add to the JSON of a tool, at most.
const MAX_PREFIX_BYTES: usize = MAX_TITLE_BYTES + 64;
/// `$id` of the device's output schema inside ours, so that its references resolve within it.
const OUTPUT_ID: &str = "urn:switchboard:output";

/// The tools of one registration, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Toolset {
    tools: Box<[Arc<ServiceTool>]>,
    by_name: HashMap<Box<str>, usize>,
    /// The registration; `None` without one.
    digest: Option<Digest>,
    bytes: u64,
    json_bytes: usize,
}

/// A tool and the service that it calls.
#[derive(Debug)]
pub(in crate::mcp) struct ServiceTool {
    pub(super) tool: Tool,
    pub(super) service: Box<str>,
    /// What approvals are of.
    pub(super) digest: Digest,
    /// Timeout of a call.
    pub(super) timeout: Duration,
    /// The parameters that clients repeat in headers.
    pub(in crate::mcp) headers: ParamHeaders,
}

impl Toolset {
    /// Parses a services object, which was validated when it was registered.
    pub(super) fn parse(
        digest: Digest,
        json: &[u8],
        naming: Naming,
    ) -> Result<Self, serde_json::Error> {
        let services: Map<String, Value> = serde_json::from_slice(json)?;
        let mut tools: Vec<_> = services
            .into_iter()
            .map(|(service, definition)| Arc::new(tool(service, definition, naming)))
            .collect();
        tools.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
        let names = tools.iter().enumerate();
        let by_name = names
            .map(|(at, service)| (Box::from(&*service.tool.name), at))
            .collect();
        let bytes = tools
            .iter()
            .fold(0, |sum: u64, service| sum.saturating_add(service.bytes()));
        let json_bytes = tools.iter().map(|service| json_bytes(&service.tool)).sum();
        Ok(Self {
            tools: tools.into(),
            by_name,
            digest: Some(digest),
            bytes,
            json_bytes,
        })
    }

    /// The registration that the tools are of.
    pub(super) const fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Estimated size in memory.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of all tools in a list, at most.
    pub(super) const fn listed_bytes(&self) -> usize {
        let prefixes = self.tools.len().saturating_mul(MAX_PREFIX_BYTES);
        self.json_bytes.saturating_add(prefixes)
    }

    /// All tools, sorted by name.
    pub(super) fn tools(&self) -> &[Arc<ServiceTool>] {
        &self.tools
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<ServiceTool>> {
        self.tools.get(*self.by_name.get(name)?)
    }
}

impl ServiceTool {
    fn bytes(&self) -> u64 {
        let texts = [
            Some(&*self.tool.name),
            Some(&*self.service),
            self.tool.description.as_deref(),
            self.tool.title.as_deref(),
        ];
        let texts = texts.into_iter().flatten().map(bytes_of_text);
        let schemas = [
            Some(&self.tool.input_schema),
            self.tool.output_schema.as_ref(),
        ];
        let schemas = schemas
            .into_iter()
            .flatten()
            .map(|schema| bytes_of_members(schema));
        // The headers come from the schema and are smaller; twice the size covers them.
        texts
            .chain(schemas)
            .fold(size_of::<Self>() as u64 * 2, u64::saturating_add)
    }
}

fn bytes_of_text(text: &str) -> u64 {
    const ALLOCATION: u64 = 16;
    (text.len() as u64).saturating_add(ALLOCATION)
}

/// Bytes that a value owns on the heap.
fn bytes_of(value: &Value) -> u64 {
    match value {
        Value::String(text) => bytes_of_text(text),
        Value::Array(items) => items.iter().fold(0, |sum: u64, item| {
            let place = size_of::<Value>() as u64;
            sum.saturating_add(place).saturating_add(bytes_of(item))
        }),
        Value::Object(members) => bytes_of_members(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// An object is a B-tree whose nodes hold five to eleven members.
fn bytes_of_members(members: &JsonObject) -> u64 {
    const MEMBER: usize = size_of::<String>() + size_of::<Value>();
    const NODE: u64 = 11 * MEMBER as u64 + 64;
    let nodes = (members.len() as u64).div_ceil(5).saturating_mul(NODE);
    members.iter().fold(nodes, |sum, (name, value)| {
        sum.saturating_add(bytes_of_text(name))
            .saturating_add(bytes_of(value))
    })
}

fn tool(service: String, definition: Value, naming: Naming) -> ServiceTool {
    let digest = Digest::of_service(&service, &definition);
    let described = describe(&service, &definition, naming);
    let mut fields = match definition {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let headers = ParamHeaders::new(&described.parameters);
    let mut tool = Tool::new_with_raw(
        described.name,
        described.description.map(Into::into),
        Arc::new(described.parameters),
    );
    if *tool.name != *service {
        tool.title = Some(clean_to(&service, MAX_TITLE_BYTES));
    }
    if let Some(output) = fields.remove("output") {
        tool.output_schema = output_schema(output);
    }
    let timeout = fields.get("timeout_ms").and_then(Value::as_u64);
    ServiceTool {
        tool,
        service: service.into(),
        digest,
        timeout: timeout.map_or(DEFAULT_CALL_TIMEOUT, Duration::from_millis),
        headers,
    }
}

/// The schema of structured results, with the device's schema for `data`. `None` if that schema
/// contains invisible characters.
fn output_schema(registered: Value) -> Option<Arc<JsonObject>> {
    let data = match registered {
        Value::Object(mut schema) => {
            clean_schema(&mut schema);
            if has_hidden_members(&schema) {
                return None;
            }
            if !schema.contains_key("$id") {
                schema.insert("$id".to_owned(), OUTPUT_ID.into());
            }
            Value::Object(schema)
        }
        other => other,
    };
    let schema = json!({
        "type": "object",
        "properties": {
            "outcome": {"type": "string", "description": "How the call ended."},
            "delivered": {"type": "string", "enum": ["no", "unknown", "yes"], "description": "Whether the device may have acted."},
            "success": {"type": "boolean", "description": "Whether the service succeeded, as reported by the device."},
            "data": data,
            "result_valid": {"type": "boolean", "description": "False if the device's data does not match; it is then in the content only."},
            "error": {"type": "string", "description": "What went wrong."},
        },
        "required": ["delivered"],
    });
    match schema {
        Value::Object(schema) => Some(Arc::new(schema)),
        _ => None,
    }
}

/// The title of a tool on an endpoint with several devices.
pub(super) fn prefixed_title(device: &str, service: &ServiceTool) -> String {
    clean_to(
        &format!("{device}: {}", clean(&service.service)),
        MAX_TITLE_BYTES,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(services: &Value) -> Toolset {
        let json = services.to_string().into_bytes();
        Toolset::parse(Digest::compute(&json), &json, Naming::Alone).unwrap()
    }

    #[test]
    fn services_are_listed_as_tools() {
        let set = parse(&json!({
            "现在几点": {"description": "告诉\u{202e}时间"},
            "web_search": {
                "description": "Search",
                "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
                "annotations": {"readOnlyHint": true},
                "timeout_ms": 5_000,
            },
        }));
        let names: Vec<&str> = set.tools().iter().map(|tool| &*tool.tool.name).collect();
        assert_eq!(names, ["_ea99d70f", "web_search"]);
        let search = set.find("web_search").unwrap();
        assert_eq!(search.timeout, Duration::from_secs(5));
        assert_eq!(
            serde_json::to_value(&search.tool).unwrap(),
            json!({
                "name": "web_search", "description": "Search",
                "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
            })
        );
        let time = set.find("_ea99d70f").unwrap();
        assert_eq!(&*time.service, "现在几点");
        assert_eq!(
            serde_json::to_value(&time.tool).unwrap(),
            json!({
                "name": "_ea99d70f", "title": "现在几点", "description": "告诉时间",
                "inputSchema": {"type": "object"},
            })
        );
        assert!(set.find("现在几点").is_none());
    }

    #[test]
    fn schema_with_hidden_characters_is_dropped() {
        fn check(schema: Value, shown: bool) {
            let set =
                parse(&json!({"a": {"description": "d", "parameters": schema, "output": schema}}));
            let tool = &set.find("a").unwrap().tool;
            let listed = serde_json::to_value(tool).unwrap();
            assert_eq!(listed["description"] == "d", shown, "{listed}");
            assert_eq!(listed.get("outputSchema").is_some(), shown, "{listed}");
            assert_eq!(
                listed["inputSchema"] != json!({"type": "object"}),
                shown,
                "{listed}"
            );
            assert!(!has_hidden_members(&tool.input_schema), "{listed}");
        }
        let property = |name: &str, schema: Value| json!({"properties": {name: schema}});
        check(property("心情", json!({"enum": ["❤\u{fe0f}", "👍"]})), true);
        check(
            property(
                "a",
                json!({"description": "\u{200b}", "default": ["\u{e0041}"]}),
            ),
            true,
        );
        check(
            property(
                "a",
                json!({"examples": ["\u{e0041}"], "$comment": "\u{202e}"}),
            ),
            true,
        );
        check(property("a\u{e0041}", json!({})), false);
        check(property("a", json!({"enum": ["b\u{e0041}"]})), false);
        check(property("a", json!({"const": {"b": ["\u{200b}"]}})), false);
        check(property("a", json!({"pattern": "\u{3164}"})), false);
    }

    #[test]
    fn size_estimate_matches_the_content() {
        fn check(services: Value, min: u64, max: u64) {
            let bytes = parse(&services).bytes();
            assert!((min..=max).contains(&bytes), "{bytes} of {services}");
        }
        check(json!({}), 0, 0);
        check(json!({"a": {}}), 500, 4_096);
        let nested = (0..60).fold(json!({}), |inner, _| json!({"properties": inner}));
        check(json!({"a": {"parameters": nested}}), 40_000, 60_000);
        check(
            json!({"a": {"parameters": {"enum": ["x".repeat(10_000)]}}}),
            10_000,
            16_000,
        );
    }

    #[test]
    fn output_schema_keeps_its_references() {
        let output = json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}});
        let set = parse(&json!({"count": {"output": output}}));
        let wrapped = set.find("count").unwrap().tool.output_schema.clone();
        let wrapped = Value::Object((*wrapped.unwrap()).clone());
        let schema = jsonschema::validator_for(&wrapped).unwrap();
        assert!(schema.is_valid(&json!({"delivered": "yes", "data": 5})));
        assert!(schema.is_valid(&json!({"delivered": "no"})));
        assert!(!schema.is_valid(&json!({"delivered": "yes", "data": "five"})));
    }
}
