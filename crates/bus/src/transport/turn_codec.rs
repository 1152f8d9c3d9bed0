//! Encodes and decodes the messages of turns: chunks of a reply, and cancellations.

use bytes::{Buf, Bytes};
use switchboard_protocol::id::{DeviceKey, OrgId};

use super::{
    codec::{CANCEL_TURNS, CHUNK},
    fields::{number, put_text, text, uuid},
    message::{Chunk, ChunkMessage, Malformed},
};
use crate::{
    node::Epoch,
    turns::{CancelReason, TurnCancellation, TurnPosition},
};

const TEXT: u8 = 0;
const KEEP_ALIVE: u8 = 1;
const END: u8 = 2;

const UNWANTED: u8 = 0;
const SUPERSEDED: u8 = 1;

pub(super) fn put_chunk(out: &mut Vec<u8>, message: &ChunkMessage) {
    out.push(CHUNK);
    put_position(out, message.position);
    out.extend_from_slice(&message.attempt.to_le_bytes());
    out.extend_from_slice(&message.number.to_le_bytes());
    out.extend_from_slice(message.org.uuid().as_bytes());
    out.extend_from_slice(&message.epoch.0.to_le_bytes());
    out.extend_from_slice(&message.task);
    put_text(out, &message.device);
    match &message.chunk {
        Chunk::Text(text) => {
            out.push(TEXT);
            out.extend_from_slice(text.as_bytes());
        }
        Chunk::KeepAlive => out.push(KEEP_ALIVE),
        Chunk::Style(style) => {
            out.push(KEEP_ALIVE);
            out.extend_from_slice(style.as_bytes());
        }
        Chunk::End => out.push(END),
    }
}

pub(super) fn put_cancellation(out: &mut Vec<u8>, cancellation: &TurnCancellation) {
    out.push(CANCEL_TURNS);
    out.extend_from_slice(cancellation.device.org.uuid().as_bytes());
    out.extend_from_slice(&cancellation.epoch.0.to_le_bytes());
    out.push(cancellation.task.is_some().into());
    out.extend_from_slice(&cancellation.task.unwrap_or_default());
    out.push(match cancellation.reason {
        CancelReason::Unwanted => UNWANTED,
        CancelReason::Superseded => SUPERSEDED,
    });
    out.push(cancellation.before.is_some().into());
    put_position(out, cancellation.before.unwrap_or_default());
    put_text(out, cancellation.device.device.as_str());
}

fn put_position(out: &mut Vec<u8>, position: TurnPosition) {
    out.extend_from_slice(&position.ms.to_le_bytes());
    out.extend_from_slice(&position.number.to_le_bytes());
}

pub(super) fn decode_chunk(body: &mut Bytes) -> Result<ChunkMessage, Malformed> {
    Ok(ChunkMessage {
        position: position(body)?,
        attempt: body.try_get_u32_le().map_err(|_| Malformed)?,
        number: body.try_get_u32_le().map_err(|_| Malformed)?,
        org: OrgId::from_uuid(uuid(body)?),
        epoch: Epoch(number(body)?),
        task: task(body)?,
        device: text(body)?,
        chunk: match body.try_get_u8() {
            Ok(TEXT) => Chunk::Text(std::mem::take(body).try_into()?),
            Ok(KEEP_ALIVE) if body.is_empty() => Chunk::KeepAlive,
            Ok(KEEP_ALIVE) => Chunk::Style(std::mem::take(body).try_into()?),
            Ok(END) => Chunk::End,
            _ => return Err(Malformed),
        },
    })
}

pub(super) fn decode_cancellation(body: &mut Bytes) -> Result<TurnCancellation, Malformed> {
    let org = OrgId::from_uuid(uuid(body)?);
    let epoch = Epoch(number(body)?);
    let has_task = flag(body)?;
    let task = task(body)?;
    let reason = match body.try_get_u8() {
        Ok(UNWANTED) => CancelReason::Unwanted,
        Ok(SUPERSEDED) => CancelReason::Superseded,
        _ => return Err(Malformed),
    };
    let has_before = flag(body)?;
    let before = position(body)?;
    let device = text(body)?.parse().map_err(|_| Malformed)?;
    Ok(TurnCancellation {
        device: DeviceKey { org, device },
        epoch,
        task: has_task.then_some(task),
        reason,
        before: has_before.then_some(before),
    })
}

fn flag(from: &mut Bytes) -> Result<bool, Malformed> {
    from.try_get_u8()
        .map(|byte| byte != 0)
        .map_err(|_| Malformed)
}

fn position(from: &mut Bytes) -> Result<TurnPosition, Malformed> {
    Ok(TurnPosition {
        ms: number(from)?,
        number: number(from)?,
    })
}

fn task(from: &mut Bytes) -> Result<[u8; 8], Malformed> {
    let mut bytes = [0; 8];
    from.try_copy_to_slice(&mut bytes).map_err(|_| Malformed)?;
    Ok(bytes)
}
