//! Buffers of other writers: valid ones without a JSON form, and damaged ones. Every error names
//! the field.

use switchboard_mcp_flatbuffers::{self as flat, DecodeError, Framing, RootType};

use crate::{
    corpus::{cases, exact},
    flatc::Flatc,
};

fn decode(table: &str, bytes: &[u8]) -> Result<String, DecodeError> {
    flat::decode_as(RootType::named(table).unwrap(), Framing::Unprefixed, bytes)
}

/// Encodes JSON with `flatc`, and compares what we decode with this text or error.
#[track_caller]
fn check(flatc: &Flatc, table: &str, json: &str, expect: &str) {
    let bytes = flatc.to_binary(table, Framing::Unprefixed, json);
    match decode(table, &bytes) {
        Ok(read) => assert_eq!(read, expect),
        Err(error) => assert_eq!(error.to_string(), expect, "{json}"),
    }
}

#[test]
fn ambiguous_request_is_refused_with_its_field() {
    let flatc = Flatc::new();
    let request = |more: &str, expect: &str| {
        let json = format!(
            r#"{{"type_type":"Request","type":{{"jsonrpc":"2.0","id":{{"id":0}},"method":"m"{more}}}}}"#
        );
        check(&flatc, "Message", &json, expect);
    };
    request("", r#"{"jsonrpc":"2.0","id":0,"method":"m"}"#);
    request(
        r#","meta":{"progress_token":"t"}"#,
        r#"{"jsonrpc":"2.0","id":0,"method":"m","params":{"_meta":{"progressToken":"t"}}}"#,
    );
    request(
        r#","params":"{""#,
        "Message.type<Request>.params is `{` (EOF while parsing an object at line 1 column 1); expected JSON",
    );
    request(
        r#","params":"[1]","meta":{}"#,
        "Message.type<Request>.params is `[1]`; expected an object, since there is `meta`",
    );
    request(
        r#","params":"{\"_meta\":1}","meta":{}"#,
        "Message.type<Request>.params has `_meta`, which is present in another field too",
    );
    request(
        r#","extra":"{\"result\":1}""#,
        "Message.type<Request>.extra has `result`, which is present in another field too",
    );
    request(
        r#","id_json":"7""#,
        "Message.type<Request>.id_json is `7`; expected a string, null, or a number that is no \
         uint64",
    );
    request(
        r#","id_json":"""#,
        "Message.type<Request>.id_json is `` (EOF while parsing a value at line 1 column 0); expected JSON",
    );
}

#[test]
fn invalid_message_is_refused_with_its_field() {
    let flatc = Flatc::new();
    let message = |json: &str, expect: &str| check(&flatc, "Message", json, expect);
    message(
        r#"{"type_type":"Request","type":{"jsonrpc":"2.0","id":{"id":5},"method":"m","id_json":"\"a\""}}"#,
        "Message.type<Request>.id is `5`; expected 0, since `id_json` has the id",
    );
    message(
        r#"{"type_type":"Notification","type":{"jsonrpc":"1.0","method":"m"}}"#,
        "Message.type<Notification>.jsonrpc is `1.0`; expected 2.0",
    );
    message(
        r#"{"type_type":"Notification","type":{"jsonrpc":"2.0","method":"m","level":"Error"}}"#,
        "Message.type<Notification>.params/level is `error`; expected the level that the \
         params of a log message have",
    );
    message(
        r#"{"type_type":"Error","type":{"jsonrpc":"2.0","id":{"id":1},"code":1,"message":"m","error_extra":"{\"code\":2}"}}"#,
        "Message.type<Error>.error_extra has `code`, which is present in another field too",
    );
}

#[test]
fn ambiguous_table_is_refused_with_its_field() {
    let flatc = Flatc::new();
    let table = |name: &str, json: &str, expect: &str| check(&flatc, name, json, expect);
    table(
        "TextContent",
        r#"{"type":"image","text":""}"#,
        "TextContent.type is `image`; expected text",
    );
    table(
        "TextContent",
        r#"{"type":"text","text":"","extra":"{\"text\":1}"}"#,
        "TextContent.extra has `text`, which is present in another field too",
    );
    table(
        "Annotations",
        r#"{"priority":nan}"#,
        "Annotations.priority is `NaN`; expected a finite number",
    );
    table(
        "ClientCapabilities",
        r#"{"experimental":[{"name":"a"},{"name":"a"}]}"#,
        "ClientCapabilities.experimental has `a`, which is present in another field too",
    );
    table(
        "PromptMessage",
        r#"{"content_type":"OtherContent","content":{"json":"{\"type\":\"text\"}"}}"#,
        "PromptMessage.content is `{\"type\":\"text\"}`; expected content whose `type` has no \
         table of its own",
    );
    // A scalar that its writer omitted because it is zero.
    table(
        "PromptMessage",
        r#"{"content_type":"TextContent","content":{"type":"text","text":"t"}}"#,
        r#"{"role":"user","content":{"type":"text","text":"t"}}"#,
    );
}

#[test]
fn decode_limits_the_nesting_depth() {
    let params = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let json = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{params}}}"#);
    let bytes = flat::encode(json.as_bytes()).unwrap();
    assert_eq!(exact(&flat::decode_text(&bytes).unwrap()), exact(&json));
    let flatc = Flatc::new();
    for levels in [128, 200_000] {
        let deeper = "[".repeat(levels) + &"]".repeat(levels);
        let json = format!(
            r#"{{"type_type":"Notification","type":{{"jsonrpc":"2.0","method":"m","params":"{deeper}"}}}}"#
        );
        let bytes = flatc.to_binary("Message", Framing::Unprefixed, &json);
        assert_eq!(flat::decode_text(&bytes), Err(DecodeError::TooDeep));
    }
}

