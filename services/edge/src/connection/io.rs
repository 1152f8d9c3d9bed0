//! Frames over any stream: splits received bytes into frames and buffers frames to send.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use switchboard_protocol::frame::{self, Decoder, Frame, FrameError, Kind, SeqFormat, TaskId};
use switchboard_runtime::budget::{Budget, Exhausted, Owner, Permit, Scope};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::buffers::{self, ReadBuffer};
use crate::handle::WaitingBytes;

/// The bytes of an incomplete frame that are not charged to the budget of frames.
const MAX_UNCHARGED_BYTES: usize = 4 * 1024;

/// The edge's end of a device's stream. Owns memory only for an incomplete frame and for data that
/// the socket does not accept.
pub(super) struct FrameIo<S> {
    stream: S,
    decoder: Decoder,
    /// The incomplete frame at the end of the received bytes; absent most of the time.
    unread: Option<Box<Unread>>,
    /// Frames for the device; absent most of the time.
    unsent: Option<Box<Unsent>>,
    /// The stream may still buffer written bytes (TLS records).
    needs_flush: bool,
}

/// Received bytes. [`FrameIo::next_frame`] takes the frames out of them.
pub(super) struct ReadChunk {
    bytes: ChunkBytes,
    consumed: usize,
}

enum ChunkBytes {
    /// This many bytes of the thread's buffer.
    Borrowed(ReadBuffer, usize),
    Owned(Box<Unread>),
}

/// Received bytes that are kept for later.
struct Unread {
    bytes: Vec<u8>,
    /// `bytes` may hold a complete frame, so it is handled before the socket is read.
    may_have_frame: bool,
    /// The capacity of `bytes`, if it exceeds [`MAX_UNCHARGED_BYTES`].
    permit: Option<Permit>,
}

/// Frames for the device. Borrowed from the thread while the socket accepts data, then owned.
#[derive(Default)]
pub(super) struct Unsent {
    pub(super) bytes: Vec<u8>,
    /// How many of them the socket has accepted.
    written: usize,
    charge: WaitingBytes,
    is_owned: bool,
}

/// What [`FrameIo::put_back`] keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    /// Bytes of another frame than before.
    NewFrame,
    /// More bytes of the same frame, which is still incomplete.
    SameFrame,
}

impl Unread {
    /// Appends received bytes. The capacity doubles, so that small reads copy little, but not
    /// beyond a whole frame.
    fn append(&mut self, received: &[u8], max_frame_bytes: usize) {
        let length = self.bytes.len();
        let needed = length.saturating_add(received.len());
        if needed > self.bytes.capacity() {
            let doubled = self.bytes.capacity().saturating_mul(2);
            let capacity = doubled.min(max_frame_bytes).max(needed);
            self.bytes.reserve_exact(capacity.saturating_sub(length));
        }
        self.bytes.extend_from_slice(received);
    }

    /// Charges the capacity to `owner`.
    fn charge(&mut self, budget: &Budget, owner: Owner) -> Result<(), Exhausted> {
        let bytes = self.bytes.capacity();
        if bytes <= MAX_UNCHARGED_BYTES {
            self.permit = None;
            return Ok(());
        }
        let Some(permit) = &mut self.permit else {
            self.permit = Some(budget.try_acquire(owner, bytes)?);
            return Ok(());
        };
        permit.shrink(permit.amount().saturating_sub(bytes));
        // Bytes that were received before AUTH are charged to the network.
        permit.transfer(owner)?;
        permit.try_grow(bytes.saturating_sub(permit.amount()))
    }
}

impl ChunkBytes {
    fn all(&self) -> &[u8] {
        match self {
            Self::Borrowed(buffer, length) => buffer.get(..*length).unwrap_or_default(),
            Self::Owned(unread) => &unread.bytes,
        }
    }

    fn take_permit(&mut self) -> Option<Permit> {
        match self {
            Self::Borrowed(..) => None,
            Self::Owned(unread) => unread.permit.take(),
        }
    }
}

