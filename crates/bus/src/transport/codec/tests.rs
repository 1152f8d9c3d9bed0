//! Messages survive their encoding; malformed ones are refused.

use switchboard_protocol::id::DeviceKey;
use switchboard_runtime::trace::Incoming;

use super::*;
use crate::{
    transport::{Chunk, ChunkMessage, ConnectionMessage},
    turns::{CancelReason, TurnCancellation, TurnPosition},
};

fn context() -> TraceContext {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let incoming = Incoming::parse(parent, Some("vendor=state"));
    incoming.sampled().unwrap()
}

/// A call without and with a trace, each without and with a deadline, and those with a deadline for one registration.
fn calls() -> [Message; 6] {
    let call = CallMessage {
        token: 1,
        id: CallId::from_uuid(Uuid::from_u128(8)),
        org: OrgId::from_uuid(Uuid::from_u128(7)),
        epoch: Epoch(u64::MAX),
        timeout_ms: 3,
        deadline_ms: None,
        registration: None,
        wants_notifications: true,
        trace: None,
        device: "toy-1".into(),
        service: "现在几点".into(),
        input: Bytes::from_static(b"{\"responses\":{}}"),
        params: Bytes::from_static(b"{\"a\":1}"),
    };
    let traced = CallMessage {
        trace: Some(Box::new(context())),
        ..call.clone()
    };
    let with_deadline = |call: &CallMessage| CallMessage {
        deadline_ms: Some(1_800_000_000_123),
        ..call.clone()
    };
    let pinned = |call: &CallMessage| CallMessage {
        registration: Some(Digest([5; 32])),
        ..with_deadline(call)
    };
    let timed = (with_deadline(&call), with_deadline(&traced));
    let pinned = (pinned(&call), pinned(&traced));
    [timed.0, timed.1, call, traced, pinned.0, pinned.1].map(Message::Call)
}

