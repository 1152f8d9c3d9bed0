//! Buffers that belong to the thread. The connection that runs on it borrows them, so an idle
//! connection holds none.

use std::{
    cell::{Cell, RefCell},
    ops::{Deref, DerefMut},
};

/// The maximum number of bytes of one read. The frames of one read are handled before other tasks of the
/// worker run: the smallest ones take a quarter of a millisecond.
pub(crate) const MAX_READ_BYTES: usize = 16 * 1024;
/// Larger write buffers are freed instead of reused.
const MAX_REUSED_WRITE_BYTES: usize = 256 * 1024;
/// Two are in use at a time: the frames being collected, and the payload being written.
const MAX_WRITE_BUFFERS: usize = 2;

thread_local! {
    static READ: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static WRITE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The thread's read buffer. Returns to the thread that drops it.
pub(super) struct ReadBuffer(Box<[u8]>);

impl ReadBuffer {
    pub(super) fn borrow() -> Self {
        Self(
            READ.take()
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
        READ.set(Some(std::mem::take(&mut self.0)));
    }
}

/// Takes an empty write buffer of the thread.
pub(super) fn take_write() -> Vec<u8> {
    WRITE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Returns a write buffer to the thread.
pub(super) fn return_write(mut buffer: Vec<u8>) {
    if buffer.capacity() > MAX_REUSED_WRITE_BYTES {
        return;
    }
    buffer.clear();
    WRITE.with_borrow_mut(|buffers| {
        if buffers.len() < MAX_WRITE_BUFFERS {
            buffers.push(buffer);
        }
    });
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