impl ReadChunk {
    fn rest(&self) -> &[u8] {
        self.bytes.all().get(self.consumed..).unwrap_or_default()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameIo<S> {
    pub(super) fn new(stream: S, max_frame_bytes: u32) -> Self {
        Self {
            stream,
            decoder: Decoder::new(max_frame_bytes as usize),
            unread: None,
            unsent: None,
            needs_flush: false,
        }
    }

    pub(super) fn set_max_frame_bytes(&mut self, limit: u32) {
        self.decoder.set_limit(limit as usize);
    }

    // Receive.

    /// Waits for bytes. Returns them with the number read from the socket, or `None` when the
    /// device has closed its side.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<(ReadChunk, usize)>>> {
        if let Some(unread) = self.unread.take_if(|unread| unread.may_have_frame) {
            let bytes = ChunkBytes::Owned(unread);
            return Poll::Ready(Ok(Some((ReadChunk { bytes, consumed: 0 }, 0))));
        }
        let mut read_buffer = ReadBuffer::borrow();
        let mut buffer = ReadBuf::new(&mut read_buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let length = buffer.filled().len();
        if length == 0 {
            return Poll::Ready(Ok(None));
        }
        let bytes = match self.unread.take() {
            None => ChunkBytes::Borrowed(read_buffer, length),
            Some(mut unread) => {
                let received = read_buffer.get(..length).unwrap_or_default();
                unread.append(received, self.decoder.limit());
                ChunkBytes::Owned(unread)
            }
        };
        Poll::Ready(Ok(Some((ReadChunk { bytes, consumed: 0 }, length))))
    }

    /// Takes the next complete frame out of the received bytes.
    pub(super) fn next_frame<'a>(
        &mut self,
        chunk: &'a mut ReadChunk,
    ) -> Result<Option<Frame<'a>>, FrameError> {
        let ReadChunk { bytes, consumed } = chunk;
        let rest = bytes.all().get(*consumed..).unwrap_or_default();
        let Some((frame, length)) = self.decoder.decode(rest)? else {
            *consumed += self.decoder.skippable();
            return Ok(None);
        };
        *consumed += length;
        Ok(Some(frame))
    }

    /// Keeps the bytes that were not consumed, and charges them to `owner` if they are many. With
    /// `may_have_frame` they are handled before the socket is read.
    ///
    /// # Errors
    /// When the budget has no room. The bytes are lost, so the connection cannot continue.
    pub(super) fn put_back(
        &mut self,
        chunk: ReadChunk,
        may_have_frame: bool,
        budget: &Budget,
        owner: Owner,
    ) -> Result<Kept, Exhausted> {
        if chunk.rest().is_empty() {
            return Ok(Kept::Nothing);
        }
        let (mut unread, kept) = match chunk {
            ReadChunk {
                bytes: ChunkBytes::Owned(unread),
                consumed: 0,
            } => (unread, Kept::SameFrame),
            mut chunk => {
                let unread = Unread {
                    bytes: chunk.rest().to_vec(),
                    may_have_frame,
                    permit: chunk.bytes.take_permit(),
                };
                (Box::new(unread), Kept::NewFrame)
            }
        };
        unread.may_have_frame = may_have_frame;
        unread.charge(budget, owner)?;
        self.unread = Some(unread);
        Ok(kept)
    }

    // Send.

