//! Encodes and decodes messages, and batches of them.
//!
//! A *batch* is `version, sender, message*`; a message is `length, kind, fields`. Integers are
//! little-endian. A text has its length in front; the last field takes the rest of the message.
//! Decoding copies no payload: everything is a slice of the received buffer. A message that is not
//! decoded is skipped by its length.

use bytes::{Buf, Bytes};
use switchboard_protocol::{
    id::{CallId, OrgId, TokenId},
    outcome::{Delivered, Outcome},
    schema::Digest,
};
use switchboard_runtime::trace::TraceContext;
use uuid::Uuid;

use super::{
    fields::{connection, flag, number, put_connection, put_text, take, text, uuid},
    message::{CallMessage, DecodeError, Malformed, Message},
    turn_codec,
};
use crate::{
    node::{Epoch, NodeId},
    rpc::{CancelKey, NotificationKind},
};

/// Incremented when the position or the meaning of a field changes: nodes of two versions refuse
/// each other's batches instead of misreading them.
const VERSION: u8 = 3;

const CALL: u8 = 1;
const ANSWER: u8 = 2;
const NOT_CONNECTED: u8 = 3;
const CANCEL: u8 = 4;
const TAKEOVER: u8 = 5;
const PROBE: u8 = 6;
const TOKEN_REVOKED: u8 = 7;
const KEYS_CHANGED: u8 = 8;
const NOTIFICATION: u8 = 9;
const PROMPTS: u8 = 10;
const RESOURCES: u8 = 11;
const CANCEL_BY_KEY: u8 = 12;
pub(super) const CHUNK: u8 = 13;
pub(super) const CANCEL_TURNS: u8 = 14;
/// A call, preceded by its trace context. Older nodes do not decode it, so tracing is enabled when
/// all nodes know it; until then none is sent.
const TRACED_CALL: u8 = 15;

/// A call with a deadline on the shared clock, preceded by the deadline, and by flags of what else
/// precedes it. Sent to nodes of the level [`DEADLINES`](crate::node::DEADLINES) and higher ones.
const DEADLINE_CALL: u8 = 16;
const DISCONNECT: u8 = 17;
const WATCHED: u8 = 18;
const APPROVALS: u8 = 19;

/// In place of the time when a log began, if that is not known.
const UNKNOWN_BEGIN: u64 = 0;

/// The flag of a trace context.
const WITH_TRACE: u8 = 1;
/// The flag of a digest of the registration that must be in force, after the trace context. Sent to nodes of the level
/// [`PINNED_CALLS`](crate::node::PINNED_CALLS) and higher ones.
const WITH_REGISTRATION: u8 = 2;

/// Appended to the JSON of a result that does not match the output schema of its service. Nodes of
/// releases before the mark pass it on with the JSON, where it is white space.
const INVALID_RESULT: u8 = b'\n';

/// Begins a batch in an empty buffer.
pub(crate) fn begin_batch(out: &mut Vec<u8>, sender: &NodeId) {
    out.push(VERSION);
    put_text(out, sender.as_str());
}

/// A batch with one message.
pub(crate) fn encode_batch(sender: &NodeId, message: &Message) -> Bytes {
    let mut batch = Vec::new();
    begin_batch(&mut batch, sender);
    encode(&mut batch, message);
    batch.into()
}

/// The encoded messages of a batch, without its head; empty for an empty buffer.
pub(crate) fn encoded_messages(batch: &[u8]) -> &[u8] {
    let sender = batch.get(1).map_or(0, |length| usize::from(*length));
    batch.get(2 + sender..).unwrap_or_default()
}