#[test]
fn unrepresentable_number_is_refused_by_decode() {
    let bytes = flat::encode(br#"{"jsonrpc":"2.0","method":"m","params":1e400}"#).unwrap();
    let error = flat::decode(&bytes).unwrap_err();
    assert!(matches!(error, DecodeError::Unrepresentable(_)), "{error}");
    assert!(flat::decode_text(&bytes).is_ok());
}

#[test]
fn truncated_buffer_is_refused() {
    for case in cases() {
        let json = case.json.get().as_bytes();
        let bytes = flat::encode_as(case.root_type(), Framing::Unprefixed, json).unwrap();
        for length in 0..bytes.len() {
            let cut = decode(&case.table, &bytes[..length]);
            assert!(cut.is_err(), "{} at {length}: {cut:?}", case.name);
        }
    }
}

#[test]
fn changed_byte_decodes_consistently_or_is_refused() {
    let mut taken = 0_u32;
    for case in cases() {
        let root_type = case.root_type();
        let json = case.json.get().as_bytes();
        let bytes = flat::encode_as(root_type, Framing::Unprefixed, json).unwrap();
        for at in 0..bytes.len() {
            for change in [1, 2, 4, 8, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let Ok(read) = flat::decode_as(root_type, Framing::Unprefixed, &changed) else {
                    continue;
                };
                taken += 1;
                let again = flat::encode_as(root_type, Framing::Unprefixed, read.as_bytes())
                    .unwrap_or_else(|error| panic!("{} {at} {change}: {error}: {read}", case.name));
                let again = flat::decode_as(root_type, Framing::Unprefixed, &again).unwrap();
                assert_eq!(exact(&again), exact(&read), "{} {at} {change}", case.name);
            }
        }
    }
    assert!(taken > 1000, "only {taken} changes were taken");
}

/// A `ModelPreferences` whose list references one `ModelHint` this many times. The hint has a name
/// of this length.
fn shared(times: u32, length: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut word = |number: u32| bytes.extend_from_slice(&number.to_le_bytes());
    word(16); // The root table is at 16.
    word(u32::from_le_bytes(*b"MCPP"));
    word(6 | 8 << 16); // Its vtable, at 8: one slot, a table of 8 bytes.
    word(4);
    word(8); // At 16: the vtable is 8 bytes before.
    word(4); // At 20: the list is at 24.
    word(times);
    for index in 0..times {
        word((times - index) * 4 + 8); // The hint, behind the list and a vtable.
    }
    word(6 | 8 << 16);
    word(4);
    word(8);
    word(4); // The name follows.
    word(length);
    bytes.extend(std::iter::repeat_n(b'n', length as usize));
    bytes.push(0);
    bytes
}

#[test]
fn parts_shared_too_often_are_refused() {
    #[track_caller]
    fn refused(times: u32, length: u32) {
        let error = decode("ModelPreferences", &shared(times, length)).unwrap_err();
        assert!(matches!(error, DecodeError::Inflated { .. }), "{error}");
    }
    let few = decode("ModelPreferences", &shared(3, 1)).unwrap();
    assert_eq!(few, r#"{"hints":[{"name":"n"},{"name":"n"},{"name":"n"}]}"#);
    assert!(decode("ModelPreferences", &shared(4, 10_000)).is_ok());
    refused(5, 10_000);
    refused(1000, 100_000);
    refused(70_000, 0);
}

#[test]
fn damage_is_reported_with_its_place() {
    let bytes = shared(2, 1);
    #[track_caller]
    fn check(bytes: &[u8], at: usize, word: u32, expect: &str) {
        let mut bytes = bytes.to_vec();
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        let error = decode("ModelPreferences", &bytes).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }
    let check = |at, word, expect| check(&bytes, at, word, expect);
    check(
        0,
        0,
        "ModelPreferences: at byte 0 an offset is out of bounds",
    );
    check(
        0,
        u32::MAX,
        "ModelPreferences: at byte 0 an offset is out of bounds",
    );
    check(0, 18, "ModelPreferences: at byte 18 a value is not aligned");
    check(
        4,
        0x0121_4141,
        "bytes 4 to 7 are `AA!\\x01`; expected `MCPP`",
    );
    check(
        8,
        7 | 8 << 16,
        "ModelPreferences: at byte 8 the vtable does not match",
    );
    check(
        8,
        6 | 6 << 16,
        "ModelPreferences.hints: at byte 12 the vtable does not match",
    );
    check(
        8,
        0xfffe | 8 << 16,
        "ModelPreferences: at byte 8 an offset is out of bounds",
    );
    check(
        12,
        2,
        "ModelPreferences.hints: at byte 12 the vtable does not match",
    );
    check(
        16,
        0x7fff_ffff,
        "ModelPreferences: at byte 16 the vtable does not match",
    );
    check(
        16,
        0x8000_0000,
        "ModelPreferences: at byte 2147483664 an offset is out of bounds",
    );
    check(
        20,
        5,
        "ModelPreferences.hints: at byte 25 a value is not aligned",
    );
    check(
        24,
        u32::MAX,
        "ModelPreferences.hints: at byte 28 an offset is out of bounds",
    );
    check(
        32,
        1 << 30,
        "ModelPreferences.hints[1]: at byte 32 an offset is out of bounds",
    );
}
