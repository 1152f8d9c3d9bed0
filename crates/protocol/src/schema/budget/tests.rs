//! The cost of schemas, and schemas that are refused before they are compiled.

use serde_json::json;

use super::*;

fn measured(schema: &Value) -> Result<Cost, Located> {
    measure(schema, &SchemaLimits::default()).map(|measured| measured.cost)
}

fn refused(schema: &Value, pointer: &str, fault: SchemaFault) {
    let expect = Err(Located {
        pointer: pointer.to_owned(),
        fault,
    });
    assert_eq!(measured(schema), expect, "{schema}");
}

fn accepted(schema: &Value) -> Cost {
    measured(schema).unwrap_or_else(|fault| panic!("{schema}: {fault:?}"))
}

/// An object schema nested in itself, `levels` deep.
fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({}), |inner, _| json!({ "not": inner }))
}

/// `$defs` of which each references the next one `fan` times.
fn chain(links: usize, fan: usize) -> Value {
    let link = |next: usize| {
        let reference = json!({ "$ref": format!("#/$defs/d{next}") });
        json!({ "anyOf": vec![reference; fan] })
    };
    let mut defs: Map<String, Value> = (0..links)
        .map(|index| (format!("d{index}"), link(index + 1)))
        .collect();
    defs.insert(format!("d{links}"), json!({ "type": "string" }));
    json!({ "$defs": defs, "properties": { "a": { "$ref": "#/$defs/d0" } } })
}

#[test]
fn schema_of_the_supplement_is_cheap() {
    let schema = json!({
        "type": "object",
        "properties": { "format": { "type": "string", "enum": ["simple", "detailed"] } },
        "required": ["format"],
    });
    assert_eq!(accepted(&schema).nodes, 10);
}

#[test]
fn reference_costs_its_target_at_each_use() {
    assert_eq!(accepted(&chain(0, 1)).nodes, 9);
    let schema = json!({
        "$defs": { "d0": { "type": "string", "pattern": "a" } },
        "properties": { "a": { "$ref": "#/$defs/d0" }, "b": { "$ref": "#/$defs/d0" } },
    });
    let cost = accepted(&schema);
    assert_eq!((cost.nodes, cost.patterns), (16, 3));
}

#[test]
fn size_depth_and_node_count_are_limited() {
    accepted(&nested(16));
    refused(
        &nested(17),
        &"/not".repeat(16),
        SchemaFault::TooDeep { limit: 16 },
    );
    let data = (1..16).fold(json!([]), |inner, _| json!([inner]));
    refused(
        &json!({ "const": data }),
        "/const",
        SchemaFault::TooDeep { limit: 16 },
    );

    let list: Vec<usize> = (0..498).collect();
    accepted(&json!({ "enum": list }));
    let list: Vec<usize> = (0..499).collect();
    refused(
        &json!({ "enum": list }),
        "/enum",
        SchemaFault::TooManyNodes { limit: 500 },
    );

    let text = "x".repeat(16 * 1024);
    refused(
        &json!({ "title": text }),
        "",
        SchemaFault::TooLarge { limit: 16 * 1024 },
    );
}

#[test]
fn reference_bomb_is_refused_unexpanded() {
    accepted(&chain(6, 2));
    refused(
        &chain(20, 1),
        "/$defs/d4",
        SchemaFault::TooDeepExpansion { limit: 32 },
    );
    refused(&chain(10, 3), "", SchemaFault::TooExpansive { limit: 2000 });
    refused(&chain(12, 8), "", SchemaFault::TooExpansive { limit: 2000 });
}

#[test]
fn cyclic_reference_is_refused() {
    refused(
        &json!({ "not": { "$ref": "#" } }),
        "",
        SchemaFault::CyclicRef,
    );
    let pair = json!({ "$defs": {
        "a": { "items": { "$ref": "#/$defs/b" } },
        "b": { "not": { "$ref": "#/$defs/a" } },
    } });
    refused(&pair, "/$defs/a", SchemaFault::CyclicRef);
}

