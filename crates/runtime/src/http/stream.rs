//! The stream of a connection. A client that does not read its response is disconnected; its
//! unfinished heads are charged before they are read. Timeouts of heads are set by the connection.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    time::Sleep,
};

use super::{
    client::{Client, FREE_HEAD_BYTES},
    http2::PREFACE,
};

/// Time in which a client can read the response to a request that it is still sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that it can still send in this time.
const MAX_LINGER_BYTES: usize = 64 * 1024 * 1024;

/// `None` while it does not run.
type Timer = Option<Pin<Box<Sleep>>>;

/// Fails a write after the client has read nothing for `write_timeout`, and a read of a head for
/// which there is no room.
///
/// It closes in two steps when the client has not sent everything: what it still sends is read and
/// dropped for a time. A socket that is closed with unread bytes is reset, and the client would lose the
/// response, such as a 413.
///
/// ```text
///   response written ──► end is sent ──► reads and drops ──► closed
///                                        until the client closes, 5 s, or 64 MiB; 0.5 s while the process
///                                        drains
/// ```
pub(super) struct ClientStream<S> {
    socket: S,
    client: Arc<Client>,
    write_timeout: Duration,
    /// Of a write that waits for the client.
    write_timer: Timer,
    /// Of the second step of closing.
    linger_timer: Timer,
    /// What was read to find out the version of HTTP, and how much of it was read again.
    first: [u8; PREFACE.len()],
    first_bytes: usize,
    first_read: usize,
    /// Bytes that were dropped while closing.
    lingered_bytes: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// Wraps the socket of `client`.
    pub(super) fn new(socket: S, client: Arc<Client>, write_timeout: Duration) -> Self {
        Self {
            socket,
            client,
            write_timeout,
            write_timer: None,
            linger_timer: None,
            first: [0; PREFACE.len()],
            first_bytes: 0,
            first_read: 0,
            lingered_bytes: 0,
        }
    }

    /// Reads until the preface of HTTP/2 is complete or impossible; returns whether it is complete.
    /// What was read is read again.
    pub(super) async fn has_preface(&mut self) -> io::Result<bool> {
        while self.first_bytes < PREFACE.len() {
            let read = self.socket.read(&mut self.first[self.first_bytes..]);
            let bytes = read.await?;
            self.first_bytes += bytes;
            if bytes == 0 || !PREFACE.starts_with(&self.first[..self.first_bytes]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether there was something to read again.
    fn read_again(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let left = &self.first[self.first_read..self.first_bytes];
        let bytes = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..bytes]);
        self.first_read += bytes;
        self.client.count_head(bytes);
        bytes > 0
    }

    fn poll_with_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.socket), cx) {
            if self.write_timer.take().is_some() {
                self.client.set_write_blocked(false);
            }
            return Poll::Ready(written);
        }
        if self.write_timer.is_none() {
            self.client.set_write_blocked(true);
        }
        poll_timer(&mut self.write_timer, cx, self.write_timeout)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_write_noted(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.poll_with_timeout(cx, write))?;
        self.client.note_written();
        Poll::Ready(Ok(written))
    }

    /// Reads and drops what the client still sends, for this time at most.
    fn poll_linger(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        let mut dropped = [const { MaybeUninit::uninit() }; FREE_HEAD_BYTES];
        while self.lingered_bytes < MAX_LINGER_BYTES {
            let mut dropped = ReadBuf::uninit(&mut dropped);
            match Pin::new(&mut self.socket).poll_read(cx, &mut dropped) {
                Poll::Ready(Ok(())) if !dropped.filled().is_empty() => {
                    self.lingered_bytes += dropped.filled().len();
                }
                Poll::Ready(_) => break,
                Poll::Pending => return poll_timer(&mut self.linger_timer, cx, timeout),
            }
        }
        Poll::Ready(())
    }
}

/// Starts a timer with `timeout`, unless it runs already.
fn poll_timer(timer: &mut Timer, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
    timer.as_mut().poll(cx)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_again(buffer) {
            return Poll::Ready(Ok(()));
        }
        // HTTP/2 has slots for its heads.
        if self.client.is_reading_body() || self.client.is_http2() {
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_noted(cx, |socket, cx| socket.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_noted(cx, |socket, cx| socket.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS has accepted bytes that the socket has not.
        self.poll_with_timeout(cx, |socket, cx| socket.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
        if let Some(timeout) = self.client.linger(LINGER_TIMEOUT) {
            ready!(self.poll_linger(cx, timeout));
        }
        Poll::Ready(Ok(()))
    }
}
