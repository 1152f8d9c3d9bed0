//! Fragments as providers send them, and the calls that they form.

use super::*;
use serde_json::json;

/// The calls of a stream: each element of `pieces` is a list of fragments.
fn assemble(pieces: &Value, whole: bool) -> Result<Vec<ToolCall>, LimitExceeded> {
    let mut assembler = ToolCallAssembler::default();
    for piece in pieces.as_array().unwrap() {
        assembler.push(serde_json::from_str(&piece.to_string()).unwrap(), whole)?;
    }
    let calls = assembler.finish(false)?;
    let ids: HashSet<_> = calls.iter().map(|call| call.id.as_str()).collect();
    assert!(ids.len() == calls.len() && !ids.contains(""), "{calls:?}");
    Ok(calls)
}

/// Compares with expected calls as `[id, name, arguments]`. A null id is generated; arguments as a
/// string are raw.
#[track_caller]
fn assert_calls(calls: &[ToolCall], expected: &Value) {
    let found: Vec<_> = calls
        .iter()
        .zip(expected.as_array().unwrap())
        .map(|(call, expected)| {
            let is_generated = expected[0].is_null() && call.id.len() == ID_LENGTH;
            let id = if is_generated {
                Value::Null
            } else {
                json!(call.id)
            };
            let arguments = match &call.arguments {
                Ok(arguments) => json!(arguments),
                Err(raw) => json!(raw),
            };
            json!([id, call.name, arguments])
        })
        .collect();
    assert_eq!(&json!(found), expected);
    assert_eq!(calls.len(), expected.as_array().unwrap().len(), "{calls:?}");
}

#[track_caller]
fn check(pieces: Value, expected: Value) {
    assert_calls(&assemble(&pieces, false).unwrap(), &expected);
}

#[track_caller]
fn check_whole(list: Value, expected: Value) {
    assert_calls(&assemble(&json!([list]), true).unwrap(), &expected);
}

