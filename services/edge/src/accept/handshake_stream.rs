//! The socket of a TLS session: bounds what a client may send before the handshake is complete.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Bytes of a client before its handshake is complete. The ClientHello of a device has about 300,
/// with post-quantum keys about 2,000. rustls reads 4 KiB at a time, so it buffers at most 16 KiB;
/// by itself it would buffer 64 KiB.
const MAX_HANDSHAKE_BYTES: u32 = 12 * 1024;

/// The value of `left` without a limit.
const UNLIMITED: u32 = u32::MAX;

/// A TCP stream that fails when the client sends too much within the handshake. It is checked for
/// all bytes, not for the ClientHello: rustls would buffer as much for a second ClientHello and for
/// a Finished message.
#[derive(Debug)]
pub(crate) struct HandshakeStream {
    stream: TcpStream,
    /// Bytes that may still be read.
    left: u32,
    /// A read was postponed because none are left.
    is_postponed: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the client sent more than {MAX_HANDSHAKE_BYTES} bytes before the handshake was complete")]
struct TooLong;

impl HandshakeStream {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            left: MAX_HANDSHAKE_BYTES,
            is_postponed: false,
        }
    }

    /// The handshake is complete: the client may send any number of bytes.
    pub(super) const fn lift_limit(&mut self) {
        self.left = UNLIMITED;
    }
}

impl AsyncRead for HandshakeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == UNLIMITED {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        if self.left == 0 {
            // The bytes may belong to the first message after the handshake, which the session
            // finds complete when the read is pending.
            if !std::mem::replace(&mut self.is_postponed, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, TooLong)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().len().saturating_sub(before);
        let read = u32::try_from(read).unwrap_or(UNLIMITED);
        self.left = self.left.saturating_sub(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HandshakeStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
