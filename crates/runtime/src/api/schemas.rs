//! Completes schemas: `examples`, flattened objects and limits. Schemas of the API are not
//! recursive.

use serde_json::{Map, Value, json};

/// The largest integer that every JSON parser reads exactly: 2^53 - 1.
const MAX_INTEGER: u64 = 9_007_199_254_740_991;

/// Keywords whose values are lists of schemas.
const BRANCHES: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Completes all schemas.
pub(super) fn finish(schemas: &mut Value) {
    let names: Vec<_> = schemas
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect();
    for name in &names {
        flatten(schemas, name);
    }
    for name in &names {
        rewrite(&mut schemas[name]);
    }
}

/// Merges the parts of an `allOf` into one object.
fn flatten(schemas: &mut Value, name: &str) {
    let Some(parts) = schemas[name]["allOf"].as_array().cloned() else {
        return;
    };
    let mut whole = json!({"type": "object", "required": [], "properties": {}});
    for part in parts {
        let part = match reference(&part) {
            Some(other) => schemas[other].clone(),
            None => part,
        };
        for (member, schema) in part["properties"].as_object().into_iter().flatten() {
            whole["properties"][member] = schema.clone();
        }
        if let (Some(all), Some(required)) = (
            whole["required"].as_array_mut(),
            part["required"].as_array(),
        ) {
            all.extend(required.iter().cloned());
        }
    }
    whole["description"] = schemas[name]["description"].clone();
    schemas[name] = whole;
}

/// Replaces `example` by `examples`, its successor in JSON Schema, and bounds numbers by their type.
fn rewrite(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let is_schema = members.get("type").is_some_and(|kind| !kind.is_object())
                || members.contains_key("oneOf")
                || members.contains_key("$ref");
            if is_schema && let Some(example) = members.remove("example") {
                members.insert("examples".to_owned(), json!([example]));
            }
            if is_schema {
                bound(members);
                open(members);
            }
            for value in members.values_mut() {
                rewrite(value);
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(rewrite),
        _ => {}
    }
}

/// Adds the bounds of its type to the schema of a number that has no other ones. Numbers of the API
/// are counts, ids and amounts: none is negative unless its schema allows it.
fn bound(members: &mut Map<String, Value>) {
    let is = |name: &str| match &members["type"] {
        Value::Array(types) => types.contains(&json!(name)),
        only => only == name,
    };
    if members.contains_key("const") || !members.contains_key("type") {
        return;
    }
    let (is_integer, is_number) = (is("integer"), is("number"));
    if !is_integer && !is_number {
        return;
    }
    let max = match members.get("format").and_then(Value::as_str) {
        Some("int32") => json!(i32::MAX),
        _ => json!(MAX_INTEGER),
    };
    members.entry("minimum").or_insert(json!(0));
    members.entry("maximum").or_insert(max);
}

/// States that an object without defined members has any: generators of clients take it for an empty one
/// otherwise.
fn open(members: &mut Map<String, Value>) {
    let is_object = match &members.get("type") {
        Some(Value::Array(types)) => types.contains(&json!("object")),
        Some(only) => *only == "object",
        None => false,
    };
    if is_object && !members.contains_key("properties") {
        let values = members.entry("additionalProperties");
        values.or_insert(true.into());
    }
}

/// Returns the name of the schema that `$ref` points to.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"]
        .as_str()?
        .strip_prefix("#/components/schemas/")
}

/// Adds keywords to all schemas at a path within a schema.
pub(super) fn limit(schemas: &mut Value, name: &str, place: &str, limits: &Map<String, Value>) {
    let parts: Vec<_> = place.split('/').skip(1).collect();
    for pointer in find(schemas, &format!("/{name}"), &parts) {
        if let Some(Value::Object(schema)) = schemas.pointer_mut(&pointer) {
            schema.extend(limits.clone());
        }
    }
}

/// Returns the JSON pointers of all schemas at a path.
fn find(schemas: &Value, at: &str, parts: &[&str]) -> Vec<String> {
    let Some(schema) = schemas.pointer(at) else {
        return Vec::new();
    };
    if let Some(other) = reference(schema) {
        return find(schemas, &format!("/{other}"), parts);
    }
    let mut found = Vec::new();
    for branch in BRANCHES {
        let count = schema[branch].as_array().map_or(0, Vec::len);
        found.extend(
            (0..count).flat_map(|index| find(schemas, &format!("{at}/{branch}/{index}"), parts)),
        );
    }
    match parts {
        [] if found.is_empty() && schema["type"] != "null" => found.push(at.to_owned()),
        ["*", rest @ ..] => found.extend(find(schemas, &format!("{at}/items"), rest)),
        [member, rest @ ..] => {
            found.extend(find(schemas, &format!("{at}/properties/{member}"), rest))
        }
        [] => {}
    }
    found
}

/// Forbids undefined members in a schema and in those it contains.
pub(super) fn close(schemas: &mut Value, name: &str) {
    let mut open = vec![format!("/{name}")];
    while let Some(at) = open.pop() {
        let Some(schema) = schemas.pointer_mut(&at) else {
            continue;
        };
        if let Some(other) = reference(schema) {
            open.push(format!("/{other}"));
            continue;
        }
        if schema["properties"].is_object() {
            schema["additionalProperties"] = false.into();
        }
        let members = schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(Map::keys);
        open.extend(members.map(|member| format!("{at}/properties/{member}")));
        if schema["items"].is_object() {
            open.push(format!("{at}/items"));
        }
        for branch in BRANCHES {
            let count = schema[branch].as_array().map_or(0, Vec::len);
            open.extend((0..count).map(|index| format!("{at}/{branch}/{index}")));
        }
    }
}

/// Adds a merge patch schema: all members of its target, optional, with null to remove a member.
pub(super) fn add_patch(schemas: &mut Value, patch: &str, of: &str) {
    let mut patched = schemas[of].clone();
    if let Some(members) = patched.as_object_mut() {
        members.remove("required");
        members.insert("additionalProperties".to_owned(), false.into());
        members.insert(
            "description".to_owned(),
            "A JSON merge patch (RFC 7396): absent members are unchanged, null removes a member."
                .into(),
        );
    }
    for schema in patched["properties"]
        .as_object_mut()
        .into_iter()
        .flat_map(Map::values_mut)
    {
        let described = schema["description"].clone();
        let sent = std::mem::take(schema);
        // Some members are nullable themselves, so more than one branch can match.
        *schema = json!({"anyOf": [{"type": "null"}, sent]});
        if described.is_string() {
            schema["description"] = described;
        }
    }
    schemas[patch] = patched;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_apply_to_referenced_schemas() {
        let mut schemas = json!({
            "A": {"type": "object", "properties": {"b": {"oneOf": [{"type": "null"}, {"$ref": "#/components/schemas/B"}]}}},
            "B": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": ["string", "null"]}}}},
        });
        let limits = json!({"maxLength": 3}).as_object().unwrap().clone();
        limit(&mut schemas, "A", "/b/tags/*", &limits);
        assert_eq!(schemas["B"]["properties"]["tags"]["items"]["maxLength"], 3);
        close(&mut schemas, "A");
        assert_eq!(schemas["B"]["additionalProperties"], false);
        assert_eq!(schemas["A"]["additionalProperties"], false);
    }
}
