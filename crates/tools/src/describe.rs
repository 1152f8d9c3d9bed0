//! A service as a tool: what it is called, and what a model reads of it.
//! Never: a schema that says something else than the device's, or words in which something hides.

use serde_json::{Map, Value};

use crate::{
    Naming,
    text::{clean_schema, clean_to, members_hide_something},
};

/// What a model reads of a tool. Protects its context.
const DESCRIPTION_BYTES: usize = 4_096;
/// What a description says where the schema of the parameters is left out.
const UNSHOWN: &str =
    "[The schema of its parameters is not shown: invisible characters hide in it.]";

/// What a model is told of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// What the tool is called on a server that is named so; without its device where there are several.
    pub name: String,
    /// The device's own words, made safe.
    pub description: Option<String>,
    /// The JSON Schema of its parameters: always of an object.
    pub parameters: Map<String, Value>,
}

/// Describes a service by its registered definition.
#[must_use]
pub fn describe(service: &str, definition: &Value, naming: Naming) -> Described {
    let description = definition.get("description").and_then(Value::as_str);
    let mut description = description.map(|words| clean_to(words, DESCRIPTION_BYTES));
    let mut parameters = object_schema(definition.get("parameters"));
    if members_hide_something(&parameters) {
        // Without those characters it would be another schema, and with them a model reads what people do not see.
        parameters = object_schema(None);
        let words = description.get_or_insert_default();
        words.push_str(if words.is_empty() { "" } else { "\n" });
        words.push_str(UNSHOWN);
    }
    Described {
        name: naming.service(service),
        description,
        parameters,
    }
}

/// As registered, with `type: object`, which models' providers insist on and every set of params is anyway.
fn object_schema(registered: Option<&Value>) -> Map<String, Value> {
    let mut schema = match registered {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::new(),
    };
    schema.insert("type".to_owned(), "object".into());
    clean_schema(&mut schema);
    schema
}
