//! Buffers that belong to the thread and are lent to whichever connection is busy on it, so that
//! an idle connection owns none.
//! Never: a buffer that stays with a connection while nothing is in it.

use std::{
    cell::{Cell, RefCell},
    ops::{Deref, DerefMut},
};

/// What one read takes at most.
const READ_BYTES: usize = 64 * 1024;
/// Larger write buffers are freed instead of being kept for the next.
const KEPT_WRITE_BYTES: usize = 256 * 1024;
/// Frames being collected and the payload of the one being written: two at a time.
const KEPT_WRITE_BUFFERS: usize = 2;

thread_local! {
    static READ: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static WRITE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The thread's read buffer, back with the thread it is dropped on.
pub(super) struct ReadScratch(Box<[u8]>);

impl ReadScratch {
    pub(super) fn lend() -> Self {
        Self(
            READ.take()
                .unwrap_or_else(|| vec![0; READ_BYTES].into_boxed_slice()),
        )
    }
}

impl Deref for ReadScratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for ReadScratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for ReadScratch {
    fn drop(&mut self) {
        READ.set(Some(std::mem::take(&mut self.0)));
    }
}

/// An empty write buffer of the thread.
pub(super) fn lend_write() -> Vec<u8> {
    WRITE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives a write buffer back.
pub(super) fn give_back_write(mut buffer: Vec<u8>) {
    if buffer.capacity() > KEPT_WRITE_BYTES {
        return;
    }
    buffer.clear();
    WRITE.with_borrow_mut(|kept| {
        if kept.len() < KEPT_WRITE_BUFFERS {
            kept.push(buffer);
        }
    });
}

/// Lets `fill` write a payload and `send` use it, without an allocation of its own.
pub(super) fn with_payload<T>(fill: impl FnOnce(&mut Vec<u8>), send: impl FnOnce(&[u8]) -> T) -> T {
    let mut payload = lend_write();
    fill(&mut payload);
    let result = send(&payload);
    give_back_write(payload);
    result
}
