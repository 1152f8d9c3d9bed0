//! Compatibility tests of the JSON of conversations in Redis.
//!
//! Replicas of two releases continue each other's conversations during an upgrade.

use serde_json::json;
use switchboard_identity::{Caller, Credential};
use switchboard_phrases::Language;
use switchboard_protocol::{
    id::{ApiKeyId, ConversationId, DeviceKey, OrgId},
    token::Scopes,
};
use uuid::Uuid;

use crate::{
    conversation::model::{Conversation, Exchange, Extraction, KnownBytes, ToolCallRecord},
    user_message::{Participant, UserMessage},
};

/// A conversation with every field set, as it is stored.
const STORED: &str = concat!(
    r#"{"id":"00000000-0000-0000-0000-000000000007","fence":"00000000000000ab","#,
    r#""npc":"npc_00000000000000000000000000000008","subject":"device:toy-1","summary":"s","#,
    r#""first":3,"learned":2,"learning":{"up_to":4,"attempts":1,"until_ms":9},"#,
    r#""exchanges":[{"id":"5-0","is_open":true,"at_ms":6,"said":"hi","answered":"ho","#,
    r#""is_interrupted":true,"calls":[{"device":"toy-1","tool":"echo","params":{"a":1},"#,
    r#""result":"r"}],"asks_about":"q","picture":"p"}]}"#
);

/// The same without what earlier releases did not write.
const STORED_BEFORE: &str = concat!(
    r#"{"id":"00000000-0000-0000-0000-000000000007","fence":"00000000000000ab","#,
    r#""first":3,"learned":2,"exchanges":[{"at_ms":6,"said":"hi","answered":"ho"}]}"#
);

fn conversation() -> Conversation {
    let call = ToolCallRecord {
        device: "toy-1".parse().unwrap(),
        tool: "echo".to_owned(),
        params: json!({"a": 1}).as_object().cloned().unwrap(),
        result: "r".to_owned(),
    };
    let exchange = Exchange {
        id: "5-0".to_owned(),
        is_open: true,
        at_ms: 6,
        message: "hi".to_owned(),
        reply: "ho".to_owned(),
        is_interrupted: true,
        calls: vec![call],
        asks_about: Some("q".to_owned()),
        picture: Some("p".to_owned()),
        bytes: KnownBytes::default(),
    };
    Conversation {
        id: Uuid::from_u128(7),
        fence: "00000000000000ab".to_owned(),
        npc: Some("npc_00000000000000000000000000000008".parse().unwrap()),
        subject: Some("device:toy-1".to_owned()),
        summary: Some("s".to_owned()),
        first: 3,
        extracted: 2,
        extraction: Some(Extraction {
            up_to: 4,
            attempts: 1,
            until_ms: 9,
        }),
        exchanges: vec![exchange],
    }
}

#[test]
fn conversations_keep_their_json() {
    let written = serde_json::to_string(&conversation()).unwrap();
    assert_eq!(
        written, STORED,
        "compatibility break: JSON of conversations in Redis"
    );
    let read: Conversation = serde_json::from_str(STORED).unwrap();
    assert_eq!(read, conversation());
    let before: Conversation = serde_json::from_str(STORED_BEFORE).unwrap();
    assert_eq!(
        (before.exchanges[0].is_open, before.exchanges[0].calls.len()),
        (false, 0)
    );
    // An earlier release reads an exchange without a picture as before.
    assert!(!serde_json::to_string(&before).unwrap().contains("picture"));
}

#[test]
fn names_of_conversations_are_unchanged() {
    let org = OrgId::from_uuid(Uuid::from_u128(7));
    let check = |sender, expected: &str| {
        let message = UserMessage {
            org,
            sender,
            registration: None,
            text: String::new(),
            played: None,
            picture: None,
            npc: None,
            language: Language::default(),
        };
        let name = message.key().name;
        assert_eq!(
            name, expected,
            "compatibility break: keys of conversations in Redis"
        );
    };
    let device = "toy-1".parse().unwrap();
    check(
        Participant::Device(DeviceKey { org, device }),
        "nobody/device:toy-1",
    );
    let caller = |subject: Option<&str>| Participant::Caller {
        conversation: ConversationId::from_uuid(Uuid::from_u128(8)),
        subject: subject.map(str::to_owned),
        caller: Caller {
            org,
            scopes: Scopes::default(),
            restrictions: None,
            labelled: None,
            credential: Credential::ApiKey(ApiKeyId::from_uuid(Uuid::nil())),
        },
    };
    check(
        caller(None),
        "nobody/conv_00000000000000000000000000000008/",
    );
    check(
        caller(Some("anna")),
        "nobody/conv_00000000000000000000000000000008/55579b557896d0ce1764c47fed644f9b",
    );
}
