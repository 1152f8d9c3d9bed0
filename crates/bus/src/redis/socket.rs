//! A non-blocking socket, with TLS or without, that the runtime does not watch.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use rustls::ClientConnection;
use tokio_util::either::Either;

use super::connector::Stream;

/// Reads and writes without waiting, as a non-blocking [`TcpStream`] does.
///
/// With TLS, a read decrypts what has arrived, and a write encrypts. A read returns fewer bytes
/// than requested only when no more have arrived. A write accepts bytes that may not have left
/// yet: [`flush`](Write::flush) sends them, and fails with `WouldBlock` while the socket takes no
/// more.
pub(super) struct Socket {
    tcp: TcpStream,
    session: Option<Box<ClientConnection>>,
}

impl TryFrom<Stream> for Socket {
    type Error = io::Error;

    /// Takes a stream from the runtime.
    fn try_from(stream: Stream) -> io::Result<Self> {
        let (tcp, session) = match stream {
            Either::Left(tcp) => (tcp, None),
            Either::Right(stream) => {
                let (tcp, session) = stream.into_inner();
                (tcp, Some(Box::new(session)))
            }
        };
        let tcp = tcp.into_std()?;
        Ok(Self { tcp, session })
    }
}

impl Socket {
    /// The same socket, for the runtime to watch.
    pub(super) fn try_clone(&self) -> io::Result<TcpStream> {
        self.tcp.try_clone()
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return self.tcp.read(buffer);
        };
        let mut filled = 0;
        while let Some(rest @ [_, ..]) = buffer.get_mut(filled..) {
            match session.reader().read(rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match session.read_tls(&mut self.tcp) {
                        // The reader reports the end of the stream.
                        Ok(_) => session.process_new_packets().map_err(io::Error::other)?,
                        Err(_) if filled > 0 => break,
                        Err(error) => return Err(error),
                    };
                }
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let Some(session) = &mut self.session else {
            return self.tcp.write(bytes);
        };
        let accepted = session.writer().write(bytes)?;
        // The bytes are accepted, and may have left in part: the next flush finds the error again.
        let _ = self.flush();
        Ok(accepted)
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.session {
            while session.wants_write() {
                session.write_tls(&mut self.tcp)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Socket {
    /// One end of a pair; the other end is closed.
    pub(super) fn closed() -> Self {
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        Self {
            tcp: std::os::fd::OwnedFd::from(one).into(),
            session: None,
        }
    }
}
