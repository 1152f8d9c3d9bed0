//! Properties of all messages and all buffers, also of those that our code would not write.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use switchboard_mcp_flatbuffers::{self as flat, Framing, RootType};

use crate::corpus::exact;

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            object(inner),
        ]
    })
}

/// Objects whose names often have a meaning in some table.
fn object(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let known = prop::sample::select(vec![
        "_meta",
        "params",
        "progressToken",
        "type",
        "text",
        "data",
        "level",
        "uri",
        "blob",
        "name",
        "extra",
        "annotations",
        "priority",
        "audience",
        "content",
        "role",
        "arguments",
        "code",
        "message",
    ]);
    let name = prop_oneof![known.prop_map(str::to_owned), any::<String>()];
    prop::collection::btree_map(name, values, 0..5)
        .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into())
}

fn message() -> impl Strategy<Value = Value> {
    let id = prop_oneof![
        number(),
        any::<String>().prop_map(Value::from),
        Just(Value::Null)
    ];
    let id = prop::option::of(id);
    let body = prop_oneof![4 => object(any_json()), 1 => any_json()];
    let method = prop_oneof![Just("notifications/message".to_owned()), any::<String>()];
    (
        0..4_u8,
        id,
        prop::option::of(body),
        method,
        object(any_json()),
        any::<i64>(),
    )
        .prop_map(|(kind, id, body, text, extra, code)| {
            let mut message = Map::new();
            for (name, value) in extra.as_object().into_iter().flatten() {
                message.insert(name.clone(), value.clone());
            }
            message.insert("jsonrpc".into(), "2.0".into());
            if let Some(id) = id {
                message.insert("id".into(), id);
            } else if kind == 2 {
                message.insert("id".into(), 1.into());
            }
            match (kind, body) {
                (2, body) => message.insert("result".into(), body.unwrap_or(json!({}))),
                (3, body) => {
                    let mut error = json!({"code": code, "message": text, "more": extra});
                    if let Some(body) = body {
                        error["data"] = body;
                    }
                    message.insert("error".into(), error)
                }
                (_, body) => {
                    message.extend(body.map(|body| ("params".to_owned(), body)));
                    message.insert("method".into(), text.into())
                }
            };
            message.into()
        })
}

/// Decodes these bytes. If that succeeds, the result must encode and decode to the same.
fn check_round_trip(root_type: RootType, framing: Framing, bytes: &[u8]) {
    let Ok(read) = flat::decode_as(root_type, framing, bytes) else {
        return;
    };
    let again = flat::encode_as(root_type, framing, read.as_bytes()).unwrap();
    let again = flat::decode_as(root_type, framing, &again).unwrap();
    assert_eq!(exact(&again), exact(&read));
}

proptest! {
    #[test]
    fn message_round_trips(message in message()) {
        let text = message.to_string();
        let bytes = flat::encode(text.as_bytes()).unwrap();
        prop_assert_eq!(exact(&flat::decode_text(&bytes).unwrap()), exact(&text));
    }

    #[test]
    fn encodable_object_round_trips(value in object(any_json())) {
        let text = value.to_string();
        for root_type in RootType::all() {
            if let Ok(bytes) = flat::encode_as(root_type, Framing::SizePrefixed, text.as_bytes()) {
                let read = flat::decode_as(root_type, Framing::SizePrefixed, &bytes).unwrap();
                prop_assert_eq!(exact(&read), exact(&text), "{}", root_type.name());
            }
        }
    }

    #[test]
    fn changed_message_never_panics(
        message in message(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = flat::encode(message.to_string().as_bytes()).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for root_type in RootType::all() {
            check_round_trip(root_type, Framing::Unprefixed, &bytes);
            check_round_trip(root_type, Framing::SizePrefixed, &bytes);
        }
        check_round_trip(RootType::MESSAGE, Framing::Unprefixed, &bytes[..cut.index(bytes.len())]);
    }

    /// Small numbers make offsets, sizes and tags that are often valid.
    #[test]
    fn any_bytes_never_panic(
        bytes in prop::collection::vec(
            prop_oneof![3 => Just(0), 5 => 0..40_u8, 1 => any::<u8>()],
            24..256,
        ),
    ) {
        let mut bytes = bytes;
        bytes[..4].copy_from_slice(&[16, 0, 0, 0]);
        bytes[4..8].copy_from_slice(flat::IDENTIFIER);
        bytes[8..12].copy_from_slice(&[8, 0, 12, 0]);
        bytes[16..20].copy_from_slice(&[8, 0, 0, 0]);
        for root_type in RootType::all() {
            check_round_trip(root_type, Framing::Unprefixed, &bytes);
        }
    }
}