fn samples() -> Vec<Message> {
    let org = OrgId::from_uuid(Uuid::from_u128(7));
    let id = CallId::from_uuid(Uuid::from_u128(8));
    let [timed, timed_traced, call, traced, pinned, pinned_traced] = calls();
    let toy = ConnectionMessage {
        org,
        device: "toy-1".into(),
        epoch: Epoch(9),
    };
    vec![
        call,
        traced,
        timed,
        timed_traced,
        pinned,
        pinned_traced,
        Message::ApprovalsChanged { org },
        Message::Answer {
            token: 2,
            outcome: Outcome::Failed,
            delivered: Delivered::Yes,
            body: Bytes::from_static(b"{}"),
            result_valid: true,
        },
        Message::Answer {
            token: 2,
            outcome: Outcome::Succeeded,
            delivered: Delivered::Yes,
            body: Bytes::from_static(b"{}"),
            result_valid: false,
        },
        Message::Notification {
            token: 2,
            kind: NotificationKind::Log,
            data: Bytes::from_static(b"{\"message\":\"m\"}"),
        },
        Message::NotConnected { token: 3 },
        Message::Cancel {
            org,
            device: "toy-1".into(),
            call: id,
        },
        Message::CancelByKey {
            cancel_key: CancelKey([3; 16]),
        },
        Message::Takeover(toy.clone()),
        Message::Disconnect(toy.clone()),
        Message::Probe { nonce: 4 },
        Message::TokenRevoked {
            token: TokenId::from_uuid(Uuid::from_u128(5)),
            expires_at: 6,
        },
        Message::KeysChanged,
        Message::PromptsChanged { org: None },
        Message::ResourcesChanged {
            org: Some(org),
            uri: Bytes::from_static(b"test://a"),
        },
        watched(org, Some(1_800_000_000_123)),
        watched(org, None),
        chunk(org, Chunk::Text("现在##END".into())),
        chunk(org, Chunk::KeepAlive),
        chunk(org, Chunk::Style(r#"{"voice_id":"warm-1"}"#.into())),
        chunk(org, Chunk::End),
        cancellation(org, Some([0xff; 8]), CancelReason::Unwanted),
        cancellation(org, None, CancelReason::Superseded),
    ]
}

fn watched(org: OrgId, began_ms: Option<u64>) -> Message {
    Message::Watched { org, began_ms }
}

fn chunk(org: OrgId, chunk: Chunk) -> Message {
    Message::Chunk(ChunkMessage {
        position: TurnPosition { ms: 9, number: 2 },
        attempt: 1,
        number: 3,
        org,
        epoch: Epoch(4),
        task: *b"task0001",
        device: "toy-1".into(),
        chunk,
    })
}

fn cancellation(org: OrgId, task: Option<[u8; 8]>, reason: CancelReason) -> Message {
    let device = DeviceKey {
        org,
        device: "toy-1".parse().unwrap(),
    };
    Message::CancelTurns(TurnCancellation {
        device,
        epoch: Epoch(4),
        task,
        reason,
        before: task.map(|_| TurnPosition { ms: 9, number: 2 }),
    })
}

fn batch(messages: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    begin_batch(&mut out, &NodeId::from("edge~1"));
    for message in messages {
        encode(&mut out, message);
    }
    out
}

#[test]
fn batches_round_trip() {
    let reader = decode_batch(batch(&samples()).into()).unwrap();
    assert_eq!(reader.sender, NodeId::from("edge~1"));
    let decoded: Vec<_> = reader.map(Result::unwrap).collect();
    assert_eq!(decoded, samples());
}

#[test]
fn messages_that_are_not_decoded_are_skipped() {
    let unknown = [u8::MAX, 1, 2, 3].as_slice();
    let unknown_chunk = [CHUNK; 80].as_slice();
    for (other, error) in [
        (unknown, DecodeError::UnknownKind),
        (unknown_chunk, DecodeError::Malformed(Malformed)),
        (&[], DecodeError::Malformed(Malformed)),
    ] {
        let sent = samples();
        for index in 0..=sent.len() {
            let mut bytes = batch(&sent[..index]);
            bytes.extend_from_slice(&u32::try_from(other.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(other);
            sent[index..]
                .iter()
                .for_each(|message| encode(&mut bytes, message));
            let decoded = decode_batch(bytes.into()).unwrap();
            let mut expected: Vec<_> = sent.iter().cloned().map(Ok).collect();
            expected.insert(index, Err(error));
            assert_eq!(decoded.collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn call_with_an_unknown_flag_is_malformed() {
    let [timed, ..] = calls();
    for flag in [WITH_REGISTRATION << 1, 0x80] {
        let mut bytes = batch(&[]);
        // The flags follow the length, the kind and the deadline.
        let flags = bytes.len() + size_of::<u32>() + 1 + size_of::<u64>();
        encode(&mut bytes, &timed);
        assert_eq!(bytes[flags], 0);
        bytes[flags] = flag;
        let decoded: Vec<_> = decode_batch(bytes.into()).unwrap().collect();
        assert_eq!(decoded, [Err(DecodeError::Malformed(Malformed))], "{flag}");
    }
}

#[test]
fn untraced_call_has_no_trace_bytes() {
    fn bytes(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, message);
        out
    }
    let [_, _, plain, traced, ..] = calls();
    let (plain, traced) = (bytes(&plain), bytes(&traced));
    assert_eq!((plain[4], traced[4]), (CALL, TRACED_CALL));
    assert_eq!(traced.len(), plain.len() + 26 + "vendor=state".len());
    assert_eq!(traced[4 + 1 + 26 + "vendor=state".len()..], plain[5..]);
}

#[test]
fn truncated_and_altered_batches_do_not_panic() {
    let whole = batch(&samples());
    for end in 0..whole.len() {
        if let Ok(reader) = decode_batch(whole[..end].to_vec().into()) {
            let decoded = reader.take_while(Result::is_ok).count();
            assert!(decoded < samples().len());
        }
    }
    for index in 0..whole.len() {
        let mut altered = whole.clone();
        altered[index] ^= 0xff;
        if let Ok(reader) = decode_batch(altered.into()) {
            let _ = reader.count();
        }
    }
    assert!(decode_batch(Bytes::from_static(&[9])).is_err());
}
