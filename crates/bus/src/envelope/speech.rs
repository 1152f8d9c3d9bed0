//! Envelopes of conversations: steps of an answer, and answers that are not wanted.
//! Never: a text that is not UTF-8.

use bytes::{Buf, Bytes};
use switchboard_protocol::id::{DeviceKey, OrgId};

use super::{Malformed, PIECE, STOP, number, put_short, short, uuid};
use crate::{
    node::Epoch,
    text::Text,
    turns::{Piece, Stop, StopReason, TurnAt},
};

const SAY: u8 = 0;
const BUSY: u8 = 1;
const FINISH: u8 = 2;

const UNWANTED: u8 = 0;
const SUPERSEDED: u8 = 1;

/// A step of an answer on its way to the node that holds the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PieceEnvelope {
    /// Which turn is answered.
    pub(crate) at: TurnAt,
    /// By the how-manieth taker.
    pub(crate) attempt: u32,
    /// From 0 for each taker, without a gap; of a sign of life it says nothing.
    pub(crate) number: u32,
    pub(crate) org: OrgId,
    pub(crate) epoch: Epoch,
    pub(crate) task: [u8; 8],
    pub(crate) device: Text,
    pub(crate) piece: Piece,
}

pub(super) fn put_piece(out: &mut Vec<u8>, piece: &PieceEnvelope) {
    out.push(PIECE);
    put_at(out, piece.at);
    out.extend_from_slice(&piece.attempt.to_le_bytes());
    out.extend_from_slice(&piece.number.to_le_bytes());
    out.extend_from_slice(piece.org.uuid().as_bytes());
    out.extend_from_slice(&piece.epoch.0.to_le_bytes());
    out.extend_from_slice(&piece.task);
    put_short(out, &piece.device);
    match &piece.piece {
        Piece::Text(text) => {
            out.push(SAY);
            out.extend_from_slice(text.as_bytes());
        }
        Piece::Busy => out.push(BUSY),
        Piece::End => out.push(FINISH),
    }
}

pub(super) fn put_stop(out: &mut Vec<u8>, stop: &Stop) {
    out.push(STOP);
    out.extend_from_slice(stop.device.org.uuid().as_bytes());
    out.extend_from_slice(&stop.epoch.0.to_le_bytes());
    out.push(stop.task.is_some().into());
    out.extend_from_slice(&stop.task.unwrap_or_default());
    out.push(match stop.why {
        StopReason::Unwanted => UNWANTED,
        StopReason::Superseded => SUPERSEDED,
    });
    out.push(stop.before.is_some().into());
    put_at(out, stop.before.unwrap_or_default());
    put_short(out, stop.device.device.as_str());
}

fn put_at(out: &mut Vec<u8>, at: TurnAt) {
    out.extend_from_slice(&at.ms.to_le_bytes());
    out.extend_from_slice(&at.number.to_le_bytes());
}

pub(super) fn parse_piece(body: &mut Bytes) -> Result<PieceEnvelope, Malformed> {
    Ok(PieceEnvelope {
        at: at(body)?,
        attempt: body.try_get_u32_le().map_err(|_| Malformed)?,
        number: body.try_get_u32_le().map_err(|_| Malformed)?,
        org: OrgId::from_uuid(uuid(body)?),
        epoch: Epoch(number(body)?),
        task: task(body)?,
        device: short(body)?,
        piece: match body.try_get_u8() {
            Ok(SAY) => Piece::Text(std::mem::take(body).try_into()?),
            Ok(BUSY) => Piece::Busy,
            Ok(FINISH) => Piece::End,
            _ => return Err(Malformed),
        },
    })
}

pub(super) fn parse_stop(body: &mut Bytes) -> Result<Stop, Malformed> {
    let org = OrgId::from_uuid(uuid(body)?);
    let epoch = Epoch(number(body)?);
    let is_one = flag(body)?;
    let task = task(body)?;
    let why = match body.try_get_u8() {
        Ok(UNWANTED) => StopReason::Unwanted,
        Ok(SUPERSEDED) => StopReason::Superseded,
        _ => return Err(Malformed),
    };
    let is_bounded = flag(body)?;
    let before = at(body)?;
    let device = short(body)?.parse().map_err(|_| Malformed)?;
    Ok(Stop {
        device: DeviceKey { org, device },
        epoch,
        task: is_one.then_some(task),
        why,
        before: is_bounded.then_some(before),
    })
}

fn flag(from: &mut Bytes) -> Result<bool, Malformed> {
    from.try_get_u8()
        .map(|byte| byte != 0)
        .map_err(|_| Malformed)
}

fn at(from: &mut Bytes) -> Result<TurnAt, Malformed> {
    Ok(TurnAt {
        ms: number(from)?,
        number: number(from)?,
    })
}

fn task(from: &mut Bytes) -> Result<[u8; 8], Malformed> {
    let mut bytes = [0; 8];
    from.try_copy_to_slice(&mut bytes).map_err(|_| Malformed)?;
    Ok(bytes)
}
