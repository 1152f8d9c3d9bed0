//! The FlatBuffers encoding against `flatc`, which knows the schema and nothing of our code.
//! Never: an expectation that was only ever produced by the code it tests.

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
use switchboard_protocol::mcp::flat::{self, Framing, Subject};

use corpus::{Case, cases, exact};
use flatc::Flatc;

const FRAMINGS: [Framing; 2] = [Framing::Alone, Framing::SizePrefixed];

fn encoded(case: &Case, framing: Framing) -> Vec<u8> {
    flat::encode_as(case.subject(), framing, case.json.get().as_bytes())
        .unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

fn decoded(case: &Case, framing: Framing, bytes: &[u8]) -> String {
    flat::decode_as(case.subject(), framing, bytes)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

#[test]
fn flatc_accepts_the_schema_without_a_word() {
    assert_eq!(Flatc::new().generate(), "");
}

#[test]
fn flatc_reads_what_we_write() {
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
fn we_read_what_flatc_writes() {
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
fn what_is_written_is_read_to_the_digit() {
    for case in cases() {
        for framing in FRAMINGS {
            let read = decoded(&case, framing, &encoded(&case, framing));
            assert_eq!(exact(&read), exact(case.json.get()), "{}", case.name);
            assert!(!read.contains('\n'), "{}: {read}", case.name);
        }
    }
}

#[test]
fn buffers_in_a_row_are_told_apart() {
    let messages = ["{}", "[]", "7"].map(|params| {
        format!(r#"{{"jsonrpc":"2.0","id":"{params}","method":"m","params":{params}}}"#)
    });
    let mut stream = Vec::new();
    for message in &messages {
        let subject = Subject::MESSAGE;
        stream.extend(flat::encode_as(subject, Framing::SizePrefixed, message.as_bytes()).unwrap());
    }
    let mut rest = stream.as_slice();
    for message in &messages {
        let (first, after) = flat::first(rest).unwrap();
        let read = flat::decode_as(Subject::MESSAGE, Framing::SizePrefixed, first).unwrap();
        assert_eq!(exact(&read), exact(message));
        rest = after;
    }
    assert!(rest.is_empty());
    for length in 0..stream.len() {
        let whole = flat::decode_as(Subject::MESSAGE, Framing::SizePrefixed, &stream[..length]);
        let first_alone = flat::first(&stream).unwrap().0.len() == length;
        assert_eq!(whole.is_ok(), first_alone, "{length}");
    }
}

#[test]
fn a_wrong_message_is_refused_with_place_and_remedy() {
    #[track_caller]
    fn check(table: &str, json: &str, expect: &str) {
        let subject = Subject::named(table).unwrap();
        let error = flat::encode_as(subject, Framing::Alone, json.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expect, "{json}");
    }
    let message = |json, expect| check("Message", json, expect);
    message("[]", "message is `[]`; right would be an object");
    message(
        "{",
        "this is no JSON: EOF while parsing an object at line 1 column 1",
    );
    message("{}", "message.jsonrpc is missing; right would be `\"2.0\"`");
    message(
        r#"{"jsonrpc":2.0}"#,
        "message.jsonrpc is `2.0`; right would be `\"2.0\"`",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1}"#,
        "message.method is missing; right would be a method, or the `result` or `error` of an answer",
    );
    message(
        r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#,
        "message.id is `[1]`; right would be a string or a number",
    );
    message(
        r#"{"jsonrpc":"2.0","method":7}"#,
        "message.method is `7`; right would be a string of Unicode text",
    );
    message(
        r#"{"jsonrpc":"2.0","result":{}}"#,
        "message.id is missing; right would be a string or a number",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
        "message is more than one of method, result and error; right would be one of them",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}"#,
        "message.error.code is missing; right would be a whole number",
    );
    message(
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
        "message has `id` twice; right would be once",
    );
    let content = r#"{"role":"user","content":{"type":"image","data":"?","mimeType":"a/b"}}"#;
    check(
        "PromptMessage",
        content,
        "PromptMessage.content.data is `\"?\"`; right would be a string in base64 with padding",
    );
    check(
        "PromptMessage",
        r#"{"role":"tool","content":{}}"#,
        "PromptMessage.role is `\"tool\"`; right would be `user` or `assistant`",
    );
    check(
        "Tool",
        r#"{"name":"t"}"#,
        "Tool.inputSchema is missing; right would be any JSON value",
    );
    check(
        "Transport",
        r#"{"type":"pigeon"}"#,
        "Transport.type is `\"pigeon\"`; right would be `stdio` or `sse`",
    );
}

#[test]
fn limits_hold_on_the_way_in() {
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
    let subject = Subject::named("ModelPreferences").unwrap();
    // A list that does not fit is carried as it is; it is only written when it has few tables.
    let error = flat::encode_as(subject, Framing::Alone, hints.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "it becomes more than 65536 tables");
    let invalid = flat::encode(b"{\"jsonrpc\":\"\xff\"}").unwrap_err();
    assert_eq!(invalid.to_string(), "this is no JSON: not UTF-8 at byte 12");
}

/// Work that grows with the square of the input would take minutes here.
#[test]
fn very_many_members_take_moments() {
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
        let subject = Subject::named(table).unwrap();
        let bytes = flat::encode_as(subject, Framing::Alone, json.as_bytes()).unwrap();
        let read = flat::decode_as(subject, Framing::Alone, &bytes).unwrap();
        assert_eq!(read.len(), json.len(), "{table}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}
