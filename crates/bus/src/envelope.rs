//! What nodes tell each other, and how several envelopes travel as one message.
//!
//! A *pack* is `version, sender, envelope*`; an envelope is `length, kind, fields`. Integers are
//! little-endian, texts have their length in front, the last field takes what is left.
//! Never: a copy of a payload on the way in; everything is a slice of the received buffer.

mod speech;

use bytes::{Buf, Bytes};
use switchboard_protocol::{
    id::{CallId, OrgId, TokenId},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::trace::TraceContext;
use uuid::Uuid;

pub(crate) use self::speech::PieceEnvelope;
use crate::{
    call::Handle,
    node::{Epoch, NodeId},
    notice::NoticeKind,
    text::Text,
    turns::Stop,
};

/// Bumped whenever a field's place or meaning changes: nodes of two versions refuse each other's
/// packs instead of misreading them.
const VERSION: u8 = 3;

/// A pack that no node of this version wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is not one of this version's")]
pub struct Malformed;

/// One message of a node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Envelope {
    /// Execute this on a device that the receiver holds.
    Call(CallEnvelope),
    /// How the call behind the token ended.
    Answer {
        token: u64,
        outcome: Outcome,
        delivered: Delivered,
        body: Bytes,
    },
    /// What the device says of the call behind the token while it is at it.
    Notice {
        token: u64,
        kind: NoticeKind,
        data: Bytes,
    },
    /// The connection meant is not at the receiver; the device never saw the call.
    NotHere { token: u64 },
    /// The caller gave up.
    Cancel {
        org: OrgId,
        device: Text,
        call: CallId,
    },
    /// The caller took back what it knows by this name; for everybody.
    Withdraw { handle: Handle },
    /// A newer connection of the device exists.
    Takeover {
        org: OrgId,
        device: Text,
        epoch: Epoch,
    },
    /// Sent by a node to itself to see that its inbox is heard.
    Probe { nonce: u64 },
    /// A token was revoked; for everybody.
    Revoked { token: TokenId, expires_at: u64 },
    /// Keys or revocations changed; for everybody.
    TrustChanged,
    /// Prompts of an organisation changed, or of all; for everybody.
    Prompts { org: Option<OrgId> },
    /// A resource of an organisation changed, or of all; for everybody.
    Resources { org: Option<OrgId>, uri: Bytes },
    /// A step of the answer to what a device said.
    Piece(PieceEnvelope),
    /// A device does not want some answers, went on to something else, or has gone; for everybody.
    Stop(Stop),
}

/// A call on its way to the node that holds the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallEnvelope {
    pub(crate) token: u64,
    pub(crate) id: CallId,
    pub(crate) org: OrgId,
    pub(crate) epoch: Epoch,
    /// How long the caller still waits. Not a time of day: clocks of nodes differ.
    pub(crate) left_ms: u64,
    /// Whether the caller wants to hear what the device says meanwhile.
    pub(crate) wants_notices: bool,
    /// Only of a call in a sampled trace.
    pub(crate) trace: Option<Box<TraceContext>>,
    pub(crate) device: Text,
    pub(crate) service: Text,
    /// Most often empty.
    pub(crate) input: Bytes,
    pub(crate) params: Bytes,
}

const CALL: u8 = 1;
const ANSWER: u8 = 2;
const NOT_HERE: u8 = 3;
const CANCEL: u8 = 4;
const TAKEOVER: u8 = 5;
const PROBE: u8 = 6;
const REVOKED: u8 = 7;
const TRUST_CHANGED: u8 = 8;
const NOTICE: u8 = 9;
const PROMPTS: u8 = 10;
const RESOURCES: u8 = 11;
const WITHDRAW: u8 = 12;
const PIECE: u8 = 13;
const STOP: u8 = 14;
/// A call behind the context of its trace. Nodes from before there were traces do not read it: traces are switched on
/// when there are none of them left, and until then nothing is sent that they would not understand.
const TRACED_CALL: u8 = 15;

/// Begins a pack in an empty buffer.
pub(crate) fn begin_pack(out: &mut Vec<u8>, sender: &NodeId) {
    out.push(VERSION);
    put_short(out, sender.as_str());
}

/// The envelopes of a begun pack, as they stand in it; nothing of an empty buffer.
pub(crate) fn contents(pack: &[u8]) -> &[u8] {
    let sender = pack.get(1).map_or(0, |length| usize::from(*length));
    pack.get(2 + sender..).unwrap_or_default()
}

