//! Compatibility tests of the bytes that nodes exchange and of stored device events.
//!
//! Nodes of two releases run side by side during an upgrade. A failure means that they no longer
//! understand each other. See `tests/compatibility` for the frozen values.

use bytes::Bytes;
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId, TokenId},
    outcome::{Delivered, Outcome},
    schema::Digest,
};
use switchboard_runtime::{
    metrics::Label as _,
    trace::{Incoming, TraceContext},
};
use switchboard_test_support::snapshot;
use uuid::Uuid;

use crate::{
    events::{DeviceEvent, DisconnectReason},
    node::{Epoch, NodeId},
    rpc::{CancelKey, NotificationKind},
    transport::{CallMessage, Chunk, ChunkMessage, ConnectionMessage, Message, codec},
    turns::{CancelReason, TurnCancellation, TurnPosition},
};

fn org() -> OrgId {
    OrgId::from_uuid(Uuid::from_u128(7))
}

fn device() -> DeviceKey {
    DeviceKey {
        org: org(),
        device: "toy-1".parse().unwrap(),
    }
}

fn call(deadline_ms: Option<u64>, trace: Option<TraceContext>) -> Message {
    Message::Call(CallMessage {
        token: 1,
        id: CallId::from_uuid(Uuid::from_u128(8)),
        org: org(),
        epoch: Epoch(u64::MAX - 1),
        timeout_ms: 3,
        deadline_ms,
        registration: None,
        wants_notifications: trace.is_none(),
        trace: trace.map(Box::new),
        device: "toy-1".into(),
        service: "现在几点".into(),
        input: Bytes::from_static(b"{\"responses\":{}}"),
        params: Bytes::from_static(b"{\"a\":1}"),
    })
}

/// A call for one registration.
fn pinned_call(trace: Option<TraceContext>) -> Message {
    match call(Some(1_800_000_000_123), trace) {
        Message::Call(call) => Message::Call(CallMessage {
            registration: Some(Digest([7; 32])),
            ..call
        }),
        other => other,
    }
}

fn result(outcome: Outcome, delivered: Delivered, result_valid: bool) -> Message {
    Message::Answer {
        token: 2,
        outcome,
        delivered,
        body: Bytes::from_static(b"{}"),
        result_valid,
    }
}

fn notification(kind: NotificationKind) -> Message {
    Message::Notification {
        token: 2,
        kind,
        data: Bytes::from_static(b"{\"message\":\"m\"}"),
    }
}

fn chunk(chunk: Chunk) -> Message {
    Message::Chunk(ChunkMessage {
        position: TurnPosition { ms: 9, number: 2 },
        attempt: 1,
        number: 3,
        org: org(),
        epoch: Epoch(4),
        task: *b"task0001",
        device: "toy-1".into(),
        chunk,
    })
}

fn cancellation(task: Option<[u8; 8]>, reason: CancelReason) -> Message {
    Message::CancelTurns(TurnCancellation {
        device: device(),
        epoch: Epoch(4),
        task,
        reason,
        before: task.map(|_| TurnPosition { ms: 9, number: 2 }),
    })
}

