//! Completes operations: problems, shared headers and required bodies.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::problems;
use crate::problem::ProblemKind;

/// Methods that can have operations.
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// Headers shared by operations.
pub(super) fn parameters() -> Value {
    json!({
        "IdempotencyKey": {
            "name": "Idempotency-Key", "in": "header", "required": false, "example": "6f1c0d2e",
            "description": "Identifies this request. If the same caller repeats it within 24 hours with the same method, path \
                            and body, the first response is returned and nothing is executed.",
            "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
        },
        "IfMatch": {
            "name": "If-Match", "in": "header", "required": true, "example": "\"1\"",
            "description": "The ETag of the version to change.",
            "schema": {"type": "string", "pattern": "^(\\*|\"[0-9]{1,19}(-[0-9]{1,19})?\")$"},
        },
    })
}

pub(super) fn finish(document: &mut Value, kinds: &[ProblemKind]) {
    let Some(paths) = document["paths"].as_object_mut() else {
        return;
    };
    for item in paths.values_mut().filter_map(Value::as_object_mut) {
        for method in METHODS {
            if let Some(operation) = item.get_mut(method).and_then(Value::as_object_mut) {
                finish_one(operation, kinds);
            }
        }
    }
}

fn finish_one(operation: &mut Map<String, Value>, kinds: &[ProblemKind]) {
    let parameters = operation
        .get_mut("parameters")
        .and_then(Value::as_array_mut);
    parameters.into_iter().flatten().for_each(never_null);
    if let Some(body) = operation.get_mut("requestBody") {
        // No operation has an optional body.
        body["required"] = true.into();
    }
    let mut found: Vec<ProblemKind> = implied(operation);
    if operation.remove("x-idempotent").is_some() {
        found.extend(problems::IDEMPOTENT);
        take(operation, "IdempotencyKey");
        replayable(operation);
    }
    if operation.remove("x-if-match").is_some() {
        found.extend(problems::CONDITIONAL);
        take(operation, "IfMatch");
    }
    let named = operation.remove("x-problems").unwrap_or_default();
    // `overloaded` has two statuses: only a request with a body can be too large.
    let has_body = operation.contains_key("requestBody");
    let known = |slug: &Value| {
        let slug = slug.clone();
        let all = kinds.iter().chain(problems::NAMED);
        all.filter(move |kind| slug == kind.slug())
            .filter(move |kind| has_body || kind.status() != StatusCode::PAYLOAD_TOO_LARGE)
            .copied()
    };
    let named = named.as_array().cloned().unwrap_or_default();
    found.extend(named.iter().flat_map(known));
    let unknown: Vec<_> = named
        .into_iter()
        .filter(|slug| known(slug).next().is_none())
        .collect();
    if !unknown.is_empty() {
        // A test reports unknown kinds.
        operation.insert("x-problems".to_owned(), unknown.into());
    }
    let mut by_status: BTreeMap<u16, Vec<ProblemKind>> = BTreeMap::new();
    for kind in found {
        let kinds = by_status.entry(kind.status().as_u16()).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (status, kinds) in by_status {
        operation["responses"][status.to_string()] = response(status, &kinds);
    }
}

/// Returns the problems implied by security, body and query of an operation.
fn implied(operation: &Map<String, Value>) -> Vec<ProblemKind> {
    let mut found = problems::ALWAYS.to_vec();
    let security = operation.get("security").and_then(Value::as_array);
    let schemes = || security.into_iter().flatten();
    if schemes().next().is_some() {
        found.extend(problems::AUTHENTICATED);
    }
    if schemes().any(|scheme| scheme.get("credential").is_some()) {
        found.extend(problems::CREDENTIALS);
    }
    if let Some(content) = operation
        .get("requestBody")
        .and_then(|body| body["content"].as_object())
    {
        found.extend(problems::BODY);
        if content
            .keys()
            .any(|media_type| media_type.ends_with("json"))
        {
            found.extend(problems::JSON_BODY);
        }
    }
    let parameters = operation.get("parameters").and_then(Value::as_array);
    if parameters
        .into_iter()
        .flatten()
        .any(|parameter| parameter["in"] == "query")
    {
        found.extend(problems::QUERY);
    }
    found
}

fn take(operation: &mut Map<String, Value>, parameter: &str) {
    let taken = json!({"$ref": format!("#/components/parameters/{parameter}")});
    match operation
        .get_mut("parameters")
        .and_then(Value::as_array_mut)
    {
        Some(parameters) => parameters.push(taken),
        None => {
            operation.insert("parameters".to_owned(), json!([taken]));
        }
    }
}

/// Removes `null` from the schema: a parameter of a URL or a header is absent instead.
fn never_null(parameter: &mut Value) {
    let schema = &mut parameter["schema"];
    let kinds = schema["type"].as_array();
    if let Some(kind) = kinds.and_then(|kinds| kinds.iter().find(|kind| *kind != "null").cloned()) {
        schema["type"] = kind;
    }
    let branches = schema["oneOf"].as_array();
    if let Some(only) =
        branches.and_then(|all| all.iter().find(|one| one["type"] != "null").cloned())
    {
        *schema = only;
    }
}

/// Documents the header of replayed responses on success responses.
fn replayable(operation: &mut Map<String, Value>) {
    let responses = operation
        .get_mut("responses")
        .and_then(Value::as_object_mut);
    let good = responses.into_iter().flatten();
    for (_, response) in good.filter(|(status, _)| status.starts_with('2')) {
        response["headers"]["Idempotency-Replayed"] = json!({
            "description": "`true` when this is the stored response to an earlier request with the same Idempotency-Key.",
            "schema": {"type": "string", "enum": ["true"]},
        });
    }
}

fn response(status: u16, kinds: &[ProblemKind]) -> Value {
    let lines: Vec<_> = kinds
        .iter()
        .map(|kind| format!("- `{}`: {}", kind.slug(), kind.when()))
        .collect();
    let mut names: Vec<_> = kinds
        .iter()
        .map(|kind| problems::schema_name(*kind))
        .collect();
    // Kinds that share a type differ in their title only.
    names.sort_unstable();
    names.dedup();
    let mut schemas: Vec<_> = names
        .iter()
        .map(|name| json!({"$ref": format!("#/components/schemas/{name}")}))
        .collect();
    let schema = match schemas.len() {
        1 => schemas.remove(0),
        _ => json!({"oneOf": schemas}),
    };
    let mut response = json!({
        "description": lines.join("\n"),
        "content": {"application/problem+json": {"schema": schema}},
    });
    let header = match status {
        401 => ("WWW-Authenticate", "The authentication scheme (RFC 6750)."),
        503 | 429 => ("Retry-After", "Seconds to wait before a retry."),
        _ => return response,
    };
    response["headers"][header.0] = json!({"description": header.1, "schema": {"type": "string"}});
    response
}
