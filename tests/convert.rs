//! `switchboard convert` through pipes, and its error messages. The protocol crate tests the
//! encoding.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, which reports the line"
)]

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

const TO_FLAT: [&str; 4] = ["--from", "json", "--to", "flatbuffers"];
const TO_JSON: [&str; 4] = ["--from", "flatbuffers", "--to", "json"];
const PING: &str = r#"{"jsonrpc":"2.0","id":"a-1","method":"ping","params":{"n":1e400}}"#;
const DONE: &str = r#"{"jsonrpc":"2.0","id":18446744073709551615,"result":{"_meta":{"b":1}}}"#;

fn convert(arguments: [&str; 4], more: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_switchboard"))
        .arg("convert")
        .args(arguments)
        .args(more)
        .env_remove("SWITCHBOARD_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may exit before it has read all input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn converted(arguments: [&str; 4], more: &[&str], input: &[u8]) -> Vec<u8> {
    let output = convert(arguments, more, input);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr, "");
    output.stdout
}

/// Asserts that the input is rejected with this message and without output.
#[track_caller]
fn refused(arguments: [&str; 4], more: &[&str], input: &[u8], code: i32, text: &str) {
    let output = convert(arguments, more, input);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(text), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", output.stdout.escape_ascii());
}

#[test]
fn one_message_round_trips() {
    for message in [PING, DONE] {
        let spaced = message.replace(':', " : ");
        let buffer = converted(TO_FLAT, &[], spaced.as_bytes());
        assert_eq!(&buffer[4..8], b"MCPP");
        let text = converted(TO_JSON, &[], &buffer);
        assert_eq!(String::from_utf8(text).unwrap(), format!("{message}\n"));
    }
}

#[test]
fn many_messages_round_trip() {
    let lines = format!("{PING}\r\n\n{DONE}");
    let stream = converted(TO_FLAT, &["--stream"], lines.as_bytes());
    let size = u32::from_le_bytes(*stream.first_chunk().unwrap()) as usize;
    assert_eq!(&stream[8..12], b"MCPP");
    assert_eq!(&stream[size + 12..size + 16], b"MCPP");
    let text = converted(TO_JSON, &["--stream"], &stream);
    assert_eq!(
        String::from_utf8(text).unwrap(),
        format!("{PING}\n{DONE}\n")
    );
    assert!(converted(TO_FLAT, &["--stream"], b"").is_empty());
    assert!(converted(TO_JSON, &["--stream"], b"").is_empty());
}

#[test]
fn table_alone_round_trips() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"title":"T"}"#;
    let table = ["--table", "Tool"];
    let buffer = converted(TO_FLAT, &table, tool.as_bytes());
    let text = converted(TO_JSON, &table, &buffer);
    assert_eq!(String::from_utf8(text).unwrap(), format!("{tool}\n"));
    let message = "InitializeResponse";
    refused(TO_FLAT, &["--table", "Tolo"], b"{}", 64, message);
}

#[test]
fn invalid_settings_are_named() {
    let same = ["--from", "json", "--to", "json"];
    refused(
        same,
        &[],
        PING.as_bytes(),
        64,
        "--from and --to are the same format",
    );
    let unknown = ["--from", "json", "--to", "xml"];
    refused(unknown, &[], PING.as_bytes(), 64, "flatbuffers");
}

#[test]
fn invalid_input_is_named_without_output() {
    let json = |more: &[&str], input: &str, text: &str| {
        refused(TO_FLAT, more, input.as_bytes(), 1, text);
    };
    json(&[], "", "stdin: invalid JSON: EOF");
    json(
        &[],
        &format!("{PING}\n{DONE}"),
        "stdin: invalid JSON: trailing characters at line 2",
    );
    json(
        &[],
        r#"{"jsonrpc":"2.0"}"#,
        "stdin: message.method is missing; expected",
    );
    let broken = format!("{PING}\n\n{{\"jsonrpc\":\"1.0\"}}\n");
    json(
        &["--stream"],
        &broken,
        "stdin, line 3: message.jsonrpc is `\"1.0\"`; expected `\"2.0\"`",
    );

    let buffer = converted(TO_FLAT, &[], PING.as_bytes());
    let bytes = |more: &[&str], input: &[u8], text: &str| refused(TO_JSON, more, input, 1, text);
    bytes(
        &[],
        b"",
        "stdin: Message: at byte 4 an offset is out of bounds",
    );
    bytes(
        &[],
        PING.as_bytes(),
        "stdin: bytes 4 to 7 are `onrp`; expected `MCPP`",
    );
    bytes(
        &[],
        &buffer[..buffer.len() - 1],
        "stdin: Message.type<Request>",
    );
    let mut stream = converted(TO_FLAT, &["--stream"], PING.as_bytes());
    let whole = stream.len();
    stream.extend(stream.clone());
    stream.pop();
    let text = format!("stdin, buffer 2 at byte {whole}: the stream: at byte");
    bytes(&["--stream"], &stream, &text);
}

#[test]
fn message_above_limit_is_rejected() {
    let long = vec![b' '; 16 * 1024 * 1024 + 1];
    refused(TO_FLAT, &[], &long, 1, "stdin: more than 16777216 bytes");
}
