//! Checks that the corpus uses every table, field, union member and enum value of the schema.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    corpus::cases,
    fbs::{Definition, definitions},
};

/// What a value of `flatc` uses, as `Table.field`, `Union.Member` and `Enum.Value`.
fn walk(schema: &[Definition], kind: &str, value: &Value, used: &mut BTreeSet<String>) {
    let Some(definition) = schema.iter().find(|definition| definition.name == kind) else {
        return;
    };
    match (definition.keyword.as_str(), value) {
        ("enum", Value::String(name)) => {
            used.insert(format!("{kind}.{name}"));
        }
        (_, Value::Object(members)) => {
            used.insert(kind.to_owned());
            for part in definition.parts.iter().filter(|part| part.required) {
                assert!(
                    members.contains_key(&part.name),
                    "{kind} lacks {}",
                    part.name
                );
            }
            for (name, value) in members {
                let Some(part) = definition.parts.iter().find(|part| part.name == *name) else {
                    assert!(name.ends_with("_type"), "{kind} has no field {name}");
                    continue;
                };
                used.insert(format!("{kind}.{name}"));
                let member = members.get(&format!("{name}_type")).and_then(Value::as_str);
                if let Some(member) = member {
                    used.insert(format!("{}.{member}", part.kind));
                }
                let items = match value {
                    Value::Array(items) if part.list => items.as_slice(),
                    value => std::slice::from_ref(value),
                };
                for item in items {
                    walk(schema, member.unwrap_or(&part.kind), item, used);
                }
            }
        }
        (keyword, value) => panic!("{keyword} {kind} is {value}"),
    }
}

/// Everything that the schema defines.
fn all(schema: &[Definition]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for Definition {
        keyword,
        name,
        parts,
    } in schema
    {
        if matches!(keyword.as_str(), "table" | "struct") {
            all.insert(name.clone());
        }
        all.extend(parts.iter().map(|part| format!("{name}.{}", part.name)));
    }
    all
}

#[test]
fn corpus_covers_the_schema() {
    let schema = definitions();
    let mut used = BTreeSet::new();
    for case in cases() {
        walk(&schema, &case.table, &case.flatc, &mut used);
    }
    let all = all(&schema);
    assert!(
        all.len() > 200,
        "only {} definitions in the schema",
        all.len()
    );
    let missing: Vec<_> = all.difference(&used).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
}

#[test]
fn uncovered_parts_are_found() {
    let schema = definitions();
    let mut used = BTreeSet::new();
    let value = serde_json::json!({"role": "User", "content_type": "OtherContent", "content": {"json": "1"}});
    walk(&schema, "PromptMessage", &value, &mut used);
    for name in ["Role.User", "Content.OtherContent", "PromptMessage.content"] {
        assert!(used.contains(name), "{name}: {used:?}");
    }
    let all = all(&schema);
    for name in [
        "Role.Assistant",
        "TextContent.text",
        "PromptMessage.extra",
        "RequestId.id",
    ] {
        assert!(all.contains(name) && !used.contains(name), "{name}");
    }
}
