//! Bytes of TLS records, and of their plaintext.

use std::io;

use rustls::{
    server::ServerConnectionData,
    unbuffered::{EncodeError, EncodeTlsData},
};
use tokio::io::ReadBuf;

/// The type, the version and the length of a record.
const HEADER_BYTES: usize = 5;
/// The longest record. A longer one is refused when its header has arrived.
pub(super) const MAX_RECORD_BYTES: usize = HEADER_BYTES + 16 * 1024 + 256;

/// Appends what the session sends by itself.
pub(super) fn encode(
    unsent: &mut Vec<u8>,
    mut data: EncodeTlsData<'_, ServerConnectionData>,
) -> io::Result<()> {
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else {
        return Ok(());
    };
    let begin = unsent.len();
    unsent.resize(begin + size.required_size, 0);
    let encoded = data.encode(unsent.get_mut(begin..).unwrap_or_default());
    encoded.map(|_| ()).map_err(io::Error::other)
}

/// Whether a record is complete, or cannot become one.
pub(super) fn begins_with_record(bytes: &[u8]) -> bool {
    let Some([_, _, _, high, low]) = bytes.first_chunk() else {
        return false;
    };
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    bytes.len() >= length || length > MAX_RECORD_BYTES
}

/// Appends received bytes. The capacity doubles, so that small reads copy little, but not beyond a
/// whole record.
pub(super) fn append(received: &mut Vec<u8>, bytes: &[u8]) {
    let needed = received.len() + bytes.len();
    if needed > received.capacity() {
        let doubled = (2 * received.capacity()).min(MAX_RECORD_BYTES);
        received.reserve_exact(doubled.max(needed) - received.len());
    }
    received.extend_from_slice(bytes);
}

/// Copies what fits. Returns how many bytes those are.
pub(super) fn put(reader: &mut ReadBuf<'_>, bytes: &[u8]) -> usize {
    let fits = bytes.get(..reader.remaining()).unwrap_or(bytes);
    reader.put_slice(fits);
    fits.len()
}

/// Removes bytes at the front. What is left owns no more memory than it needs.
pub(super) fn discard(bytes: &mut Vec<u8>, count: usize) {
    if count > 0 {
        *bytes = bytes.split_off(count);
    }
}

pub(super) fn invalid_data(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
