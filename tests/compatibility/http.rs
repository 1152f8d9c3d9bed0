//! Compatibility of the HTTP API: routes, parameters, names of JSON fields, problem types.
//!
//! `docs/openapi.json` is reviewed with its prose; here is only what clients depend on.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use switchboard_test_support::snapshot;

use crate::{document, operations, resolved, variants};

/// Literals that are part of stored keys and secrets, or names of channels in PostgreSQL.
const STORED_LITERALS: [&str; 7] = [
    "mcp_request_state",
    "webhook secrets",
    "switchboard idempotent answer",
    "switchboard_calls",
    "switchboard.speaker",
    "switchboard://skills-books/",
    "whsec_",
];

/// How deep fields are followed: a schema may contain itself.
const MAX_DEPTH: usize = 8;

/// The names of all fields of a schema with their types, such as `items/*/name:string`.
fn fields(document: &Value, schema: &Value, path: &str, out: &mut BTreeSet<String>) {
    if path.matches('/').count() > MAX_DEPTH {
        return;
    }
    let schema = resolved(document, schema);
    let required: Vec<&Value> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let mark = if required.iter().any(|one| *one == name) {
            "!"
        } else {
            ""
        };
        let kinds: BTreeSet<String> = variants(document, field)
            .iter()
            .map(|one| kind(one))
            .collect();
        let kinds: Vec<String> = kinds.into_iter().collect();
        out.insert(format!("{path}{name}{mark}:{}", kinds.join("|")));
        fields(document, field, &format!("{path}{name}/"), out);
    }
    if !schema["items"].is_null() {
        fields(document, &schema["items"], &format!("{path}*/"), out);
    }
    for branch in ["oneOf", "anyOf", "allOf"] {
        for schema in schema[branch].as_array().into_iter().flatten() {
            fields(document, schema, path, out);
        }
    }
}

/// The type of a field, with the values that it can have where they are listed.
fn kind(schema: &Value) -> String {
    let mut kind = schema["type"].to_string().replace('"', "");
    for values in ["enum", "const"] {
        if !schema[values].is_null() {
            kind += &schema[values].to_string().replace('"', "");
        }
    }
    kind
}

fn content(document: &Value, at: &str, content: &Value, lines: &mut Vec<String>) {
    for (media_type, body) in content["content"].as_object().into_iter().flatten() {
        let mut names = BTreeSet::new();
        fields(document, &body["schema"], "", &mut names);
        let names: Vec<String> = names.into_iter().collect();
        lines.push(
            format!("{at} {media_type} {}", names.join(" "))
                .trim_end()
                .to_owned(),
        );
    }
}

#[test]
fn routes_and_fields_are_unchanged() {
    let document = document();
    let mut lines = Vec::new();
    for (name, operation) in operations(&document) {
        lines.push(name.clone());
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = resolved(&document, parameter);
            let mark = if parameter["required"] == true {
                "!"
            } else {
                ""
            };
            let (place, called) = (&parameter["in"], &parameter["name"]);
            let kind = kind(resolved(&document, &parameter["schema"]));
            lines.push(format!("{name} {place} {called}{mark}:{kind}").replace('"', ""));
        }
        content(
            &document,
            &format!("{name} request"),
            &operation["requestBody"],
            &mut lines,
        );
        for (status, response) in operation["responses"].as_object().into_iter().flatten() {
            let at = format!("{name} {status}");
            let headers = response["headers"].as_object().into_iter().flatten();
            lines.extend(headers.map(|(header, _)| format!("{at} header {header}")));
            if response["content"]["application/problem+json"].is_null() {
                lines.push(at.clone());
                content(&document, &at, response, &mut lines);
            }
        }
        lines.extend(
            problems(&document, operation).map(|(status, kind)| format!("{name} {status} {kind}")),
        );
    }
    snapshot::check("http.txt", lines);
}

/// The types of problems of an operation, with their status.
fn problems<'a>(
    document: &'a Value,
    operation: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a str)> {
    let responses = operation["responses"].as_object().into_iter().flatten();
    responses.flat_map(move |(status, response)| {
        let schema = &response["content"]["application/problem+json"]["schema"];
        let schemas = match schema["oneOf"].as_array() {
            Some(all) => all.as_slice(),
            None => std::slice::from_ref(schema),
        };
        let kinds = schemas.iter().map(|one| resolved(document, one));
        let kinds = kinds.filter_map(|one| one["properties"]["type"]["const"].as_str());
        kinds.map(move |kind| (status, kind))
    })
}

/// Every string literal of the programs, as it is written; tests stand behind `mod tests`.
fn literals(folder: &Path, out: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() && name != "tests" {
            literals(&path, out);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            let program = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            out.extend(program.split('"').map(str::to_owned));
        }
    }
}

/// `slug status title` of every kind of problem. Titles are not in the document: the code has to
/// contain them as literals.
#[test]
fn problem_types_and_titles_are_unchanged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let reviewed = fs::read_to_string(root.join("tests/compatibility/problems.txt")).unwrap();
    let mut literals = BTreeSet::new();
    for folder in ["crates", "services"] {
        self::literals(&root.join(folder), &mut literals);
    }
    let mut frozen = BTreeSet::new();
    for line in reviewed.lines() {
        let (slug, rest) = line.split_once(' ').unwrap();
        let (status, title) = rest.split_once(' ').unwrap();
        frozen.insert((slug.to_owned(), status.to_owned()));
        assert!(
            literals.contains(title),
            "compatibility break: no problem has the title {title:?} of {slug} any longer"
        );
    }
    for literal in STORED_LITERALS {
        assert!(
            literals.contains(literal),
            "compatibility break: {literal:?} is part of stored data, and no code has it any longer"
        );
    }
    let document = document();
    let operations = operations(&document);
    let kinds = operations
        .iter()
        .flat_map(|(_, operation)| problems(&document, operation));
    for (status, kind) in kinds {
        let slug = kind.trim_start_matches("/problems/");
        assert!(
            frozen.contains(&(slug.to_owned(), status.clone())),
            "the problem {slug} with status {status} is not in tests/compatibility/problems.txt: \
             a changed status is a compatibility break, a new kind is added there"
        );
    }
}