/// Appends a message to a batch.
pub(crate) fn encode(out: &mut Vec<u8>, message: &Message) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match message {
        Message::Call(call) => put_call(out, call),
        Message::Answer {
            token,
            outcome,
            delivered,
            body,
            result_valid,
        } => {
            out.push(ANSWER);
            out.extend_from_slice(&token.to_le_bytes());
            out.extend_from_slice(&[outcome.code(), *delivered as u8]);
            out.extend_from_slice(body);
            out.extend((!result_valid).then_some(INVALID_RESULT));
        }
        Message::Notification { token, kind, data } => put_notification(out, *token, *kind, data),
        Message::NotConnected { token } => {
            out.push(NOT_CONNECTED);
            out.extend_from_slice(&token.to_le_bytes());
        }
        Message::Cancel { org, device, call } => {
            out.push(CANCEL);
            out.extend_from_slice(org.uuid().as_bytes());
            out.extend_from_slice(call.uuid().as_bytes());
            put_text(out, device);
        }
        Message::CancelByKey { cancel_key } => {
            out.push(CANCEL_BY_KEY);
            out.extend_from_slice(&cancel_key.0);
        }
        Message::Takeover(connection) => put_connection(out, TAKEOVER, connection),
        Message::Disconnect(connection) => put_connection(out, DISCONNECT, connection),
        Message::Probe { nonce } => {
            out.push(PROBE);
            out.extend_from_slice(&nonce.to_le_bytes());
        }
        Message::TokenRevoked { token, expires_at } => {
            out.push(TOKEN_REVOKED);
            out.extend_from_slice(token.uuid().as_bytes());
            out.extend_from_slice(&expires_at.to_le_bytes());
        }
        Message::KeysChanged => out.push(KEYS_CHANGED),
        Message::PromptsChanged { org } => {
            out.push(PROMPTS);
            put_org(out, *org);
        }
        Message::ResourcesChanged { org, uri } => {
            out.push(RESOURCES);
            put_org(out, *org);
            out.extend_from_slice(uri);
        }
        Message::Watched { org, began_ms } => {
            out.push(WATCHED);
            out.extend_from_slice(org.uuid().as_bytes());
            out.extend_from_slice(&began_ms.unwrap_or(UNKNOWN_BEGIN).to_le_bytes());
        }
        Message::ApprovalsChanged { org } => {
            out.push(APPROVALS);
            put_org(out, Some(*org));
        }
        Message::Chunk(chunk) => turn_codec::put_chunk(out, chunk),
        Message::CancelTurns(turns) => turn_codec::put_cancellation(out, turns),
    }
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    if let Some(prefix) = out.get_mut(start..start + 4) {
        prefix.copy_from_slice(&length.to_le_bytes());
    }
}

fn put_notification(out: &mut Vec<u8>, token: u64, kind: NotificationKind, data: &[u8]) {
    out.push(NOTIFICATION);
    out.extend_from_slice(&token.to_le_bytes());
    out.push(kind as u8);
    out.extend_from_slice(data);
}

fn put_call(out: &mut Vec<u8>, call: &CallMessage) {
    match (call.deadline_ms, &call.trace) {
        (None, None) => out.push(CALL),
        (None, Some(_)) => out.push(TRACED_CALL),
        (Some(deadline_ms), trace) => {
            out.push(DEADLINE_CALL);
            out.extend_from_slice(&deadline_ms.to_le_bytes());
            let trace = if trace.is_some() { WITH_TRACE } else { 0 };
            let registration = if call.registration.is_some() {
                WITH_REGISTRATION
            } else {
                0
            };
            out.push(trace | registration);
        }
    }
    if let Some(trace) = &call.trace {
        trace.encode(out);
    }
    if let (Some(_), Some(registration)) = (call.deadline_ms, call.registration) {
        out.extend_from_slice(&registration.0);
    }
    out.extend_from_slice(&call.token.to_le_bytes());
    out.extend_from_slice(call.id.uuid().as_bytes());
    out.extend_from_slice(call.org.uuid().as_bytes());
    out.extend_from_slice(&call.epoch.0.to_le_bytes());
    out.extend_from_slice(&call.timeout_ms.to_le_bytes());
    out.push(call.wants_notifications.into());
    put_text(out, &call.device);
    put_text(out, &call.service);
    let input = u32::try_from(call.input.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&input.to_le_bytes());
    out.extend_from_slice(&call.input);
    out.extend_from_slice(&call.params);
}

/// An organisation; the nil id for none.
fn put_org(out: &mut Vec<u8>, org: Option<OrgId>) {
    let uuid = org.map_or(Uuid::nil(), |org| org.uuid());
    out.extend_from_slice(uuid.as_bytes());
}

/// Decodes the messages of a batch, one after the other.
pub(crate) struct BatchReader {
    pub(crate) sender: NodeId,
    rest: Bytes,
}

/// Decodes the head of a batch.
pub(crate) fn decode_batch(mut batch: Bytes) -> Result<BatchReader, Malformed> {
    if batch.try_get_u8().map_err(|_| Malformed)? != VERSION {
        return Err(Malformed);
    }
    let sender = NodeId::from(&*text(&mut batch)?);
    Ok(BatchReader {
        sender,
        rest: batch,
    })
}

/// Invariant: the messages before and after one that is not decoded are read.
impl Iterator for BatchReader {
    type Item = Result<Message, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let length = self.rest.try_get_u32_le().map_err(|_| Malformed);
        let body = length.and_then(|length| take(&mut self.rest, length as usize));
        if body.is_err() {
            self.rest.clear();
        }
        Some(body.map_err(DecodeError::from).and_then(decode))
    }
}

