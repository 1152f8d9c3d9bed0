//! The stream of a connection. A client that does not read its response is disconnected; its
//! unfinished heads are charged before they are read. Read timeouts are set by the HTTP layer.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

use super::client::{Client, FREE_HEAD_BYTES};

/// Fails a write after the client has read nothing for `write_timeout`, and a read of a head for
/// which there is no room.
pub(super) struct ClientStream {
    socket: TcpStream,
    client: Arc<Client>,
    write_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    /// Wraps the socket of `client`.
    pub(super) fn new(socket: TcpStream, client: Arc<Client>, write_timeout: Duration) -> Self {
        Self {
            socket,
            client,
            write_timeout,
            timer: None,
        }
    }

    fn poll_with_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.socket), cx) {
            self.timer = None;
            if written.is_ok() {
                self.client.note_written();
            }
            return Poll::Ready(written);
        }
        let write_timeout = self.write_timeout;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(write_timeout)));
        timer
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.client.is_reading_body() {
            return Pin::new(&mut self.socket).poll_read(cx, buffer);
        }
        self.client.charge_head().map_err(io::Error::other)?;
        // What follows a head in the same read is not charged, so it is little. A copy of the few
        // bytes that have arrived costs less than zeroing a part of `buffer`.
        let mut part = [const { MaybeUninit::uninit() }; FREE_HEAD_BYTES];
        let room = FREE_HEAD_BYTES.min(buffer.remaining());
        let mut part = ReadBuf::uninit(part.split_at_mut(room).0);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        buffer.put_slice(part.filled());
        self.client.count_head(part.filled().len());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_timeout(cx, |socket, cx| socket.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_timeout(cx, |socket, cx| socket.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