/// Appends one envelope to a begun pack.
pub(crate) fn put(out: &mut Vec<u8>, envelope: &Envelope) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match envelope {
        Envelope::Call(call) => put_call(out, call),
        Envelope::Answer {
            token,
            outcome,
            delivered,
            body,
        } => {
            out.push(ANSWER);
            out.extend_from_slice(&token.to_le_bytes());
            out.push(outcome.code());
            out.push(*delivered as u8);
            out.extend_from_slice(body);
        }
        Envelope::Notice { token, kind, data } => {
            out.push(NOTICE);
            out.extend_from_slice(&token.to_le_bytes());
            out.push(*kind as u8);
            out.extend_from_slice(data);
        }
        Envelope::NotHere { token } => {
            out.push(NOT_HERE);
            out.extend_from_slice(&token.to_le_bytes());
        }
        Envelope::Cancel { org, device, call } => {
            out.push(CANCEL);
            out.extend_from_slice(org.uuid().as_bytes());
            out.extend_from_slice(call.uuid().as_bytes());
            put_short(out, device);
        }
        Envelope::Withdraw { handle } => {
            out.push(WITHDRAW);
            out.extend_from_slice(&handle.0);
        }
        Envelope::Takeover { org, device, epoch } => {
            out.push(TAKEOVER);
            out.extend_from_slice(org.uuid().as_bytes());
            out.extend_from_slice(&epoch.0.to_le_bytes());
            put_short(out, device);
        }
        Envelope::Probe { nonce } => {
            out.push(PROBE);
            out.extend_from_slice(&nonce.to_le_bytes());
        }
        Envelope::Revoked { token, expires_at } => {
            out.push(REVOKED);
            out.extend_from_slice(token.uuid().as_bytes());
            out.extend_from_slice(&expires_at.to_le_bytes());
        }
        Envelope::TrustChanged => out.push(TRUST_CHANGED),
        Envelope::Prompts { org } => {
            out.push(PROMPTS);
            put_org(out, *org);
        }
        Envelope::Resources { org, uri } => {
            out.push(RESOURCES);
            put_org(out, *org);
            out.extend_from_slice(uri);
        }
        Envelope::Piece(piece) => speech::put_piece(out, piece),
        Envelope::Stop(stop) => speech::put_stop(out, stop),
    }
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    if let Some(slot) = out.get_mut(start..start + 4) {
        slot.copy_from_slice(&length.to_le_bytes());
    }
}

fn put_call(out: &mut Vec<u8>, call: &CallEnvelope) {
    match &call.trace {
        None => out.push(CALL),
        Some(trace) => {
            out.push(TRACED_CALL);
            trace.put(out);
        }
    }
    out.extend_from_slice(&call.token.to_le_bytes());
    out.extend_from_slice(call.id.uuid().as_bytes());
    out.extend_from_slice(call.org.uuid().as_bytes());
    out.extend_from_slice(&call.epoch.0.to_le_bytes());
    out.extend_from_slice(&call.left_ms.to_le_bytes());
    out.push(call.wants_notices.into());
    put_short(out, &call.device);
    put_short(out, &call.service);
    let input = u32::try_from(call.input.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&input.to_le_bytes());
    out.extend_from_slice(&call.input);
    out.extend_from_slice(&call.params);
}

/// An organisation, or the nil id for none.
fn put_org(out: &mut Vec<u8>, org: Option<OrgId>) {
    let uuid = org.map_or(Uuid::nil(), |org| org.uuid());
    out.extend_from_slice(uuid.as_bytes());
}

/// A text of at most 255 bytes: ids and service names are shorter by their own rules.
fn put_short(out: &mut Vec<u8>, text: &str) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(
        text.as_bytes()
            .get(..usize::from(length))
            .unwrap_or_default(),
    );
}

/// A received pack: who sent it, and its envelopes one after the other.
pub(crate) struct Unpacked {
    pub(crate) sender: NodeId,
    rest: Bytes,
}

/// Opens a pack.
pub(crate) fn unpack(mut pack: Bytes) -> Result<Unpacked, Malformed> {
    if pack.try_get_u8().map_err(|_| Malformed)? != VERSION {
        return Err(Malformed);
    }
    let sender = NodeId::from(&*short(&mut pack)?);
    Ok(Unpacked { sender, rest: pack })
}

impl Iterator for Unpacked {
    type Item = Result<Envelope, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let envelope = self
            .rest
            .try_get_u32_le()
            .map_err(|_| Malformed)
            .and_then(|length| {
                let body = take(&mut self.rest, length as usize)?;
                parse(body)
            });
        if envelope.is_err() {
            self.rest.clear();
        }
        Some(envelope)
    }
}

