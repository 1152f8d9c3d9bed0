//! The API document: complete, equal to the reviewed file, and with every route.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

#[path = "compatibility/http.rs"]
mod compatibility;

use std::{collections::BTreeSet, env, fs, path::Path};

use serde_json::Value;

/// The document that `switchboard up` serves.
fn document() -> Value {
    switchboard_gateway::document()
        .merged(switchboard_chat::document())
        .merged(switchboard_control::document())
        .as_json()
        .clone()
}

/// Refreshed with `UPDATE_OPENAPI=1 cargo test -p switchboard --test api_document`.
#[test]
fn document_matches_reviewed_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let now = format!("{}\n", serde_json::to_string_pretty(&document()).unwrap());
    if env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let reviewed = fs::read_to_string(&path).unwrap_or_default();
    let line = reviewed
        .lines()
        .zip(now.lines())
        .position(|(one, other)| one != other);
    assert!(
        reviewed == now,
        "docs/openapi.json differs from the code from line {} on; run this test with UPDATE_OPENAPI=1 and review the change",
        line.map_or(
            reviewed.lines().count().min(now.lines().count()),
            |line| line + 1
        )
    );
}

/// A doc comment beside `#[schema(inline)]` puts a schema into an `allOf` with one for the comment.
#[test]
fn parts_of_an_all_of_have_one_type() {
    let document = document();
    let mut places = Vec::new();
    find_mixed_parts(&document, &document, "", &mut places);
    assert_eq!(places, [""; 0]);
}

fn find_mixed_parts(document: &Value, value: &Value, place: &str, places: &mut Vec<String>) {
    let parts = value["allOf"].as_array().into_iter().flatten();
    let types = parts.map(|part| resolved(document, part)["type"].to_string());
    let types: BTreeSet<_> = types.filter(|kind| kind != "null").collect();
    if types.len() > 1 {
        places.push(place.to_owned());
    }
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, child)| (name.clone(), child))
            .collect(),
        Value::Array(elements) => elements
            .iter()
            .enumerate()
            .map(|(at, child)| (at.to_string(), child))
            .collect(),
        _ => Vec::new(),
    };
    for (name, child) in children {
        find_mixed_parts(document, child, &format!("{place}/{name}"), places);
    }
}

/// The operations, each with its method and path.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            found.push((format!("{method} {path}"), operation));
        }
    }
    found
}

#[test]
fn every_operation_has_description() {
    let document = document();
    let mut ids = BTreeSet::new();
    let tags = document["tags"].as_array().unwrap();
    let operations = operations(&document);
    assert!(operations.len() > 20, "{}", operations.len());
    for (name, operation) in operations {
        assert!(
            ids.insert(operation["operationId"].as_str().unwrap()),
            "{name}"
        );
        assert!(
            operation["summary"]
                .as_str()
                .is_some_and(|text| text.ends_with('.')),
            "{name}: {operation}"
        );
        assert!(
            tags.iter().any(|tag| tag["name"] == operation["tags"][0]),
            "{name} has no known tag"
        );
        assert!(
            operation["security"].is_array(),
            "{name} does not name the permitted callers"
        );
        assert_eq!(
            operation["x-problems"],
            Value::Null,
            "{name}: kinds of problems without a description"
        );
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(
                response["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{name}: {status}"
            );
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = resolved(&document, parameter);
            let place = format!("{name}: {}", parameter["name"]);
            assert!(
                parameter["description"].is_string(),
                "{place} has no description"
            );
            complain(&document, &place, &parameter["schema"], parameter);
        }
    }
}

#[test]
fn every_field_has_a_description_a_limit_and_an_example() {
    let document = document();
    let mut fields = 0;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let members = schema["properties"].as_object();
        for (member, field) in members.into_iter().flatten() {
            fields += 1;
            let place = format!("{name}.{member}");
            assert!(
                has_member(&document, field, "description"),
                "{place} has no description"
            );
            complain(&document, &place, field, field);
        }
    }
    assert!(fields > 100, "{fields}");
}

/// Fails unless the field has a limit, and `sample` or its schema an example.
fn complain(document: &Value, place: &str, field: &Value, sample: &Value) {
    for schema in variants(document, field) {
        let limited = |names: &[&str]| names.iter().any(|name| !schema[*name].is_null());
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap(),
            kind => kind,
        };
        let good = match kind.as_str().unwrap_or_default() {
            "string" => limited(&["maxLength", "pattern", "format", "enum", "const"]),
            "integer" | "number" => {
                limited(&["const"]) || (limited(&["maximum"]) && limited(&["minimum"]))
            }
            "array" => {
                complain(document, &format!("{place}/*"), &schema["items"], sample);
                limited(&["maxItems"])
            }
            "object" => {
                let values = &schema["additionalProperties"];
                if values.is_object() {
                    complain(document, &format!("{place}.*"), values, sample);
                }
                true
            }
            "boolean" => true,
            other => panic!("{place} has the type {other:?}: {schema}"),
        };
        assert!(good, "{place} has no limit: {schema}");
        let shown = has_member(document, sample, "examples") || !sample["example"].is_null();
        let composed = schema["properties"].is_object() || kind == "array";
        assert!(
            shown || composed || !schema["examples"].is_null(),
            "{place} has no example: {schema}"
        );
    }
}

/// Whether a schema, or a schema that it refers to, has this member.
fn has_member(document: &Value, schema: &Value, name: &str) -> bool {
    !schema[name].is_null()
        || variants(document, schema)
            .iter()
            .any(|schema| !schema[name].is_null())
}

/// The alternatives of a schema: itself, its target, its branches, without null.
fn variants<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let schema = resolved(document, schema);
    let branches = ["oneOf", "anyOf", "allOf"]
        .iter()
        .filter_map(|branch| schema[*branch].as_array())
        .flatten();
    let branches: Vec<_> = branches.filter(|branch| branch["type"] != "null").collect();
    if branches.is_empty() {
        return vec![schema];
    }
    branches
        .into_iter()
        .flat_map(|branch| variants(document, branch))
        .collect()
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(place) => document
            .pointer(place.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("nothing at {place}")),
        None => value,
    }
}
