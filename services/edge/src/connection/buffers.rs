//! Buffers that belong to the thread. The connection that runs on it borrows them, so an idle
//! connection holds none.

use std::{
    cell::{Cell, RefCell},
    mem,
    ops::{Deref, DerefMut},
};

use super::io::Unsent;

/// The maximum number of bytes of one read. The frames of one read are handled before other tasks of the
/// worker run: the smallest ones take a quarter of a millisecond.
pub(crate) const MAX_READ_BYTES: usize = 16 * 1024;
/// Larger write buffers are freed instead of reused.
const MAX_REUSED_WRITE_BYTES: usize = 256 * 1024;
/// Two are in use at a time with TLS: for what was received, and for what it was decrypted to.
const MAX_READ_BUFFERS: usize = 2;

thread_local! {
    static READ: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    /// For payloads and records.
    static WRITE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static UNSENT: Cell<Option<Box<Unsent>>> = const { Cell::new(None) };
}

/// The thread's read buffer. Returns to the thread that drops it.
pub(crate) struct ReadBuffer(Box<[u8]>);

impl ReadBuffer {
    pub(crate) fn borrow() -> Self {
        Self(
            READ.with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| vec![0; MAX_READ_BYTES].into_boxed_slice()),
        )
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let buffer = mem::take(&mut self.0);
        READ.with_borrow_mut(|buffers| {
            if buffers.len() < MAX_READ_BUFFERS {
                buffers.push(buffer);
            }
        });
    }
}

/// Takes an empty write buffer of the thread.
pub(crate) fn take_write() -> Vec<u8> {
    WRITE.take()
}

/// Returns a write buffer to the thread.
pub(crate) fn return_write(mut buffer: Vec<u8>) {
    if buffer.capacity() <= MAX_REUSED_WRITE_BYTES {
        buffer.clear();
        WRITE.set(buffer);
    }
}

/// Takes the thread's buffer for frames.
pub(super) fn take_unsent() -> Box<Unsent> {
    UNSENT.take().unwrap_or_default()
}

/// Returns it to the thread.
pub(super) fn return_unsent(mut unsent: Box<Unsent>) {
    if unsent.bytes.capacity() <= MAX_REUSED_WRITE_BYTES {
        unsent.clear();
        UNSENT.set(Some(unsent));
    }
}

/// Writes a payload into a borrowed buffer and passes it on.
pub(super) fn with_payload<T>(
    write: impl FnOnce(&mut Vec<u8>),
    send: impl FnOnce(&[u8]) -> T,
) -> T {
    let mut payload = take_write();
    write(&mut payload);
    let result = send(&payload);
    return_write(payload);
    result
}
