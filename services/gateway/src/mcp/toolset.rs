//! A device's services as tools, read once for every text that devices registered.
//! Never: an annotation that a device gave itself; what a tool may do is the operator's to say.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rmcp::model::{JsonObject, Tool};
use serde_json::{Map, Value, json};

use super::{
    param_headers::ParamHeaders,
    text::{clean, clean_schema, clean_to},
    tool_name::Naming,
};

/// What a model reads of a tool. Protects its context.
const DESCRIPTION_BYTES: usize = 4_096;
const TITLE_BYTES: usize = 256;
/// How long a call may take where the device does not say; what clients wait by themselves.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The identity of a device's own output schema inside ours, so that its references stay its own.
const OUTPUT_ID: &str = "urn:switchboard:output";

/// The tools of one registration, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Toolset {
    tools: Box<[Offered]>,
    by_name: HashMap<Box<str>, usize>,
}

/// A tool, and the service behind it.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) tool: Tool,
    pub(super) service: Box<str>,
    /// How long a call may take.
    pub(super) timeout: Duration,
    /// What requests repeat in headers.
    pub(super) headers: ParamHeaders,
}

impl Toolset {
    /// Reads a services object that passed the schema gate when it was registered.
    pub(super) fn read(json: &[u8], naming: Naming) -> Result<Self, serde_json::Error> {
        let services: Map<String, Value> = serde_json::from_slice(json)?;
        let mut tools: Vec<Offered> = services
            .into_iter()
            .map(|(service, definition)| offer(service, definition, naming))
            .collect();
        tools.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
        let names = tools.iter().enumerate();
        let by_name = names
            .map(|(at, offered)| (Box::from(&*offered.tool.name), at))
            .collect();
        Ok(Self {
            tools: tools.into(),
            by_name,
        })
    }

    /// All tools, in the order of their names.
    pub(super) fn offered(&self) -> &[Offered] {
        &self.tools
    }

    /// The tool with this name.
    pub(super) fn find(&self, name: &str) -> Option<&Offered> {
        self.tools.get(*self.by_name.get(name)?)
    }
}

fn offer(service: String, definition: Value, naming: Naming) -> Offered {
    let mut fields = match definition {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let name = naming.service(&service);
    let description = fields.get("description").and_then(Value::as_str);
    let description = description.map(|words| clean_to(words, DESCRIPTION_BYTES));
    let input = input_schema(fields.remove("parameters"));
    let headers = ParamHeaders::of(&input);
    let mut tool = Tool::new_with_raw(name, description.map(Into::into), input);
    if *tool.name != *service {
        tool.title = Some(clean_to(&service, TITLE_BYTES));
    }
    if let Some(output) = fields.remove("output") {
        tool.output_schema = Some(output_schema(output));
    }
    let timeout = fields.get("timeout_ms").and_then(Value::as_u64);
    Offered {
        tool,
        service: service.into(),
        timeout: timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis),
        headers,
    }
}

/// As registered, with `type: object`, which the protocol insists on and every set of params is anyway.
fn input_schema(registered: Option<Value>) -> Arc<JsonObject> {
    let mut schema = match registered {
        Some(Value::Object(schema)) => schema,
        _ => Map::new(),
    };
    schema.insert("type".to_owned(), "object".into());
    clean_schema(&mut schema);
    Arc::new(schema)
}

/// The shape of every structured result, with `data` as the device described it.
fn output_schema(registered: Value) -> Arc<JsonObject> {
    let data = match registered {
        Value::Object(mut schema) => {
            clean_schema(&mut schema);
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
            "success": {"type": "boolean", "description": "What the device says of its own success."},
            "data": data,
            "error": {"type": "string", "description": "What went wrong."},
        },
        "required": ["delivered"],
    });
    match schema {
        Value::Object(schema) => Arc::new(schema),
        _ => Arc::new(Map::new()),
    }
}

/// A tool's title where several devices are one server.
pub(super) fn title_of(device: &str, offered: &Offered) -> String {
    clean_to(
        &format!("{device}: {}", clean(&offered.service)),
        TITLE_BYTES,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(services: &Value) -> Toolset {
        Toolset::read(services.to_string().as_bytes(), Naming::Alone).unwrap()
    }

    #[test]
    fn services_become_tools() {
        let set = read(&json!({
            "现在几点": {"description": "告诉\u{202e}时间"},
            "web_search": {
                "description": "Search",
                "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
                "annotations": {"readOnlyHint": true},
                "timeout_ms": 5_000,
            },
        }));
        let names: Vec<&str> = set
            .offered()
            .iter()
            .map(|offered| &*offered.tool.name)
            .collect();
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
    fn an_output_schema_is_wrapped_with_its_references() {
        let output = json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}});
        let set = read(&json!({"count": {"output": output}}));
        let wrapped = set.find("count").unwrap().tool.output_schema.clone();
        let wrapped = Value::Object((*wrapped.unwrap()).clone());
        let schema = jsonschema::validator_for(&wrapped).unwrap();
        assert!(schema.is_valid(&json!({"delivered": "yes", "data": 5})));
        assert!(schema.is_valid(&json!({"delivered": "no"})));
        assert!(!schema.is_valid(&json!({"delivered": "yes", "data": "five"})));
    }
}
