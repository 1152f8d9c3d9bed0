//! Encodes and decodes the fields of messages.

use bytes::{Buf, Bytes};
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use super::{
    message::{ConnectionMessage, Malformed},
    text::Text,
};
use crate::node::Epoch;

pub(super) fn put_connection(out: &mut Vec<u8>, kind: u8, connection: &ConnectionMessage) {
    out.push(kind);
    out.extend_from_slice(connection.org.uuid().as_bytes());
    out.extend_from_slice(&connection.epoch.0.to_le_bytes());
    put_text(out, &connection.device);
}

pub(super) fn connection(from: &mut Bytes) -> Result<ConnectionMessage, Malformed> {
    let org = OrgId::from_uuid(uuid(from)?);
    let epoch = Epoch(number(from)?);
    let device = text(from)?;
    Ok(ConnectionMessage { org, device, epoch })
}

/// A text of at most 255 bytes. Ids and service names are shorter by their own limits.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(
        text.as_bytes()
            .get(..usize::from(length))
            .unwrap_or_default(),
    );
}

pub(super) fn flag(from: &mut Bytes) -> Result<bool, Malformed> {
    from.try_get_u8()
        .map(|flag| flag != 0)
        .map_err(|_| Malformed)
}

pub(super) fn take(from: &mut Bytes, length: usize) -> Result<Bytes, Malformed> {
    if length > from.len() {
        Err(Malformed)
    } else {
        Ok(from.split_to(length))
    }
}

pub(super) fn number(from: &mut Bytes) -> Result<u64, Malformed> {
    from.try_get_u64_le().map_err(|_| Malformed)
}

pub(super) fn uuid(from: &mut Bytes) -> Result<Uuid, Malformed> {
    let mut bytes = [0; 16];
    from.try_copy_to_slice(&mut bytes).map_err(|_| Malformed)?;
    Ok(Uuid::from_bytes(bytes))
}

pub(super) fn text(from: &mut Bytes) -> Result<Text, Malformed> {
    let length = from.try_get_u8().map_err(|_| Malformed)?;
    take(from, usize::from(length))?.try_into()
}
