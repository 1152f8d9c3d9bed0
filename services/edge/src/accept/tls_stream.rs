//! A TLS session that holds no buffer while its connection is idle.

mod records;

use std::{
    future::poll_fn,
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustls::{
    ServerConfig,
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{ConnectionState, EncryptError, WriteTraffic},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use self::records::{
    MAX_RECORD_BYTES, append, begins_with_record, discard, encode, invalid_data, put,
};
use crate::connection::buffers::{self, ReadBuffer};

/// Bytes of a client before its handshake is complete. The ClientHello of a device has about 300,
/// with post-quantum keys about 2,000.
const MAX_HANDSHAKE_BYTES: usize = 12 * 1024;
/// The plaintext of one record that is sent.
const MAX_SENT_BYTES: usize = 16 * 1024;
/// What a record adds to its plaintext, and a change of keys before it.
const MAX_OVERHEAD_BYTES: usize = 128;

/// The edge's end of a TLS connection.
///
/// Received bytes are decrypted in the buffer of the thread, and what is sent is encrypted in another:
/// the connection owns only the beginning of a record and what the socket does not accept.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    /// Boxed: the task of a connection has nearly the same size with and without TLS.
    session: Box<Session>,
}

/// The session, and bytes that wait.
struct Session {
    tls: UnbufferedServerConnection,
    /// The beginning of a record.
    received: Vec<u8>,
    /// Decrypted bytes that the reader had no room for.
    plaintext: Vec<u8>,
    /// Records that the socket does not accept yet.
    unsent: Vec<u8>,
    /// The client has ended its side.
    has_ended: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the client sent more than {MAX_HANDSHAKE_BYTES} bytes before the handshake was complete")]
struct TooLong;

/// After the handshake a client has no reason to send a message that is longer than a record.
#[derive(Debug, thiserror::Error)]
#[error("a handshake message of the client is longer than a record")]
struct TooManyFragments;

impl TlsStream {
    /// Completes the handshake on an accepted socket.
    ///
    /// # Errors
    /// When the client breaks the protocol, sends too much, or closes the connection.
    pub(super) async fn accept(config: Arc<ServerConfig>, tcp: TcpStream) -> io::Result<Self> {
        let tls = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        let session = Box::new(Session {
            tls,
            received: Vec::new(),
            plaintext: Vec::new(),
            unsent: Vec::new(),
            has_ended: false,
        });
        let mut stream = Self { tcp, session };
        let mut left = MAX_HANDSHAKE_BYTES;
        poll_fn(|cx| stream.poll_handshake(cx, &mut left)).await?;
        Ok(stream)
    }

    /// `left` bytes may still be read. All of them count, not only those of the ClientHello: a second
    /// ClientHello and a Finished message could be as long.
    fn poll_handshake(&mut self, cx: &mut Context<'_>, left: &mut usize) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.session.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if *left == 0 {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, TooLong)));
            }
            let mut no_reader = ReadBuf::new(&mut []);
            *left -= ready!(self.poll_receive(cx, *left, &mut no_reader))?;
        }
    }

    /// Reads up to `max` bytes from the socket, and decrypts what they complete. Returns their number.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        reader: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuffer::borrow();
        let max = max.min(buffer.len());
        let mut buffer = ReadBuf::new(buffer.get_mut(..max).unwrap_or_default());
        ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut buffer))?;
        let bytes = buffer.filled_mut();
        if bytes.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let received = self.session.receive(bytes, reader);
        // An answer of the session, or an alert. An error shows again at the next write.
        let _ = self.poll_send(cx);
        let length = bytes.len();
        Poll::Ready(received.map(|()| length))
    }

    /// Sends the records that wait.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let unsent = &mut self.session.unsent;
        while !unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.tcp).poll_write(cx, unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            discard(unsent, sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends records, and keeps what the socket does not accept.
    fn send(&mut self, cx: &mut Context<'_>, records: &[u8]) -> io::Result<()> {
        let sent = if self.session.unsent.is_empty() {
            match Pin::new(&mut self.tcp).poll_write(cx, records) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => 0,
            }
        } else {
            0
        };
        let rest = records.get(sent..).unwrap_or_default();
        self.session.unsent.extend_from_slice(rest);
        Ok(())
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        reader: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = reader.filled().len();
        let plaintext = &mut self.session.plaintext;
        if !plaintext.is_empty() {
            let read = put(reader, plaintext);
            discard(plaintext, read);
            return Poll::Ready(Ok(()));
        }
        while reader.filled().len() == before && !self.session.has_ended {
            ready!(self.poll_receive(cx, usize::MAX, reader))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let bytes = bytes.get(..MAX_SENT_BYTES).unwrap_or(bytes);
        let mut records = buffers::take_write();
        let encrypted = self
            .session
            .encrypt(&mut records, bytes.len(), |traffic, out| {
                traffic.encrypt(bytes, out)
            });
        let sent = encrypted.and_then(|()| self.send(cx, &records));
        buffers::return_write(records);
        Poll::Ready(sent.map(|()| bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is written twice: the session ignores a second request.
        let mut records = Vec::new();
        let close =
            |traffic: &mut WriteTraffic<'_, _>, out: &mut [u8]| traffic.queue_close_notify(out);
        self.session.encrypt(&mut records, 0, close)?;
        self.session.unsent.append(&mut records);
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl Session {
    /// Decrypts received bytes into the reader.
    fn receive(&mut self, bytes: &mut [u8], reader: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.received.is_empty() {
            let consumed = self.process(bytes, reader, |_| Ok(()))?;
            let rest = bytes.get(consumed..).unwrap_or_default();
            self.received = rest.to_vec();
            return self.check_received();
        }
        append(&mut self.received, bytes);
        if !begins_with_record(&self.received) {
            return Ok(());
        }
        let mut received = mem::take(&mut self.received);
        let consumed = self.process(&mut received, reader, |_| Ok(()))?;
        discard(&mut received, consumed);
        self.received = received;
        self.check_received()
    }

    /// Refuses a client whose records are complete but are kept: rustls waits for the rest of a
    /// handshake message, and sets no limit to the records that carry its fragments.
    fn check_received(&self) -> io::Result<()> {
        if self.received.len() > MAX_RECORD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, TooManyFragments));
        }
        Ok(())
    }

    /// Appends what `write` encrypts to `records`: of this many bytes.
    fn encrypt(
        &mut self,
        records: &mut Vec<u8>,
        length: usize,
        mut write: impl FnMut(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> io::Result<()> {
        let mut received = mem::take(&mut self.received);
        let begin = records.len();
        records.resize(begin + length + MAX_OVERHEAD_BYTES, 0);
        let mut written = 0;
        let processed = self.process(&mut received, &mut ReadBuf::new(&mut []), |traffic| {
            written = write(traffic, records.get_mut(begin..).unwrap_or_default())?;
            Ok(())
        });
        records.truncate(begin + written);
        discard(&mut received, processed?);
        self.received = received;
        if length > 0 && written == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    /// Processes records until more are needed, then has `write` add its own. Returns how many bytes at
    /// the front are done with.
    fn process(
        &mut self,
        records: &mut [u8],
        reader: &mut ReadBuf<'_>,
        write: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>) -> Result<(), EncryptError>,
    ) -> io::Result<usize> {
        let mut consumed = 0;
        loop {
            let rest = records.get_mut(consumed..).unwrap_or_default();
            let status = self.tls.process_tls_records(rest);
            let mut discarded = status.discard;
            match status.state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(invalid_data)?;
                        discarded += record.discard;
                        let read = put(reader, record.payload);
                        let left = record.payload.get(read..).unwrap_or_default();
                        self.plaintext.extend_from_slice(left);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(&mut self.unsent, data)?,
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed) => self.has_ended = true,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    write(&mut traffic).map_err(io::Error::other)?;
                    return Ok(consumed + discarded);
                }
                Ok(_) => return Ok(consumed + discarded),
                Err(error) => {
                    self.encode_alert(records.get_mut(consumed..).unwrap_or_default());
                    return Err(invalid_data(error));
                }
            }
            consumed += discarded;
        }
    }

    /// Takes the alert that reports an error to the client.
    fn encode_alert(&mut self, records: &mut [u8]) {
        if let Ok(ConnectionState::EncodeTlsData(alert)) =
            self.tls.process_tls_records(records).state
        {
            // The connection closes in any case.
            let _ = encode(&mut self.unsent, alert);
        }
    }
}

#[cfg(test)]
mod tests;