/// Every kind of message, and every code in it.
fn messages() -> Vec<Message> {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = Incoming::parse(parent, Some("vendor=state")).sampled();
    let (org, toy) = (org(), "toy-1");
    let connection = ConnectionMessage {
        org,
        device: toy.into(),
        epoch: Epoch(9),
    };
    let mut all = vec![
        call(None, None),
        call(None, trace.clone()),
        call(Some(1_800_000_000_123), None),
        call(Some(1_800_000_000_123), trace.clone()),
    ];
    all.extend([None, trace].map(pinned_call));
    all.extend(Outcome::ALL.map(|outcome| result(outcome, Delivered::No, true)));
    all.extend([Delivered::Unknown, Delivered::Yes].map(|one| result(Outcome::Failed, one, true)));
    all.extend([
        result(Outcome::Succeeded, Delivered::Yes, false),
        notification(NotificationKind::Progress),
        notification(NotificationKind::Log),
        Message::NotConnected { token: 3 },
        Message::Cancel {
            org,
            device: toy.into(),
            call: CallId::from_uuid(Uuid::from_u128(8)),
        },
        Message::CancelByKey {
            cancel_key: CancelKey([3; 16]),
        },
        Message::Takeover(connection.clone()),
        Message::Disconnect(connection.clone()),
        Message::Probe { nonce: 4 },
        Message::TokenRevoked {
            token: TokenId::from_uuid(Uuid::from_u128(5)),
            expires_at: 6,
        },
        Message::KeysChanged,
        Message::PromptsChanged { org: None },
        Message::PromptsChanged { org: Some(org) },
        Message::ResourcesChanged {
            org: None,
            uri: Bytes::new(),
        },
        Message::ResourcesChanged {
            org: Some(org),
            uri: Bytes::from_static(b"test://a"),
        },
        Message::Watched {
            org,
            began_ms: Some(1_800_000_000_123),
        },
        Message::Watched {
            org,
            began_ms: None,
        },
        Message::ApprovalsChanged { org },
        chunk(Chunk::Text("现在##END".into())),
        chunk(Chunk::KeepAlive),
        chunk(Chunk::Style(r#"{"voice_id":"warm-1"}"#.into())),
        chunk(Chunk::End),
        cancellation(Some([0xff; 8]), CancelReason::Unwanted),
        cancellation(None, CancelReason::Superseded),
    ]);
    all
}

/// The number of message kinds: the match fails to compile when one is added, and so the list
/// above is extended.
const fn kind(message: &Message) -> u8 {
    match message {
        Message::Call(call) if call.deadline_ms.is_some() => 16,
        Message::Call(call) if call.trace.is_some() => 15,
        Message::Call(_) => 1,
        Message::Answer { .. } => 2,
        Message::NotConnected { .. } => 3,
        Message::Cancel { .. } => 4,
        Message::Takeover(_) => 5,
        Message::Probe { .. } => 6,
        Message::TokenRevoked { .. } => 7,
        Message::KeysChanged => 8,
        Message::Notification { .. } => 9,
        Message::PromptsChanged { .. } => 10,
        Message::ResourcesChanged { .. } => 11,
        Message::CancelByKey { .. } => 12,
        Message::Chunk(_) => 13,
        Message::CancelTurns(_) => 14,
        Message::Disconnect(_) => 17,
        Message::Watched { .. } => 18,
        Message::ApprovalsChanged { .. } => 19,
    }
}

/// A batch of one message from the node `edge~1`.
fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::begin_batch(&mut bytes, &NodeId::from("edge~1"));
    codec::encode(&mut bytes, message);
    bytes
}

#[test]
fn messages_between_nodes_keep_their_bytes() {
    let all = messages();
    let line = |message: &Message| format!("{} {}", kind(message), encode(message).escape_ascii());
    snapshot::check("bus-messages.txt", all.iter().map(line));
    let mut kinds = Vec::new();
    for message in all {
        // The snapshot has just shown that these are the frozen bytes.
        let bytes = encode(&message);
        assert_eq!(bytes[12], kind(&message), "the byte of {message:?}");
        let batch = codec::decode_batch(bytes.into()).unwrap();
        assert_eq!(batch.sender, NodeId::from("edge~1"));
        kinds.push(kind(&message));
        assert_eq!(batch.collect::<Vec<_>>(), [Ok(message)]);
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (1..=19).collect::<Vec<u8>>());
}

#[test]
fn device_events_keep_their_json() {
    let (device, epoch, at_ms) = (device(), Epoch(1), 2);
    let json = Bytes::from_static("{\"时间\": {}}".as_bytes());
    let mut all = vec![DeviceEvent::Connected {
        device: device.clone(),
        epoch,
        at_ms,
    }];
    all.extend([None, Some(json)].map(|json| DeviceEvent::Registered {
        device: device.clone(),
        epoch,
        at_ms,
        digest: Digest([7; 32]),
        json,
    }));
    all.extend(
        DisconnectReason::all().map(|reason| DeviceEvent::Disconnected {
            device: device.clone(),
            epoch,
            at_ms,
            reason,
        }),
    );
    all.push(DeviceEvent::Custom {
        device,
        epoch,
        at_ms,
        id: Uuid::from_u128(7),
        json: Bytes::from_static("{\"name\":  \"按钮\"}".as_bytes()),
    });
    let text = |event: &DeviceEvent| String::from_utf8(event.to_json()).unwrap();
    snapshot::check("bus-device-events.txt", all.iter().map(text));
    for event in all {
        assert_eq!(DeviceEvent::from_json(&event.to_json()), Some(event));
    }
}