fn parse(mut body: Bytes) -> Result<Envelope, Malformed> {
    let body = &mut body;
    let envelope = match body.try_get_u8().map_err(|_| Malformed)? {
        CALL => Envelope::Call(parse_call(body, None)?),
        TRACED_CALL => {
            let trace = trace(body)?;
            Envelope::Call(parse_call(body, Some(trace))?)
        }
        ANSWER => parse_answer(body)?,
        NOTICE => Envelope::Notice {
            token: number(body)?,
            kind: body
                .try_get_u8()
                .ok()
                .and_then(NoticeKind::from_code)
                .ok_or(Malformed)?,
            data: std::mem::take(body),
        },
        NOT_HERE => Envelope::NotHere {
            token: number(body)?,
        },
        CANCEL => {
            let org = OrgId::from_uuid(uuid(body)?);
            let call = CallId::from_uuid(uuid(body)?);
            Envelope::Cancel {
                org,
                device: short(body)?,
                call,
            }
        }
        WITHDRAW => Envelope::Withdraw {
            handle: Handle(uuid(body)?.into_bytes()),
        },
        TAKEOVER => {
            let org = OrgId::from_uuid(uuid(body)?);
            let epoch = Epoch(number(body)?);
            Envelope::Takeover {
                org,
                device: short(body)?,
                epoch,
            }
        }
        PROBE => Envelope::Probe {
            nonce: number(body)?,
        },
        REVOKED => Envelope::Revoked {
            token: TokenId::from_uuid(uuid(body)?),
            expires_at: number(body)?,
        },
        TRUST_CHANGED => Envelope::TrustChanged,
        PROMPTS => Envelope::Prompts {
            org: some_org(body)?,
        },
        RESOURCES => Envelope::Resources {
            org: some_org(body)?,
            uri: std::mem::take(body),
        },
        PIECE => Envelope::Piece(speech::parse_piece(body)?),
        STOP => Envelope::Stop(speech::parse_stop(body)?),
        _ => return Err(Malformed),
    };
    Ok(envelope)
}

fn parse_answer(body: &mut Bytes) -> Result<Envelope, Malformed> {
    Ok(Envelope::Answer {
        token: number(body)?,
        outcome: body
            .try_get_u8()
            .ok()
            .and_then(Outcome::from_code)
            .ok_or(Malformed)?,
        delivered: match body.try_get_u8() {
            Ok(0) => Delivered::No,
            Ok(1) => Delivered::Unknown,
            Ok(2) => Delivered::Yes,
            _ => return Err(Malformed),
        },
        body: std::mem::take(body),
    })
}

fn trace(body: &mut Bytes) -> Result<Box<TraceContext>, Malformed> {
    let (trace, length) = TraceContext::take(body).ok_or(Malformed)?;
    body.advance(length);
    Ok(Box::new(trace))
}

fn parse_call(
    body: &mut Bytes,
    trace: Option<Box<TraceContext>>,
) -> Result<CallEnvelope, Malformed> {
    Ok(CallEnvelope {
        trace,
        token: number(body)?,
        id: CallId::from_uuid(uuid(body)?),
        org: OrgId::from_uuid(uuid(body)?),
        epoch: Epoch(number(body)?),
        left_ms: number(body)?,
        wants_notices: body.try_get_u8().map_err(|_| Malformed)? != 0,
        device: short(body)?,
        service: short(body)?,
        input: {
            let length = body.try_get_u32_le().map_err(|_| Malformed)?;
            take(body, length as usize)?
        },
        params: std::mem::take(body),
    })
}

fn take(from: &mut Bytes, length: usize) -> Result<Bytes, Malformed> {
    if length > from.len() {
        Err(Malformed)
    } else {
        Ok(from.split_to(length))
    }
}

fn number(from: &mut Bytes) -> Result<u64, Malformed> {
    from.try_get_u64_le().map_err(|_| Malformed)
}

fn uuid(from: &mut Bytes) -> Result<Uuid, Malformed> {
    let mut bytes = [0; 16];
    from.try_copy_to_slice(&mut bytes).map_err(|_| Malformed)?;
    Ok(Uuid::from_bytes(bytes))
}

fn some_org(from: &mut Bytes) -> Result<Option<OrgId>, Malformed> {
    let uuid = uuid(from)?;
    Ok((!uuid.is_nil()).then(|| OrgId::from_uuid(uuid)))
}

