//! Fuzz target of `switchboard-mcp-flatbuffers`.

use serde_json::Value;
use switchboard_mcp_flatbuffers::{self as flat, Framing, RootType};

/// Any bytes decode or fail with an error, as every root type. What decodes is JSON that encodes
/// and decodes to the same, and so is JSON that encodes.
pub fn flatbuffers(input: &[u8]) {
    for root_type in RootType::all() {
        for framing in [Framing::Unprefixed, Framing::SizePrefixed] {
            match flat::decode_as(root_type, framing, input) {
                Ok(read) => check_round_trip(root_type, framing, &read),
                Err(error) => assert!(error.to_string().len() < 1500, "{error}"),
            }
            match flat::encode_as(root_type, framing, input) {
                Ok(written) => {
                    let Ok(read) = flat::decode_as(root_type, framing, &written) else {
                        panic!("an encoded buffer must decode: {}", written.escape_ascii());
                    };
                    if let Ok(value) = serde_json::from_slice::<Value>(input) {
                        assert_eq!(serde_json::from_str::<Value>(&read).ok(), Some(value));
                    }
                    check_round_trip(root_type, framing, &read);
                }
                Err(error) => assert!(error.to_string().len() < 600, "{error}"),
            }
        }
    }
}

/// What was decoded encodes, and decodes to the same from then on.
fn check_round_trip(root_type: RootType, framing: Framing, read: &str) {
    let again = |json: &str| {
        let written = flat::encode_as(root_type, framing, json.as_bytes());
        let read = written.map(|bytes| flat::decode_as(root_type, framing, &bytes));
        let Ok(Ok(read)) = read else {
            panic!("{}: {read:?}: {json}", root_type.name());
        };
        read
    };
    let first = again(read);
    if let Ok(value) = serde_json::from_str::<Value>(read) {
        assert_eq!(serde_json::from_str::<Value>(&first).ok(), Some(value));
    }
    assert_eq!(again(&first), first);
}