/// A fragment. A field that is null counts as absent.
fn part(index: Value, id: Value, name: Value, arguments: Value) -> Value {
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

const NO: Value = Value::Null;

fn a(number: u8) -> String {
    format!(r#"{{"a":{number}}}"#)
}

#[test]
fn fragments_are_assembled() {
    check(
        json!([
            [part(json!(0), json!("x"), json!("f"), json!(""))],
            [part(json!(0), NO, NO, json!(r#"{"a""#))],
            [part(json!(0), json!(""), json!(""), json!(":1}"))],
            [part(json!(1), json!("y"), json!("g"), json!(r#"{"b":"#))],
            [part(json!(1), NO, NO, json!("2}"))],
        ]),
        json!([["x", "f", {"a": 1}], ["y", "g", {"b": 2}]]),
    );
    // Alternating, with id and name in each fragment.
    check(
        json!([
            [
                part(json!(0), json!("x"), json!("f"), json!(r#"{"a""#)),
                part(json!(1), json!("y"), json!("f"), json!(r#"{"a""#))
            ],
            [
                part(json!(1), json!("y"), json!("f"), json!(":2}")),
                part(json!(0), json!("x"), json!("f"), json!(":1}"))
            ],
        ]),
        json!([["x", "f", {"a": 1}], ["y", "f", {"a": 2}]]),
    );
    // The name comes after the id.
    check(
        json!([
            [part(json!(0), json!("x"), NO, NO)],
            [part(json!(0), NO, json!("f"), json!("{}"))]
        ]),
        json!([["x", "f", {}]]),
    );
}

#[test]
fn missing_index_is_tolerated() {
    check(
        json!([
            [part(NO, json!("x"), json!("f"), json!(r#"{"a""#))],
            [part(NO, json!("y"), json!("g"), json!(r#"{"b""#))],
            [part(NO, json!("x"), NO, json!(":1}"))],
            [part(NO, json!("y"), NO, json!(":2}"))],
        ]),
        json!([["x", "f", {"a": 1}], ["y", "g", {"b": 2}]]),
    );
    // Without an id, by order.
    check(
        json!([
            [part(NO, NO, json!("f"), json!(r#"{"a""#))],
            [part(NO, NO, NO, json!(":1}"))],
            [part(NO, NO, json!("g"), json!(a(2)))],
        ]),
        json!([[null, "f", {"a": 1}], [null, "g", {"a": 2}]]),
    );
    // In one chunk they are two calls, although they are equal.
    check(
        json!([[part(NO, NO, json!("f"), NO), part(NO, NO, json!("f"), NO)]]),
        json!([[null, "f", {}], [null, "f", {}]]),
    );
}

#[test]
fn repeated_index_is_tolerated() {
    check(
        json!([
            [part(json!(0), json!("x"), json!("f"), json!(a(1)))],
            [part(json!(0), json!("y"), json!("f"), json!(r#"{"a""#))],
            [part(json!(0), NO, NO, json!(":2}"))],
            [part(json!(0), json!("z"), json!("g"), json!(""))],
        ]),
        json!([["x", "f", {"a": 1}], ["y", "f", {"a": 2}], ["z", "g", {}]]),
    );
    // Without ids, a new name is a new call.
    check(
        json!([
            [part(json!(0), NO, json!("f"), json!(a(1)))],
            [part(json!(0), NO, json!("g"), json!(a(2)))],
        ]),
        json!([[null, "f", {"a": 1}], [null, "g", {"a": 2}]]),
    );
    // A new id in each fragment, without a name: the same call.
    check(
        json!([
            [part(json!(0), json!("x"), json!("f"), json!(r#"{"a""#))],
            [part(json!(0), json!("y"), NO, json!(":1}"))],
        ]),
        json!([["x", "f", {"a": 1}]]),
    );
}

#[test]
fn ids_are_unique() {
    let same = [
        part(json!(0), json!("x"), json!("f"), json!(a(1))),
        part(json!(1), json!("x"), json!("f"), json!(a(2))),
    ];
    let expected = json!([["x", "f", {"a": 1}], [null, "f", {"a": 2}]]);
    check(json!([[same[0]], [same[1]]]), expected.clone());
    check_whole(json!(same), expected);
    check_whole(
        json!([
            part(NO, json!("x"), json!("f"), json!(a(1))),
            part(NO, json!("x"), json!("g"), json!(a(2)))
        ]),
        json!([["x", "f", {"a": 1}], [null, "g", {"a": 2}]]),
    );
    check(
        json!([[part(json!(0), json!(7), json!("f"), NO)]]),
        json!([[null, "f", {}]]),
    );
}

#[test]
fn arguments_have_several_forms() {
    #[track_caller]
    fn shape(arguments: Value, expected: &[Value]) {
        let expected: Vec<_> = expected
            .iter()
            .enumerate()
            .map(|(turn, arguments)| {
                let id = if turn == 0 { json!("x") } else { NO };
                json!([id, "f", arguments])
            })
            .collect();
        let one = part(json!(0), json!("x"), json!("f"), arguments);
        check(json!([[one]]), json!(expected));
        check_whole(json!([one]), json!(expected));
    }
    shape(NO, &[json!({})]);
    shape(json!(""), &[json!({})]);
    shape(json!(" \n"), &[json!({})]);
    shape(json!("{}"), &[json!({})]);
    shape(json!("null"), &[json!({})]);
    shape(json!({"a": 1}), &[json!({"a": 1})]);
    shape(json!("\"{\\\"a\\\":1}\""), &[json!({"a": 1})]);
    shape(json!(r#"{}{"a":1}"#), &[json!({"a": 1})]);
    shape(json!("{}{}"), &[json!({})]);
    shape(
        json!("{\"a\":1}{\"a\":2}\n{\"a\":3}"),
        &[json!({"a": 1}), json!({"a": 2}), json!({"a": 3})],
    );
    for raw in [
        "{\"a\":",
        "{\"a\":1}}",
        "{\"a\":1} and",
        "[1]",
        "7",
        "light",
    ] {
        shape(json!(raw), &[json!(raw)]);
    }
    let deep = "[".repeat(10_000);
    shape(json!(deep), &[json!(deep)]);
}

#[test]
fn empty_fragment_is_no_call() {
    check(json!([[part(json!(0), json!("x"), NO, NO)]]), json!([]));
    check(json!([[{}], []]), json!([]));
    check(
        json!([[part(json!(0), json!("x"), NO, json!(a(1)))]]),
        json!([["x", "", {"a": 1}]]),
    );
}

#[test]
fn calls_and_arguments_are_bounded() {
    let calls = |count: usize| {
        let calls = (0..count).map(|index| part(json!(index), NO, json!("f"), NO));
        json!([calls.collect::<Vec<_>>()])
    };
    assert_eq!(assemble(&calls(32), false).unwrap().len(), 32);
    assert_eq!(assemble(&calls(33), false), Err(LimitExceeded::Calls));
    let glued = part(json!(0), NO, json!("f"), json!(a(1).repeat(33)));
    assert_eq!(
        assemble(&json!([[glued]]), false),
        Err(LimitExceeded::Calls)
    );
    let long = |length: usize| {
        let half = part(json!(0), NO, json!("f"), json!("x".repeat(length / 2)));
        json!([[half], [half]])
    };
    assert!(assemble(&long(MAX_ARGUMENTS_BYTES), false).is_ok());
    let too_long = assemble(&long(MAX_ARGUMENTS_BYTES + 2), false);
    assert_eq!(too_long, Err(LimitExceeded::Arguments));
}

#[test]
fn names_and_ids_are_bounded() {
    let fits = "ä".repeat(128);
    let exact = part(json!(0), json!(fits), json!(fits), json!(a(1)));
    check(json!([[exact]]), json!([[fits, fits, {"a": 1}]]));
    let long = "ä".repeat(1_000_000);
    let long_name = part(json!(0), json!("x"), json!(format!("x{long}")), json!(a(1)));
    let cut = format!("x{}", "ä".repeat(127));
    check(json!([[long_name]]), json!([["x", cut, {"a": 1}]]));
    let long_id = part(json!(0), json!(long), json!("f"), json!(a(1)));
    check(json!([[long_id]]), json!([[null, "f", {"a": 1}]]));
    // Fragments with the same name and id belong to one call.
    let half = |arguments: &str| part(json!(0), json!(long), json!(long), json!(arguments));
    check(
        json!([[half(r#"{"a""#)], [half(":1}")]]),
        json!([[null, fits, {"a": 1}]]),
    );
}

#[test]
fn truncated_call_without_arguments_is_invalid() {
    let arguments = |is_cut_off: bool| {
        let mut assembler = ToolCallAssembler::default();
        let parts = [
            part(json!(0), json!("x"), json!("f"), NO),
            part(json!(1), json!("y"), json!("g"), json!("")),
        ];
        for part in parts {
            let part = serde_json::from_str(&json!([part]).to_string()).unwrap();
            assembler.push(part, false).unwrap();
        }
        let calls = assembler.finish(is_cut_off).unwrap();
        calls
            .into_iter()
            .map(|call| call.arguments)
            .collect::<Vec<_>>()
    };
    let none = || Ok(serde_json::Map::new());
    assert_eq!(arguments(false), [none(), none()]);
    assert_eq!(arguments(true), [none(), Err(String::new())]);
}