fn short(from: &mut Bytes) -> Result<Text, Malformed> {
    let length = from.try_get_u8().map_err(|_| Malformed)?;
    take(from, usize::from(length))?.try_into()
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::DeviceKey;
    use switchboard_runtime::trace::Incoming;

    use super::*;
    use crate::turns::{Piece, StopReason, TurnAt};

    fn context() -> TraceContext {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let incoming = Incoming::parse(parent, Some("vendor=state"));
        incoming.sampled().unwrap()
    }

    /// One that is not traced, and one that is.
    fn calls() -> [Envelope; 2] {
        let call = CallEnvelope {
            token: 1,
            id: CallId::from_uuid(Uuid::from_u128(8)),
            org: OrgId::from_uuid(Uuid::from_u128(7)),
            epoch: Epoch(u64::MAX),
            left_ms: 3,
            wants_notices: true,
            trace: None,
            device: "toy-1".into(),
            service: "现在几点".into(),
            input: Bytes::from_static(b"{\"responses\":{}}"),
            params: Bytes::from_static(b"{\"a\":1}"),
        };
        let traced = CallEnvelope {
            trace: Some(Box::new(context())),
            ..call.clone()
        };
        [Envelope::Call(call), Envelope::Call(traced)]
    }

    fn samples() -> Vec<Envelope> {
        let org = OrgId::from_uuid(Uuid::from_u128(7));
        let id = CallId::from_uuid(Uuid::from_u128(8));
        let [call, traced] = calls();
        vec![
            call,
            traced,
            Envelope::Answer {
                token: 2,
                outcome: Outcome::Failed,
                delivered: Delivered::Yes,
                body: Bytes::from_static(b"{}"),
            },
            Envelope::Notice {
                token: 2,
                kind: NoticeKind::Log,
                data: Bytes::from_static(b"{\"message\":\"m\"}"),
            },
            Envelope::NotHere { token: 3 },
            Envelope::Cancel {
                org,
                device: "toy-1".into(),
                call: id,
            },
            Envelope::Withdraw {
                handle: Handle([3; 16]),
            },
            Envelope::Takeover {
                org,
                device: "toy-1".into(),
                epoch: Epoch(9),
            },
            Envelope::Probe { nonce: 4 },
            Envelope::Revoked {
                token: TokenId::from_uuid(Uuid::from_u128(5)),
                expires_at: 6,
            },
            Envelope::TrustChanged,
            Envelope::Prompts { org: None },
            Envelope::Resources {
                org: Some(org),
                uri: Bytes::from_static(b"test://a"),
            },
            piece(org, Piece::Text("现在##END".into())),
            piece(org, Piece::Busy),
            piece(org, Piece::End),
            stop(org, Some([0xff; 8]), StopReason::Unwanted),
            stop(org, None, StopReason::Superseded),
        ]
    }

    fn piece(org: OrgId, piece: Piece) -> Envelope {
        Envelope::Piece(PieceEnvelope {
            at: TurnAt { ms: 9, number: 2 },
            attempt: 1,
            number: 3,
            org,
            epoch: Epoch(4),
            task: *b"task0001",
            device: "toy-1".into(),
            piece,
        })
    }

    fn stop(org: OrgId, task: Option<[u8; 8]>, why: StopReason) -> Envelope {
        let device = DeviceKey {
            org,
            device: "toy-1".parse().unwrap(),
        };
        Envelope::Stop(Stop {
            device,
            epoch: Epoch(4),
            task,
            why,
            before: task.map(|_| TurnAt { ms: 9, number: 2 }),
        })
    }

    fn pack(envelopes: &[Envelope]) -> Vec<u8> {
        let mut out = Vec::new();
        begin_pack(&mut out, &NodeId::from("edge~1"));
        for envelope in envelopes {
            put(&mut out, envelope);
        }
        out
    }

    #[test]
    fn packs_round_trip() {
        let unpacked = unpack(pack(&samples()).into()).unwrap();
        assert_eq!(unpacked.sender, NodeId::from("edge~1"));
        let back: Vec<_> = unpacked.map(Result::unwrap).collect();
        assert_eq!(back, samples());
    }

    #[test]
    fn a_call_that_is_not_traced_carries_nothing_of_it() {
        fn bytes(envelope: &Envelope) -> Vec<u8> {
            let mut out = Vec::new();
            put(&mut out, envelope);
            out
        }
        let [plain, traced] = calls();
        let (plain, traced) = (bytes(&plain), bytes(&traced));
        assert_eq!((plain[4], traced[4]), (CALL, TRACED_CALL));
        assert_eq!(traced.len(), plain.len() + 26 + "vendor=state".len());
        assert_eq!(traced[4 + 1 + 26 + "vendor=state".len()..], plain[5..]);
    }

    #[test]
    fn cut_and_foreign_bytes_are_refused_without_panic() {
        let whole = pack(&samples());
        for end in 0..whole.len() {
            if let Ok(unpacked) = unpack(whole[..end].to_vec().into()) {
                let good = unpacked.take_while(Result::is_ok).count();
                assert!(good < samples().len());
            }
        }
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 0xff;
            if let Ok(unpacked) = unpack(bent.into()) {
                let _ = unpacked.count();
            }
        }
        assert!(unpack(Bytes::from_static(&[9])).is_err());
    }
}
