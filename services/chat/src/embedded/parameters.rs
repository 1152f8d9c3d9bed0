//! What a service wants to be told, read from its schema.
//! Never: a check of values; the device's node does that against the whole schema.

use serde_json::{Map, Value};

use super::{features, words::Sentence};

/// What a parameter takes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Takes {
    OneOf(Vec<Value>),
    Flag,
    Whole,
    Number,
    Text,
    /// Something that a sentence does not say.
    Structure,
}

/// One parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) takes: Takes,
    pub(super) required: bool,
    /// The most that a number may be.
    pub(super) maximum: Option<f64>,
    /// What its name and description say.
    pub(super) words: Sentence,
    pub(super) features: std::collections::HashSet<features::Feature>,
}

/// The parameters of a schema: the required ones in their order, then the others by name.
pub(super) fn read(schema: Option<&Value>) -> Vec<Parameter> {
    let Some(properties) = schema
        .and_then(|schema| schema.get("properties"))
        .and_then(Value::as_object)
    else {
        return Vec::new();
    };
    let required = schema
        .and_then(|schema| schema.get("required"))
        .and_then(Value::as_array);
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let named = required
        .iter()
        .filter_map(|name| Some((*name, properties.get(*name)?)));
    let others = properties
        .iter()
        .map(|(name, schema)| (name.as_str(), schema));
    let others = others.filter(|(name, _)| !required.contains(name));
    named
        .chain(others)
        .map(|(name, schema)| parameter(name, schema, required.contains(&name)))
        .collect()
}

fn parameter(name: &str, schema: &Value, required: bool) -> Parameter {
    let empty = Map::new();
    let schema = schema.as_object().unwrap_or(&empty);
    let description = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let words = Sentence::read(&format!("{name}. {description}"));
    let features = features::present(&Sentence::read(name));
    Parameter {
        name: name.to_owned(),
        takes: takes(schema),
        required,
        maximum: schema.get("maximum").and_then(Value::as_f64),
        words,
        features,
    }
}

fn takes(schema: &Map<String, Value>) -> Takes {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Takes::OneOf(values.clone());
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null")
            .unwrap_or("string"),
        _ => "string",
    };
    match kind {
        "boolean" => Takes::Flag,
        "integer" => Takes::Whole,
        "number" => Takes::Number,
        "string" => Takes::Text,
        _ => Takes::Structure,
    }
}
