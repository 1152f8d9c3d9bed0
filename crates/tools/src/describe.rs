//! Descriptions of services as tools for models.

use serde_json::{Map, Value};

use crate::{
    Naming,
    text::{clean_schema, clean_to, has_hidden_members},
};

/// Maximum bytes of a description. Protects the model's context.
const MAX_DESCRIPTION_BYTES: usize = 4_096;
/// Added to a description when the schema of the parameters is omitted.
const SCHEMA_OMITTED: &str =
    "[The schema of its parameters is not shown: invisible characters hide in it.]";

/// A service as a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDescription {
    /// The tool name of the service; without the part for the device when names are prefixed.
    pub name: String,
    /// The device's description, cleaned.
    pub description: Option<String>,
    /// JSON schema of the parameters, always of an object.
    pub parameters: Map<String, Value>,
}

/// Describes a service by its registered definition.
#[must_use]
pub fn describe(service: &str, definition: &Value, naming: Naming) -> ToolDescription {
    let description = definition.get("description").and_then(Value::as_str);
    let mut description = description.map(|text| clean_to(text, MAX_DESCRIPTION_BYTES));
    let mut parameters = object_schema(definition.get("parameters"));
    if has_hidden_members(&parameters) {
        // A cleaned schema would mean something else; an uncleaned one contains text that is
        // invisible to people.
        parameters = object_schema(None);
        let text = description.get_or_insert_default();
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(SCHEMA_OMITTED);
    }
    ToolDescription {
        name: naming.service(service),
        description,
        parameters,
    }
}

/// The registered schema with `type: object`, which providers require. Params are always an object.
fn object_schema(registered: Option<&Value>) -> Map<String, Value> {
    let mut schema = match registered {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::new(),
    };
    schema.insert("type".to_owned(), "object".into());
    clean_schema(&mut schema);
    schema
}
