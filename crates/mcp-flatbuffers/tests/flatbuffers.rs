//! The encoding compared with `flatc`, which knows the schema and not our code.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its small functions too"
)]

#[path = "flatbuffers/corpus.rs"]
mod corpus;
#[path = "flatbuffers/coverage.rs"]
mod coverage;
#[path = "flatbuffers/fbs.rs"]
mod fbs;
#[path = "flatbuffers/flatc.rs"]
mod flatc;
#[path = "flatbuffers/foreign.rs"]
mod foreign;
#[path = "flatbuffers/properties.rs"]
mod properties;
#[path = "flatbuffers/published.rs"]
mod published;

use std::time::{Duration, Instant};

use serde_json::Value;
use switchboard_mcp_flatbuffers::{self as flat, Framing, RootType};

use corpus::{Case, cases, exact};
use flatc::Flatc;

const FRAMINGS: [Framing; 2] = [Framing::Unprefixed, Framing::SizePrefixed];

fn encoded(case: &Case, framing: Framing) -> Vec<u8> {
    flat::encode_as(case.root_type(), framing, case.json.get().as_bytes())
        .unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

fn decoded(case: &Case, framing: Framing, bytes: &[u8]) -> String {
    flat::decode_as(case.root_type(), framing, bytes)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

#[test]
fn flatc_accepts_the_schema_without_warnings() {
    assert_eq!(Flatc::new().generate(), "");
}

#[test]
fn flatc_reads_encoded_buffers() {
    let flatc = Flatc::new();
    for case in cases() {
        for framing in FRAMINGS {
            let read = flatc.to_json(&case.table, framing, &encoded(&case, framing));
            let read: Value = serde_json::from_str(&read).unwrap();
            assert_eq!(read, case.flatc, "{}, {framing:?}", case.name);
        }
    }
}

#[test]
fn buffers_of_flatc_decode() {
    let flatc = Flatc::new();
    for case in cases() {
        for framing in FRAMINGS {
            let written = flatc.to_binary(&case.table, framing, &case.flatc.to_string());
            let read = decoded(&case, framing, &written);
            assert_eq!(exact(&read), exact(case.json.get()), "{}", case.name);
        }
    }
}

#[test]
fn encoded_messages_decode_to_the_same_digits() {
    for case in cases() {
        for framing in FRAMINGS {
            let read = decoded(&case, framing, &encoded(&case, framing));
            assert_eq!(exact(&read), exact(case.json.get()), "{}", case.name);
            assert!(!read.contains('\n'), "{}: {read}", case.name);
        }
    }
}

#[test]
fn split_first_separates_buffers_of_a_stream() {
    let messages = ["{}", "[]", "7"].map(|params| {
        format!(r#"{{"jsonrpc":"2.0","id":"{params}","method":"m","params":{params}}}"#)
    });
    let mut stream = Vec::new();
    for message in &messages {
        let root_type = RootType::MESSAGE;
        stream
            .extend(flat::encode_as(root_type, Framing::SizePrefixed, message.as_bytes()).unwrap());
    }
    let mut rest = stream.as_slice();
    for message in &messages {
        let (first, after) = flat::split_first(rest).unwrap();
        let read = flat::decode_as(RootType::MESSAGE, Framing::SizePrefixed, first).unwrap();
        assert_eq!(exact(&read), exact(message));
        rest = after;
    }
    assert!(rest.is_empty());
    for length in 0..stream.len() {
        let whole = flat::decode_as(RootType::MESSAGE, Framing::SizePrefixed, &stream[..length]);
        let first_alone = flat::split_first(&stream).unwrap().0.len() == length;
        assert_eq!(whole.is_ok(), first_alone, "{length}");
    }
}

#[test]
fn invalid_message_error_has_place_and_expectation() {
    #[track_caller]
    fn check(table: &str, json: &str, expect: &str) {
        let root_type = RootType::named(table).unwrap();
        let error = flat::encode_as(root_type, Framing::Unprefixed, json.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expect, "{json}");
    }
    let message = |json, expect| check("Message", json, expect);
    message("[]", "message is `[]`; expected an object");
    message(
        "{",
        "invalid JSON: EOF while parsing an object at line 1 column 1",
    );
    message("{}", "message.jsonrpc is missing; expected `\"2.0\"`");
    message(
        r#"{"jsonrpc":2.0}"#,
        "message.jsonrpc is `2.0`; expected `\"2.0\"`",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1}"#,
        "message.method is missing; expected a method, or the `result` or `error` of an answer",
    );
    message(
        r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#,
        "message.id is `[1]`; expected a string or a number",
    );
    message(
        r#"{"jsonrpc":"2.0","method":7}"#,
        "message.method is `7`; expected a string of Unicode text",
    );
    message(
        r#"{"jsonrpc":"2.0","result":{}}"#,
        "message.id is missing; expected a string or a number",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
        "message is more than one of method, result and error; expected one of them",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}"#,
        "message.error.code is missing; expected a whole number",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
        "message has the member `id` twice",
    );
    let content = r#"{"role":"user","content":{"type":"image","data":"?","mimeType":"a/b"}}"#;
    check(
        "PromptMessage",
        content,
        "PromptMessage.content.data is `\"?\"`; expected a string in base64 with padding",
    );
    check(
        "PromptMessage",
        r#"{"role":"tool","content":{}}"#,
        "PromptMessage.role is `\"tool\"`; expected `user` or `assistant`",
    );
    check(
        "Tool",
        r#"{"name":"t"}"#,
        "Tool.inputSchema is missing; expected any JSON value",
    );
    check(
        "Transport",
        r#"{"type":"pigeon"}"#,
        "Transport.type is `\"pigeon\"`; expected `stdio` or `sse`",
    );
}

#[test]
fn encode_enforces_its_limits() {
    fn check(json: &str, expect: &str) {
        let error = flat::encode(json.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }
    let method = |text: &str| format!(r#"{{"jsonrpc":"2.0","method":{text}}}"#);
    check(
        &method(&"[".repeat(100_000)),
        "nested deeper than 128 levels",
    );
    let long = format!("\"{}\"", "a".repeat(flat::MAX_BYTES - 50));
    assert!(flat::encode(method(&long).as_bytes()).is_err());
    check(&method(&"a".repeat(flat::MAX_BYTES)), "16777");
    let hints = format!(r#"{{"hints":[{}{{}}]}}"#, "{},".repeat(flat::MAX_TABLES));
    let root_type = RootType::named("ModelPreferences").unwrap();
    // The list is encoded with its table type, so the limit applies.
    let error = flat::encode_as(root_type, Framing::Unprefixed, hints.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "it becomes more than 65536 tables");
    let invalid = flat::encode(b"{\"jsonrpc\":\"\xff\"}").unwrap_err();
    assert_eq!(invalid.to_string(), "invalid JSON: not UTF-8 at byte 12");
}

/// Quadratic work would take minutes here.
#[test]
fn many_members_take_linear_time() {
    let began = Instant::now();
    let members: Vec<_> = (0..200_000)
        .map(|number| format!("\"{number}\":0"))
        .collect();
    let members = members.join(",");
    let tables = [
        ("Root", format!(r#"{{"uri":"file:///",{members}}}"#)),
        (
            "ClientCapabilities",
            format!(r#"{{"sampling":{{{members}}}}}"#),
        ),
        (
            "Message",
            format!(r#"{{"jsonrpc":"2.0","method":"m",{members}}}"#),
        ),
        (
            "Message",
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"_meta":{{{members}}}}}}}"#),
        ),
    ];
    for (table, json) in tables {
        let root_type = RootType::named(table).unwrap();
        let bytes = flat::encode_as(root_type, Framing::Unprefixed, json.as_bytes()).unwrap();
        let read = flat::decode_as(root_type, Framing::Unprefixed, &bytes).unwrap();
        assert_eq!(read.len(), json.len(), "{table}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}