#[test]
fn reference_must_target_a_local_schema() {
    fn check(reference: &str, expect: Option<SchemaFault>) {
        let schema = json!({
            "$defs": { "a b/c~d": true, "时间": {}, "x": { "enum": [{}], "properties": { "p": {} } } },
            "properties": { "p": { "$ref": reference } },
        });
        assert_eq!(
            measured(&schema).err().map(|located| located.fault),
            expect,
            "{reference}"
        );
    }
    check("#/$defs/x", None);
    check("#/$defs/x/properties/p", None);
    check("#/$defs/a%20b~1c~0d", None);
    check("#/$defs/%E6%97%B6%E9%97%B4", None);
    for remote in [
        "https://example.com/a",
        "other.json",
        "/$defs/x",
        "#x",
        "",
        "x#/$defs/x",
    ] {
        check(remote, Some(SchemaFault::RemoteRef));
    }
    for dangling in [
        "#/$defs",
        "#/$defs/y",
        "#/$defs/x/enum/0",
        "#/properties",
        "#/%FF",
        "#/%4",
    ] {
        check(dangling, Some(SchemaFault::DanglingRef));
    }
}

#[test]
fn forbidden_keyword_is_allowed_as_a_name_or_in_data() {
    for keyword in FORBIDDEN {
        let fault = SchemaFault::Forbidden { keyword };
        let pointer = join("", keyword);
        refused(&json!({ keyword: false }), &pointer, fault.clone());
        refused(
            &json!({ "items": { keyword: "a" } }),
            &format!("/items{pointer}"),
            fault.clone(),
        );
        refused(
            &json!({ "anyOf": [{ keyword: {} }] }),
            &format!("/anyOf/0{pointer}"),
            fault,
        );
        accepted(&json!({ "properties": { keyword: { "type": "string" } } }));
        accepted(&json!({ "$defs": { keyword: true } }));
        for data in ["enum", "const", "default", "examples", "x-ours"] {
            accepted(&json!({ data: [{ keyword: { "$ref": "https://example.com" } }] }));
        }
    }
}

#[test]
fn unknown_type_or_dialect_is_refused() {
    let placeholder = json!({ "type": "string|number|boolean|array|object" });
    refused(
        &json!({ "properties": { "p": placeholder } }),
        "/properties/p/type",
        SchemaFault::BadType,
    );
    for bad in [
        json!("String"),
        json!([]),
        json!(["string", 1]),
        json!({}),
        json!(null),
    ] {
        refused(&json!({ "type": bad }), "/type", SchemaFault::BadType);
    }
    accepted(&json!({ "type": ["string", "null"] }));
    accepted(&json!({ "$schema": DIALECT }));
    for other in [
        "http://json-schema.org/draft-07/schema#",
        "https://example.com",
    ] {
        refused(
            &json!({ "$schema": other }),
            "/$schema",
            SchemaFault::OtherDraft,
        );
    }
}

#[test]
fn pattern_count_and_length_are_limited() {
    let long = "a".repeat(MAX_PATTERN_BYTES + 1);
    let too_long = SchemaFault::PatternTooLong {
        limit: MAX_PATTERN_BYTES,
    };
    refused(&json!({ "pattern": long }), "/pattern", too_long.clone());
    let named = json!({ "patternProperties": { long.clone(): {} } });
    refused(&named, &format!("/patternProperties/{long}"), too_long);

    let patterns = |count| vec![json!({ "pattern": "a" }); count];
    assert_eq!(
        accepted(&json!({ "allOf": patterns(MAX_PATTERNS) })).patterns,
        MAX_PATTERNS
    );
    let named = accepted(&json!({ "patternProperties": { "a": { "pattern": "b" } } }));
    assert_eq!((named.patterns, named.name_patterns), (1, 1));
    let too_many = SchemaFault::TooManyPatterns {
        limit: MAX_PATTERNS,
    };
    refused(
        &json!({ "allOf": patterns(MAX_PATTERNS + 1) }),
        "/allOf/16/pattern",
        too_many,
    );
}

#[test]
fn dependencies_accepts_names_and_schemas() {
    let dependencies = |inner: Value| json!({ "dependencies": { "a": ["b"], "c": inner } });
    accepted(&dependencies(json!({ "required": ["d"] })));
    let fault = SchemaFault::InnerId;
    refused(
        &dependencies(json!({ "$id": "x" })),
        "/dependencies/c/$id",
        fault,
    );
}