fn decode(mut body: Bytes) -> Result<Message, DecodeError> {
    let body = &mut body;
    let message = match body.try_get_u8().map_err(|_| Malformed)? {
        CALL => Message::Call(decode_call(body, CallHead::default())?),
        TRACED_CALL => {
            let trace = Some(trace(body)?);
            let head = CallHead {
                trace,
                ..CallHead::default()
            };
            Message::Call(decode_call(body, head)?)
        }
        DEADLINE_CALL => {
            let head = decode_head(body)?;
            Message::Call(decode_call(body, head)?)
        }
        ANSWER => decode_answer(body)?,
        NOTIFICATION => Message::Notification {
            token: number(body)?,
            kind: body
                .try_get_u8()
                .ok()
                .and_then(NotificationKind::from_code)
                .ok_or(Malformed)?,
            data: std::mem::take(body),
        },
        NOT_CONNECTED => Message::NotConnected {
            token: number(body)?,
        },
        CANCEL => {
            let org = OrgId::from_uuid(uuid(body)?);
            let call = CallId::from_uuid(uuid(body)?);
            Message::Cancel {
                org,
                device: text(body)?,
                call,
            }
        }
        CANCEL_BY_KEY => Message::CancelByKey {
            cancel_key: CancelKey(uuid(body)?.into_bytes()),
        },
        TAKEOVER => Message::Takeover(connection(body)?),
        DISCONNECT => Message::Disconnect(connection(body)?),
        PROBE => Message::Probe {
            nonce: number(body)?,
        },
        TOKEN_REVOKED => Message::TokenRevoked {
            token: TokenId::from_uuid(uuid(body)?),
            expires_at: number(body)?,
        },
        KEYS_CHANGED => Message::KeysChanged,
        PROMPTS => Message::PromptsChanged {
            org: optional_org(body)?,
        },
        RESOURCES => Message::ResourcesChanged {
            org: optional_org(body)?,
            uri: std::mem::take(body),
        },
        WATCHED => Message::Watched {
            org: OrgId::from_uuid(uuid(body)?),
            began_ms: Some(number(body)?).filter(|began| *began != UNKNOWN_BEGIN),
        },
        APPROVALS => Message::ApprovalsChanged {
            org: OrgId::from_uuid(uuid(body)?),
        },
        CHUNK => Message::Chunk(turn_codec::decode_chunk(body)?),
        CANCEL_TURNS => Message::CancelTurns(turn_codec::decode_cancellation(body)?),
        _ => return Err(DecodeError::UnknownKind),
    };
    Ok(message)
}

fn decode_answer(body: &mut Bytes) -> Result<Message, Malformed> {
    let token = number(body)?;
    let outcome = body.try_get_u8().ok().and_then(Outcome::from_code);
    let outcome = outcome.ok_or(Malformed)?;
    let delivered = match body.try_get_u8() {
        Ok(0) => Delivered::No,
        Ok(1) => Delivered::Unknown,
        Ok(2) => Delivered::Yes,
        _ => return Err(Malformed),
    };
    let mut body = std::mem::take(body);
    let result_valid = body.last() != Some(&INVALID_RESULT);
    if !result_valid {
        body.truncate(body.len() - 1);
    }
    Ok(Message::Answer {
        token,
        outcome,
        delivered,
        body,
        result_valid,
    })
}

fn trace(body: &mut Bytes) -> Result<Box<TraceContext>, Malformed> {
    let (trace, length) = TraceContext::decode(body).ok_or(Malformed)?;
    body.advance(length);
    Ok(Box::new(trace))
}

/// What precedes a call.
#[derive(Default)]
struct CallHead {
    deadline_ms: Option<u64>,
    trace: Option<Box<TraceContext>>,
    registration: Option<Digest>,
}

fn decode_head(body: &mut Bytes) -> Result<CallHead, Malformed> {
    let deadline_ms = number(body)?;
    let flags = body.try_get_u8().map_err(|_| Malformed)?;
    // What an unknown one announces would be read as something else.
    if flags & !(WITH_TRACE | WITH_REGISTRATION) != 0 {
        return Err(Malformed);
    }
    let trace = match flags & WITH_TRACE {
        0 => None,
        _ => Some(trace(body)?),
    };
    let registration = match flags & WITH_REGISTRATION {
        0 => None,
        _ => {
            let digest = take(body, size_of::<Digest>())?;
            Some(Digest(digest.as_ref().try_into().map_err(|_| Malformed)?))
        }
    };
    Ok(CallHead {
        deadline_ms: Some(deadline_ms),
        trace,
        registration,
    })
}

fn decode_call(body: &mut Bytes, head: CallHead) -> Result<CallMessage, Malformed> {
    Ok(CallMessage {
        trace: head.trace,
        deadline_ms: head.deadline_ms,
        registration: head.registration,
        token: number(body)?,
        id: CallId::from_uuid(uuid(body)?),
        org: OrgId::from_uuid(uuid(body)?),
        epoch: Epoch(number(body)?),
        timeout_ms: number(body)?,
        wants_notifications: flag(body)?,
        device: text(body)?,
        service: text(body)?,
        input: {
            let length = body.try_get_u32_le().map_err(|_| Malformed)?;
            take(body, length as usize)?
        },
        params: std::mem::take(body),
    })
}

fn optional_org(from: &mut Bytes) -> Result<Option<OrgId>, Malformed> {
    let uuid = uuid(from)?;
    Ok((!uuid.is_nil()).then(|| OrgId::from_uuid(uuid)))
}

#[cfg(test)]
mod tests;
