//! Bytes in, frames out of them; frames in, bytes out: over any stream, with no buffer held while
//! nothing is in it.
//! Never: what a frame means.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use switchboard_protocol::frame::{self, Decoder, Frame, FrameError, Kind, Spelling, TaskId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::scratch::{self, ReadScratch};

/// One side of a frame conversation.
pub(super) struct Wire<S> {
    stream: S,
    decoder: Decoder,
    /// The unfinished frame at the end of what was read; empty most of the time.
    unread: Vec<u8>,
    /// `unread` may hold a whole frame, so it comes before the socket.
    unread_first: bool,
    /// Frames for the device. Lent by the thread until the socket takes no more, then our own.
    unsent: Vec<u8>,
    unsent_is_lent: bool,
    /// How much of `unsent` the socket has taken.
    taken: usize,
    /// The stream may still hold bytes of ours (TLS records).
    unflushed: bool,
}

/// Bytes from the device, to be walked through with [`Wire::next_frame`].
pub(super) struct Received {
    bytes: Source,
    walked: usize,
}

enum Source {
    Fresh(ReadScratch, usize),
    Joined(Vec<u8>),
}

impl Source {
    fn all(&self) -> &[u8] {
        match self {
            Self::Fresh(scratch, length) => scratch.get(..*length).unwrap_or_default(),
            Self::Joined(bytes) => bytes,
        }
    }
}

impl Received {
    fn rest(&self) -> &[u8] {
        self.bytes.all().get(self.walked..).unwrap_or_default()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S, max_frame_bytes: u32) -> Self {
        Self {
            stream,
            decoder: Decoder::new(max_frame_bytes as usize),
            unread: Vec::new(),
            unread_first: false,
            unsent: Vec::new(),
            unsent_is_lent: false,
            taken: 0,
            unflushed: false,
        }
    }

    pub(super) fn set_max_frame_bytes(&mut self, limit: u32) {
        self.decoder.set_limit(limit as usize);
    }

    // In.

    /// Waits for bytes; none means that the device has closed its side.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<(Received, usize)>>> {
        if std::mem::take(&mut self.unread_first) {
            let bytes = Source::Joined(std::mem::take(&mut self.unread));
            return Poll::Ready(Ok(Some((Received { bytes, walked: 0 }, 0))));
        }
        let mut scratch = ReadScratch::lend();
        let mut buffer = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let length = buffer.filled().len();
        if length == 0 {
            return Poll::Ready(Ok(None));
        }
        let bytes = if self.unread.is_empty() {
            Source::Fresh(scratch, length)
        } else {
            let mut joined = std::mem::take(&mut self.unread);
            joined.extend_from_slice(scratch.get(..length).unwrap_or_default());
            Source::Joined(joined)
        };
        Poll::Ready(Ok(Some((Received { bytes, walked: 0 }, length))))
    }

    /// The next whole frame in what was received.
    pub(super) fn next_frame<'a>(
        &mut self,
        received: &'a mut Received,
    ) -> Result<Option<Frame<'a>>, FrameError> {
        let Received { bytes, walked } = received;
        let rest = bytes.all().get(*walked..).unwrap_or_default();
        let Some((frame, length)) = self.decoder.decode(rest)? else {
            *walked += self.decoder.skippable();
            return Ok(None);
        };
        *walked += length;
        Ok(Some(frame))
    }

    /// Keeps what was not walked through. `again`: it may hold whole frames, to be looked at
    /// before the socket is read.
    pub(super) fn keep(&mut self, received: Received, again: bool) {
        let rest = received.rest().len();
        self.unread_first = again && rest > 0;
        self.unread = match received {
            _ if rest == 0 => Vec::new(),
            Received {
                bytes: Source::Joined(mut bytes),
                walked,
            } => {
                bytes.drain(..walked);
                bytes
            }
            fresh => fresh.rest().to_vec(),
        };
    }

    // Out.

    /// Where frames for the device are appended; sent at the next [`Self::poll_send`].
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        if self.unsent.capacity() == 0 {
            self.unsent = scratch::lend_write();
            self.unsent_is_lent = true;
        }
        &mut self.unsent
    }

    /// Appends one frame.
    pub(super) fn put(&mut self, kind: Kind, task: TaskId, seq: u16, payload: &[u8]) {
        frame::encode(self.out(), kind, task, seq, Spelling::Plain, payload);
    }

    /// Bytes that wait for the socket.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len().saturating_sub(self.taken)
    }

    /// Sends what waits; ready when nothing does.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .unsent
            .get(self.taken..)
            .filter(|rest| !rest.is_empty())
        {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(taken)) => {
                    self.taken += taken;
                    self.unflushed = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.keep_unsent();
                    return Poll::Pending;
                }
            }
        }
        self.free_unsent();
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what waits, closes our side, and reads on until the device closes its own: a socket
    /// closed with unread bytes would be reset, and the last frame lost with it.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx)).await?;
        poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await?;
        self.unread = Vec::new();
        while poll_fn(|cx| self.poll_discard(cx)).await? > 0 {}
        Ok(())
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = ReadScratch::lend();
        let mut buffer = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// The socket takes no more: the rest moves into memory of our own.
    fn keep_unsent(&mut self) {
        if self.unsent_is_lent {
            let rest = self.unsent.get(self.taken..).unwrap_or_default().to_vec();
            scratch::give_back_write(std::mem::replace(&mut self.unsent, rest));
            self.unsent_is_lent = false;
            self.taken = 0;
        } else if self.taken > self.unsent.len() / 2 {
            self.unsent.drain(..self.taken);
            self.taken = 0;
        }
    }

    fn free_unsent(&mut self) {
        let sent = std::mem::take(&mut self.unsent);
        if self.unsent_is_lent {
            scratch::give_back_write(sent);
        }
        self.unsent_is_lent = false;
        self.taken = 0;
    }
}

impl<S> Drop for Wire<S> {
    fn drop(&mut self) {
        if self.unsent_is_lent {
            scratch::give_back_write(std::mem::take(&mut self.unsent));
        }
    }
}
