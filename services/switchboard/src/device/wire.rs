//! Frames over a socket, plain or TLS, as a device sees them.
//! Never: a frame beyond the limit, a wait without an end while the other side takes nothing.

use std::{io, time::Duration};

use bytes::{Buf, BytesMut};
use rustls::pki_types::ServerName;
use switchboard_protocol::frame::{self, Decoder, FrameError, Kind, Spelling, TaskId};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// How long dialling, a handshake or a write may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest frame taken from a server before it says what it sends.
const FIRST_LIMIT_BYTES: usize = 4096;
/// How much is read at a time at least.
const READ_BYTES: usize = 16 * 1024;

/// Where a device dials in.
pub(crate) struct Address {
    /// `HOST:PORT`.
    pub(crate) host_and_port: String,
    /// How TLS is spoken there, if it is.
    pub(crate) tls: Option<TlsConnector>,
}

/// Why the wire is of no more use.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// Nobody answers at the address.
    #[error("{address} cannot be reached: {source}")]
    Unreachable {
        /// Which address.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket failed.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The server hung up.
    #[error("the server closed the connection")]
    Closed,
    /// The server sent no frame.
    #[error("the server sent something that is no frame: {0}")]
    Frame(#[from] FrameError),
    /// The server's last word.
    #[error("the server ended the connection: {0}")]
    Refused(String),
    /// A frame that does not belong here.
    #[error("the server sent something unexpected: {0}")]
    Unexpected(String),
    /// Nothing happened in time.
    #[error("{0} took too long")]
    Late(&'static str),
}

/// A received frame, on its own.
#[derive(Debug)]
pub(super) struct Received {
    /// Its type.
    pub(super) kind: Kind,
    /// What it belongs to.
    pub(super) task: TaskId,
    /// Its payload.
    pub(super) payload: Vec<u8>,
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// One connection.
pub(super) struct Wire {
    socket: Box<dyn Socket>,
    decoder: Decoder,
    inbound: BytesMut,
    outbound: Vec<u8>,
}

impl Wire {
    /// Dials.
    ///
    /// # Errors
    /// When nobody answers there in time, or not with a certificate to be trusted.
    pub(super) async fn dial(address: &Address) -> Result<Self, WireError> {
        let unreachable = |source| WireError::Unreachable {
            address: address.host_and_port.clone(),
            source,
        };
        let socket = timeout(PATIENCE, connect(address))
            .await
            .map_err(|_| WireError::Late("dialling"))?
            .map_err(unreachable)?;
        Ok(Self {
            socket,
            decoder: Decoder::new(FIRST_LIMIT_BYTES),
            inbound: BytesMut::new(),
            outbound: Vec::new(),
        })
    }

    /// From now on frames may be this long.
    pub(super) fn set_limit(&mut self, limit_bytes: usize) {
        self.decoder.set_limit(limit_bytes);
    }

    /// The next frame. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// When there will be no more frames.
    pub(super) async fn receive(&mut self) -> Result<Received, WireError> {
        loop {
            if let Some((frame, consumed)) = self.decoder.decode(&self.inbound)? {
                let received = Received {
                    kind: frame.kind,
                    task: frame.task,
                    payload: frame.payload.to_vec(),
                };
                self.inbound.advance(consumed);
                return Ok(received);
            }
            self.inbound.advance(self.decoder.skippable());
            self.inbound.reserve(READ_BYTES);
            if self.socket.read_buf(&mut self.inbound).await? == 0 {
                return Err(WireError::Closed);
            }
        }
    }

    /// Sends one frame. Every message of a device but its words is one frame, so it is always the task's first.
    ///
    /// # Errors
    /// When the other side takes nothing.
    pub(super) async fn send(
        &mut self,
        kind: Kind,
        task: TaskId,
        payload: &[u8],
    ) -> Result<(), WireError> {
        self.outbound.clear();
        frame::encode(&mut self.outbound, kind, task, 0, Spelling::Plain, payload);
        self.flush().await
    }

    /// Sends words in as many frames as they need, and the frame that ends them.
    ///
    /// # Errors
    /// When there are too many of them, or the other side takes nothing.
    pub(super) async fn send_words(
        &mut self,
        task: TaskId,
        words: &str,
        limit_bytes: usize,
    ) -> Result<(), WireError> {
        self.outbound.clear();
        let next = frame::encode_stream(
            &mut self.outbound,
            Kind::Text,
            task,
            0,
            words.as_bytes(),
            limit_bytes,
        );
        let next = next.map_err(|error| WireError::Unexpected(error.to_string()))?;
        frame::encode(
            &mut self.outbound,
            Kind::End,
            task,
            next,
            Spelling::Plain,
            &[],
        );
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), WireError> {
        let write = async {
            self.socket.write_all(&self.outbound).await?;
            self.socket.flush().await
        };
        timeout(PATIENCE, write)
            .await
            .map_err(|_| WireError::Late("sending"))??;
        Ok(())
    }
}

async fn connect(address: &Address) -> io::Result<Box<dyn Socket>> {
    let tcp = TcpStream::connect(&address.host_and_port).await?;
    tcp.set_nodelay(true)?;
    let Some(tls) = &address.tls else {
        return Ok(Box::new(tcp));
    };
    let host = address
        .host_and_port
        .rsplit_once(':')
        .map_or("", |(host, _)| host);
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    Ok(Box::new(tls.connect(name, tcp).await?))
}
