//! Frames over a TCP or TLS connection, from the device's side.

use std::{io, time::Duration};

use bytes::{Buf, BytesMut};
use rustls::pki_types::ServerName;
use switchboard_protocol::frame::{self, Decoder, FrameError, Kind, SeqFormat, TaskId};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// Timeout for connecting, for the TLS handshake and for writes.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Frame limit before the server announces its own.
const INITIAL_FRAME_LIMIT_BYTES: usize = 4096;
/// Minimum size of a read.
const READ_BYTES: usize = 16 * 1024;

/// Address of a device port.
pub(crate) struct Address {
    /// `HOST:PORT`.
    pub(crate) host_and_port: String,
    /// TLS configuration, if the port uses TLS.
    pub(crate) tls: Option<TlsConnector>,
}

/// An I/O or protocol error.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// The server is unreachable.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// Address.
        address: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Broken(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server sent invalid data.
    #[error("the server sent an invalid frame: {0}")]
    Frame(#[from] FrameError),
    /// The server sent an error.
    #[error("the server ended the connection: {0}")]
    Refused(String),
    /// The server sent an unexpected message.
    #[error("the server sent an unexpected message: {0}")]
    Unexpected(String),
    /// A timeout expired.
    #[error("{0} timed out")]
    Late(&'static str),
}

/// A received frame.
#[derive(Debug)]
pub(super) struct ReceivedFrame {
    /// Type.
    pub(super) kind: Kind,
    /// Task id.
    pub(super) task: TaskId,
    /// Payload.
    pub(super) payload: Vec<u8>,
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection that sends and receives frames.
pub(super) struct Wire {
    socket: Box<dyn Socket>,
    decoder: Decoder,
    inbound: BytesMut,
    outbound: Vec<u8>,
}

impl Wire {
    /// Connects and performs the TLS handshake.
    ///
    /// # Errors
    /// When the server is unreachable, or its certificate is not trusted.
    pub(super) async fn dial(address: &Address) -> Result<Self, WireError> {
        let unreachable = |source| WireError::Unreachable {
            address: address.host_and_port.clone(),
            source,
        };
        let socket = timeout(IO_TIMEOUT, connect(address))
            .await
            .map_err(|_| WireError::Late("dialling"))?
            .map_err(unreachable)?;
        Ok(Self {
            socket,
            decoder: Decoder::new(INITIAL_FRAME_LIMIT_BYTES),
            inbound: BytesMut::new(),
            outbound: Vec::new(),
        })
    }

    /// Sets the maximum size of frames.
    pub(super) fn set_limit(&mut self, limit_bytes: usize) {
        self.decoder.set_limit(limit_bytes);
    }

    /// Receives the next frame. Cancel-safe.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) async fn receive(&mut self) -> Result<ReceivedFrame, WireError> {
        loop {
            if let Some((frame, consumed)) = self.decoder.decode(&self.inbound)? {
                let received = ReceivedFrame {
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

    /// Sends one frame. Except for texts, each message is a single frame with sequence number 0.
    ///
    /// # Errors
    /// When the write fails or times out.
    pub(super) async fn send(
        &mut self,
        kind: Kind,
        task: TaskId,
        payload: &[u8],
    ) -> Result<(), WireError> {
        self.outbound.clear();
        frame::encode(&mut self.outbound, kind, task, 0, SeqFormat::Plain, payload);
        self.flush().await
    }

    /// Sends a text, after its picture if there is one, as a sequence of frames, followed by END.
    ///
    /// # Errors
    /// When the picture or the text is too long, or the write fails or times out.
    pub(super) async fn send_text(
        &mut self,
        task: TaskId,
        text: &str,
        picture: &[u8],
        limit_bytes: usize,
    ) -> Result<(), WireError> {
        self.outbound.clear();
        let mut next = 0;
        for (kind, payload) in [(Kind::Picture, picture), (Kind::Text, text.as_bytes())] {
            let out = &mut self.outbound;
            let encoded = frame::encode_stream(out, kind, task, next, payload, limit_bytes);
            next = encoded.map_err(|error| WireError::Unexpected(error.to_string()))?;
        }
        frame::encode(
            &mut self.outbound,
            Kind::End,
            task,
            next,
            SeqFormat::Plain,
            &[],
        );
        self.flush().await
    }

    /// Sends audio of a task, beginning with this sequence number. Returns the one that follows.
    ///
    /// # Errors
    /// When the write fails or times out.
    pub(super) async fn send_audio(
        &mut self,
        task: TaskId,
        seq: u16,
        audio: &[u8],
        limit_bytes: usize,
    ) -> Result<u16, WireError> {
        self.outbound.clear();
        let out = &mut self.outbound;
        let next = frame::encode_stream(out, Kind::Audio, task, seq, audio, limit_bytes);
        self.flush().await?;
        next.map_err(|error| WireError::Unexpected(error.to_string()))
    }

    /// Ends the audio of a task.
    ///
    /// # Errors
    /// When the write fails or times out.
    pub(super) async fn end_audio(&mut self, task: TaskId, seq: u16) -> Result<(), WireError> {
        self.outbound.clear();
        let format = SeqFormat::Plain;
        frame::encode(&mut self.outbound, Kind::End, task, seq, format, &[]);
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), WireError> {
        let write = async {
            self.socket.write_all(&self.outbound).await?;
            self.socket.flush().await
        };
        timeout(IO_TIMEOUT, write)
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
