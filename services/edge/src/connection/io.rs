//! Frames over any stream: splits received bytes into frames and buffers frames to send.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use switchboard_protocol::frame::{self, Decoder, Frame, FrameError, Kind, SeqFormat, TaskId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::buffers::{self, ReadBuffer};

/// The edge's end of a device's stream. Owns memory only for an incomplete frame and for data that
/// the socket does not accept.
pub(super) struct FrameIo<S> {
    stream: S,
    decoder: Decoder,
    /// The incomplete frame at the end of the received bytes; empty most of the time.
    unread: Vec<u8>,
    /// `unread` may hold a complete frame, so it is handled before the socket is read.
    unread_first: bool,
    /// Frames for the device. Borrowed from the thread while the socket accepts data, then owned.
    unsent: Vec<u8>,
    unsent_is_borrowed: bool,
    /// How many bytes of `unsent` the socket has accepted.
    written: usize,
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
    Owned(Vec<u8>),
}

impl ChunkBytes {
    fn all(&self) -> &[u8] {
        match self {
            Self::Borrowed(buffer, length) => buffer.get(..*length).unwrap_or_default(),
            Self::Owned(bytes) => bytes,
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
            unread: Vec::new(),
            unread_first: false,
            unsent: Vec::new(),
            unsent_is_borrowed: false,
            written: 0,
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
        if std::mem::take(&mut self.unread_first) {
            let bytes = ChunkBytes::Owned(std::mem::take(&mut self.unread));
            return Poll::Ready(Ok(Some((ReadChunk { bytes, consumed: 0 }, 0))));
        }
        let mut read_buffer = ReadBuffer::borrow();
        let mut buffer = ReadBuf::new(&mut read_buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let length = buffer.filled().len();
        if length == 0 {
            return Poll::Ready(Ok(None));
        }
        let bytes = if self.unread.is_empty() {
            ChunkBytes::Borrowed(read_buffer, length)
        } else {
            let mut joined = std::mem::take(&mut self.unread);
            joined.extend_from_slice(read_buffer.get(..length).unwrap_or_default());
            ChunkBytes::Owned(joined)
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

    /// Keeps the bytes that were not consumed. With `may_have_frame` they are handled before the
    /// socket is read.
    pub(super) fn put_back(&mut self, chunk: ReadChunk, may_have_frame: bool) {
        let rest = chunk.rest().len();
        self.unread_first = may_have_frame && rest > 0;
        self.unread = match chunk {
            _ if rest == 0 => Vec::new(),
            ReadChunk {
                bytes: ChunkBytes::Owned(mut bytes),
                consumed,
            } => {
                bytes.drain(..consumed);
                bytes
            }
            borrowed => borrowed.rest().to_vec(),
        };
    }

    // Send.

    /// The buffer that frames are appended to. [`Self::poll_flush`] sends it.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        if self.unsent.capacity() == 0 {
            self.unsent = buffers::take_write();
            self.unsent_is_borrowed = true;
        }
        &mut self.unsent
    }

    /// Appends one frame.
    pub(super) fn put(&mut self, kind: Kind, task: TaskId, seq: u16, payload: &[u8]) {
        frame::encode(self.out(), kind, task, seq, SeqFormat::Plain, payload);
    }

    /// Bytes that wait for the socket.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len().saturating_sub(self.written)
    }

    /// Sends the buffered frames. Ready when all of them are sent.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .unsent
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    self.written += written;
                    self.needs_flush = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.own_unsent();
                    return Poll::Pending;
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
        poll_fn(|cx| self.poll_flush(cx)).await?;
        poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await?;
        self.unread = Vec::new();
        while poll_fn(|cx| self.poll_discard(cx)).await? > 0 {}
        Ok(())
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut read_buffer = ReadBuffer::borrow();
        let mut buffer = ReadBuf::new(&mut read_buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// The socket accepts no more: moves the rest out of the thread's buffer.
    fn own_unsent(&mut self) {
        if self.unsent_is_borrowed {
            let rest = self.unsent.get(self.written..).unwrap_or_default().to_vec();
            buffers::return_write(std::mem::replace(&mut self.unsent, rest));
            self.unsent_is_borrowed = false;
            self.written = 0;
        } else if self.written > self.unsent.len() / 2 {
            self.unsent.drain(..self.written);
            self.written = 0;
        }
    }

    fn free_unsent(&mut self) {
        let sent = std::mem::take(&mut self.unsent);
        if self.unsent_is_borrowed {
            buffers::return_write(sent);
        }
        self.unsent_is_borrowed = false;
        self.written = 0;
    }
}

impl<S> Drop for FrameIo<S> {
    fn drop(&mut self) {
        if self.unsent_is_borrowed {
            buffers::return_write(std::mem::take(&mut self.unsent));
        }
    }
}