    /// The buffer that frames are appended to. [`Self::poll_flush`] sends it.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.unsent.get_or_insert_with(buffers::take_unsent).bytes
    }

    /// Appends one frame.
    pub(super) fn put(&mut self, kind: Kind, task: TaskId, seq: u16, payload: &[u8]) {
        frame::encode(self.out(), kind, task, seq, SeqFormat::Plain, payload);
    }

    /// Bytes that wait for the socket.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.rest().len())
    }

    /// Charges what the socket does not accept. What other owners have left no room for stays
    /// uncharged: `device_max_unsent_bytes` bounds it.
    ///
    /// # Errors
    /// When the owner is at its share.
    pub(super) fn charge_unsent(&mut self, budget: &Budget, owner: Owner) -> Result<(), Exhausted> {
        let Some(unsent) = &mut self.unsent else {
            return Ok(());
        };
        match unsent.charge.set(unsent.bytes.capacity(), budget, owner) {
            Err(exhausted) if exhausted.scope == Scope::Share => Err(exhausted),
            _ => Ok(()),
        }
    }

    /// Sends the buffered frames. Ready when all of them are sent.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(unsent) = &mut self.unsent {
            while !unsent.rest().is_empty() {
                match Pin::new(&mut self.stream).poll_write(cx, unsent.rest()) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(written)) => {
                        unsent.written += written;
                        self.needs_flush = true;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        unsent.keep_rest();
                        return Poll::Pending;
                    }
                }
            }
        }
        self.free_unsent();
        if self.needs_flush {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the buffered frames, closes the edge's side, and reads until the device closes its
    /// own. Closing a socket with unread bytes resets it, and the last frame would be lost.
    pub(super) async fn shut_down(&mut self) -> io::Result<()> {
        self.unread = None;
        poll_fn(|cx| self.poll_flush(cx)).await?;
        poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await?;
        while poll_fn(|cx| self.poll_discard(cx)).await? > 0 {}
        Ok(())
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut read_buffer = ReadBuffer::borrow();
        let mut buffer = ReadBuf::new(&mut read_buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Returns a borrowed buffer to the thread.
    fn free_unsent(&mut self) {
        if let Some(unsent) = self.unsent.take_if(|unsent| !unsent.is_owned) {
            buffers::return_unsent(unsent);
        }
        self.unsent = None;
    }
}

impl Unsent {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// The socket accepts no more: moves the rest out of the thread's buffer.
    fn keep_rest(&mut self) {
        if !self.is_owned {
            let rest = self.rest().to_vec();
            buffers::return_write(std::mem::replace(&mut self.bytes, rest));
            self.is_owned = true;
        } else if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
        } else {
            return;
        }
        self.written = 0;
    }

    /// Empties the buffer for its next use.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_runtime::budget::{Budgets, Kind as BudgetKind};
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;

    const LIMIT: u32 = 32 * 1024;

    struct Fixture {
        io: FrameIo<DuplexStream>,
        device: DuplexStream,
        budget: Budget,
    }

    impl Fixture {
        fn new(budget_bytes: usize) -> Self {
            let (stream, device) = tokio::io::duplex(1 << 20);
            let budgets = Budgets::new(&Registry::new()).unwrap();
            Self {
                io: FrameIo::new(stream, LIMIT),
                device,
                budget: budgets.bytes("frames", budget_bytes, BudgetKind::Brief),
            }
        }

        /// Sends these bytes to the edge's end. Returns the number of frames that they complete,
        /// and what is kept.
        async fn receive(&mut self, bytes: &[u8]) -> (usize, Result<Kept, Exhausted>) {
            self.device.write_all(bytes).await.unwrap();
            let read = poll_fn(|cx| self.io.poll_read(cx)).await.unwrap();
            let (mut chunk, _) = read.unwrap();
            let mut frames = 0;
            while self.io.next_frame(&mut chunk).unwrap().is_some() {
                frames += 1;
            }
            let owner = Owner::Proxied(1);
            (frames, self.io.put_back(chunk, false, &self.budget, owner))
        }
    }

    fn begun(length: usize) -> Vec<u8> {
        let mut bytes = b"##START\x11mcp000010000".to_vec();
        bytes.resize(length, b'x');
        bytes
    }

    #[tokio::test]
    async fn incomplete_frame_is_kept_until_its_end() {
        let mut fixture = Fixture::new(1 << 20);
        let half = begun(30);
        assert_eq!(fixture.receive(&half).await, (0, Ok(Kept::NewFrame)));
        assert_eq!(fixture.receive(b"more").await, (0, Ok(Kept::SameFrame)));
        // The end of one frame, and the beginning of the next.
        let next = [b"##END", &half[..]].concat();
        assert_eq!(fixture.receive(&next).await, (1, Ok(Kept::NewFrame)));
        assert_eq!(fixture.receive(b"##END").await, (1, Ok(Kept::Nothing)));
        assert_eq!(fixture.budget.used(), 0);
    }

    #[tokio::test]
    async fn large_incomplete_frame_is_charged() {
        let mut fixture = Fixture::new(1 << 20);
        let _ = fixture.receive(&begun(MAX_UNCHARGED_BYTES)).await;
        assert_eq!(fixture.budget.used(), 0);
        let _ = fixture.receive(b"x").await;
        assert_eq!(fixture.budget.used(), 2 * MAX_UNCHARGED_BYTES);
        let _ = fixture.receive(&[b'x'; 20_000]).await;
        // Doubled, but not beyond a whole frame.
        let _ = fixture.receive(b"x").await;
        assert_eq!(fixture.budget.used(), LIMIT as usize);
        let next = [b"##END", &begun(5_000)[..]].concat();
        assert_eq!(fixture.receive(&next).await, (1, Ok(Kept::NewFrame)));
        assert_eq!(fixture.budget.used(), 5_000);
        assert_eq!(fixture.receive(b"##END").await, (1, Ok(Kept::Nothing)));
        assert_eq!(fixture.budget.used(), 0);
    }

    #[tokio::test]
    async fn slow_reader_is_closed_only_for_the_share_of_its_organisation() {
        let network = |host| Owner::network([192, 0, 2, host].into());
        let budgets = Budgets::new(&Registry::new()).unwrap();
        let budget = budgets.bytes("unsent", 40_000, BudgetKind::quarter_of(40_000));
        let hosts = 1..=4;
        let held = hosts.map(|host| budget.try_acquire(network(host), 10_000).unwrap());
        let held: Vec<_> = held.collect();
        let mut fixture = Fixture::new(1 << 20);
        let length = (1 << 20) + 8_000;
        fixture.io.out().resize(length, b'x');
        poll_fn(|cx| {
            assert!(fixture.io.poll_flush(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(fixture.io.unsent_bytes(), 8_000);
        assert!(fixture.io.charge_unsent(&budget, network(1)).is_err());
        // Others hold everything: it stays uncharged until there is room.
        assert_eq!(fixture.io.charge_unsent(&budget, network(5)), Ok(()));
        assert_eq!(budget.used(), 40_000);
        drop(held);
        assert_eq!(fixture.io.charge_unsent(&budget, network(5)), Ok(()));
        assert_eq!(budget.used(), 8_000);
    }

    #[tokio::test]
    async fn exhausted_budget_keeps_nothing() {
        let mut fixture = Fixture::new(10_000);
        assert_eq!(fixture.receive(&begun(6_000)).await.1, Ok(Kept::NewFrame));
        assert!(fixture.receive(&[b'x'; 6_000]).await.1.is_err());
        assert_eq!(fixture.budget.used(), 0);
    }
}
