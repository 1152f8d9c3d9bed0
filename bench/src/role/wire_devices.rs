//! Devices that use the Switchboard wire protocol. Each authenticates, registers one service with a
//! schema and responds to calls. Frames from the edge are not validated beyond decoding.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use nix::sys::socket::{setsockopt, sockopt};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use switchboard_protocol::{
    frame::{Decoder, Kind, SeqFormat, TaskId, encode},
    id::{OrgId, TokenId},
    message::{AuthAccepted, Goaway, ResumeTicket, ServerMessage, parse_auth_answer},
    token::{Claims, Scope, SigningKey, Subject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Interval, MissedTickBehavior, interval_at},
};
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use super::{PAYLOAD_BYTES, device_name, fleet::Fleet, organisation};
use crate::certificate::HOST;

const MAX_FRAME_BYTES: usize = 1 << 20;
const TOKEN_TTL_S: u64 = 3600;
/// Shorter than the 9 s after which the control plane closes a connection without a request, which may
/// be the moment of the next one.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Task id of every turn that a device starts.
const TURN_TASK: TaskId = TaskId(*b"task0001");

/// Address of the edge and the source of the device tokens.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// `HOST:PORT` of the edge
    #[arg(long)]
    pub(super) address: SocketAddr,
    /// Organisation of the devices, for locally signed tokens
    #[arg(long, requires = "seed", conflicts_with = "api_key")]
    org: Option<OrgId>,
    /// Private key that signs the tokens, as 64 hexadecimal digits
    #[arg(long)]
    seed: Option<String>,
    /// URL of the token endpoint: `http://…/v1/tokens`
    #[arg(long, requires = "api_key")]
    token_url: Option<String>,
    /// API key for the token endpoint
    #[arg(long)]
    api_key: Option<String>,
    /// Certificate of the edge; if given, devices connect over TLS
    #[arg(long)]
    certificate: Option<PathBuf>,
    /// A device that connects again shows its former token and the resume ticket
    #[arg(long)]
    resume: bool,
    /// Number of organisations that the devices belong to in turn, for locally signed tokens
    #[arg(long, default_value_t = 1)]
    organisations: u32,
}

/// Source of the device tokens.
enum TokenSource {
    Signed {
        key: Box<SigningKey>,
        org: OrgId,
        organisations: u32,
    },
    Issued {
        client: reqwest::Client,
        url: String,
        api_key: String,
        /// The token of each device. One that comes back uses it again.
        issued: Mutex<HashMap<String, String>>,
    },
}

/// Devices that connect to one edge.
pub(super) struct WireFleet {
    address: SocketAddr,
    tokens: TokenSource,
    tls: Option<TlsConnector>,
    /// By device number, if devices resume.
    resumptions: Option<Mutex<HashMap<u32, Resumption>>>,
}

/// What a device shows when it connects again.
struct Resumption {
    token: String,
    ticket: ResumeTicket,
}

/// A connection over TCP or TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A registered connection.
pub(super) struct WireDevice {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    decoder: Decoder,
    heartbeat: Interval,
}

/// Parses a private key from 64 hexadecimal digits.
pub(super) fn signing_key(seed: &str) -> anyhow::Result<SigningKey> {
    let number =
        |digits: &str| u128::from_str_radix(digits, 16).context("the seed is not hexadecimal");
    let (high, low) = seed
        .split_at_checked(32)
        .context("the seed has fewer than 32 digits")?;
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&number(high)?.to_be_bytes());
    bytes[16..].copy_from_slice(&number(low)?.to_be_bytes());
    Ok(SigningKey::from_seed(&bytes))
}

impl WireFleet {
    pub(super) fn new(options: Options) -> anyhow::Result<Self> {
        let tokens = match (
            options.org,
            options.seed,
            options.token_url,
            options.api_key,
        ) {
            (Some(org), Some(seed), None, None) => TokenSource::Signed {
                key: Box::new(signing_key(&seed)?),
                org,
                organisations: options.organisations,
            },
            (None, None, Some(url), Some(api_key)) => TokenSource::Issued {
                client: reqwest::Client::builder()
                    .pool_idle_timeout(POOL_IDLE_TIMEOUT)
                    .build()?,
                url,
                api_key,
                issued: Mutex::default(),
            },
            _ => bail!("either --org and --seed, or --token-url and --api-key"),
        };
        Ok(Self {
            address: options.address,
            tokens,
            tls: options
                .certificate
                .as_deref()
                .map(tls_connector)
                .transpose()?,
            resumptions: options.resume.then(Mutex::default),
        })
    }

    /// Connects a device that has no services, and audio in these formats.
    pub(super) async fn dial_toy(&self, index: u32, audio: &Value) -> anyhow::Result<WireDevice> {
        let (mut device, token) = self.connect_device(index).await?;
        let client = json!({ "name": "toy", "version": "1", "audio": audio });
        let auth = json!({ "token": token, "client": client });
        device.authenticate(&auth).await?;
        Ok(device)
    }

    /// Returns a connection and the token with which it authenticates.
    async fn connect_device(&self, index: u32) -> anyhow::Result<(WireDevice, String)> {
        let token = self.tokens.token(index).await?;
        Ok((WireDevice::new(self.connect(index).await?), token))
    }

    async fn connect(&self, index: u32) -> anyhow::Result<Box<dyn Stream>> {
        let stream = self.dial_tcp(index).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let stream = tls.connect(HOST.try_into()?, stream).await?;
        Ok(Box::new(stream))
    }

    /// Connects from 127.0.0.1, 127.0.0.2 and so on to a loopback address.
    async fn dial_tcp(&self, index: u32) -> anyhow::Result<TcpStream> {
        let source = index / DEVICES_PER_ADDRESS;
        if source == 0 || !self.address.ip().is_loopback() || !self.address.is_ipv4() {
            return Ok(TcpStream::connect(self.address).await?);
        }
        let source = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + source);
        let socket = TcpSocket::new_v4()?;
        // The port is chosen by `connect`: it is free unless it is connected to the same server.
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
        socket.bind((source, 0).into())?;
        Ok(socket.connect(self.address).await?)
    }
}

/// Devices that share one source address: fewer than it has ports.
const DEVICES_PER_ADDRESS: u32 = 20_000;

/// A TLS connector that trusts only this certificate.
fn tls_connector(certificate: &Path) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

impl TokenSource {
    async fn token(&self, index: u32) -> anyhow::Result<String> {
        let device = device_name(index);
        match self {
            Self::Signed {
                key,
                org,
                organisations,
            } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
                Ok(key.sign(&Claims {
                    id: TokenId::from_uuid(Uuid::now_v7()),
                    org: organisation(*org, index, *organisations),
                    subject: Subject::Device(device.parse()?),
                    scopes: [Scope::Device].into_iter().collect(),
                    restrictions: None,
                    issued_at: now,
                    expires_at: now + TOKEN_TTL_S,
                })?)
            }
            Self::Issued {
                client,
                url,
                api_key,
                issued,
            } => {
                let known = issued.lock().get(&device).cloned();
                if let Some(token) = known {
                    return Ok(token);
                }
                let body = json!({
                    "subject": format!("device:{device}"),
                    "scopes": ["device"],
                    "ttl_s": TOKEN_TTL_S,
                });
                let request = client.post(url).bearer_auth(api_key).json(&body);
                let response = request.send().await?.error_for_status()?;
                let token: serde_json::Value = response.json().await?;
                let token = token["access_token"]
                    .as_str()
                    .context("the response has no access_token")?;
                let token = token.to_owned();
                issued.lock().insert(device, token.clone());
                Ok(token)
            }
        }
    }
}

impl Fleet for WireFleet {
    type Device = WireDevice;

    async fn dial(&self, index: u32) -> anyhow::Result<WireDevice> {
        let known = self.resumptions.as_ref();
        let former = known.and_then(|known| known.lock().remove(&index));
        let (auth, token) = match former {
            None => {
                let token = self.tokens.token(index).await?;
                (json!({ "token": token }), token)
            }
            Some(Resumption { token, ticket }) => {
                (json!({ "token": token, "ticket": ticket }), token)
            }
        };
        let mut device = WireDevice::new(self.connect(index).await?);
        let accepted = device.authenticate(&auth).await?;
        if let Some(known) = known {
            let ticket = accepted.ticket.context("the edge issued no ticket")?;
            known.lock().insert(index, Resumption { token, ticket });
        }
        device.register().await?;
        Ok(device)
    }

    async fn serve(mut device: WireDevice) -> anyhow::Result<()> {
        let goaway = device.answer_until_goaway().await?;
        bail!("disconnected by the edge: {goaway:?}")
    }
}

impl WireDevice {
    fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            received: Vec::new(),
            decoder: Decoder::new(MAX_FRAME_BYTES),
            heartbeat: heartbeat_interval(Duration::from_secs(3600)),
        }
    }

    /// Responds to requests until the edge sends GOAWAY, or fails when the connection ends.
    pub(super) async fn answer_until_goaway(&mut self) -> anyhow::Result<Goaway> {
        let data = "x".repeat(PAYLOAD_BYTES);
        let mut responses = Vec::new();
        loop {
            // A call may have arrived together with the answer to the registration.
            let goaway = self.respond(&data, &mut responses)?;
            send(&mut self.stream, &responses).await?;
            responses.clear();
            if let Some(goaway) = goaway {
                return Ok(goaway);
            }
            tokio::select! {
                read = self.stream.read_buf(&mut self.received) => {
                    ensure!(read? > 0, "the edge closed the connection");
                }
                _ = self.heartbeat.tick() => push_frame(&mut responses, Kind::Ping, b""),
            }
        }
    }

    async fn authenticate(&mut self, auth: &Value) -> anyhow::Result<AuthAccepted> {
        self.send(Kind::Auth, auth.to_string().as_bytes()).await?;
        let response = self.receive(Kind::Auth).await?;
        let accepted = parse_auth_answer(&response)?
            .map_err(|error| anyhow!("authentication failed: {error}"))?;
        self.heartbeat = heartbeat_interval(Duration::from_secs(accepted.heartbeat_s.into()));
        Ok(accepted)
    }

    async fn register(&mut self) -> anyhow::Result<()> {
        let services = json!({ "type": "register", "data": { "services": services() } });
        self.send(Kind::Control, services.to_string().as_bytes())
            .await?;
        let response = self.receive(Kind::Control).await?;
        match ServerMessage::parse(&response)? {
            ServerMessage::Result { success: true, .. } => Ok(()),
            other => bail!("the registration failed: {other:?}"),
        }
    }

    /// Runs one text turn. Returns the time of the first text frame and the complete reply.
    pub(super) async fn run_turn(&mut self, text: &str) -> anyhow::Result<(Instant, String)> {
        let mut request = Vec::new();
        encode(
            &mut request,
            Kind::Text,
            TURN_TASK,
            0,
            SeqFormat::Plain,
            text.as_bytes(),
        );
        encode(&mut request, Kind::End, TURN_TASK, 1, SeqFormat::Plain, b"");
        send(&mut self.stream, &request).await?;
        let (mut first, mut reply) = (None, Vec::new());
        loop {
            while let Some((frame, consumed)) = self.decoder.decode(&self.received)? {
                let is_end = frame.kind == Kind::End;
                if frame.kind == Kind::Text {
                    first.get_or_insert_with(Instant::now);
                    reply.extend_from_slice(frame.payload);
                }
                self.received.drain(..consumed);
                if is_end {
                    let first = first.context("the reply has no text frame")?;
                    return Ok((first, String::from_utf8(reply)?));
                }
            }
            let read = self.stream.read_buf(&mut self.received).await?;
            ensure!(read > 0, "the edge closed the connection");
        }
    }

    /// Sends a frame of a task.
    pub(super) async fn send_to(
        &mut self,
        kind: Kind,
        task: TaskId,
        seq: u16,
        payload: &[u8],
    ) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        encode(&mut bytes, kind, task, seq, SeqFormat::Plain, payload);
        send(&mut self.stream, &bytes).await
    }

    /// Receives a frame of any kind; can be dropped and called again.
    pub(super) async fn next_frame(&mut self) -> anyhow::Result<Kind> {
        loop {
            if let Some((frame, consumed)) = self.decoder.decode(&self.received)? {
                let kind = frame.kind;
                self.received.drain(..consumed);
                return Ok(kind);
            }
            let read = self.stream.read_buf(&mut self.received).await?;
            ensure!(read > 0, "the edge closed the connection");
        }
    }

    async fn send(&mut self, kind: Kind, payload: &[u8]) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, kind, payload);
        send(&mut self.stream, &bytes).await
    }

    /// Receives the next frame and returns its payload.
    ///
    /// # Errors
    /// If the frame is of another kind.
    async fn receive(&mut self, kind: Kind) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some((frame, consumed)) = self.decoder.decode(&self.received)? {
                let payload = frame.payload.to_vec();
                let text = String::from_utf8_lossy(&payload);
                ensure!(
                    frame.kind == kind,
                    "a {:?} frame instead: {text}",
                    frame.kind
                );
                self.received.drain(..consumed);
                return Ok(payload);
            }
            let read = self.stream.read_buf(&mut self.received).await?;
            ensure!(read > 0, "the edge closed the connection");
        }
    }

    /// Handles all complete frames and appends the responses to them. Returns the GOAWAY among them.
    fn respond(&mut self, data: &str, responses: &mut Vec<u8>) -> anyhow::Result<Option<Goaway>> {
        let (mut consumed, mut goaway) = (0, None);
        while let Some((received, length)) = self.decoder.decode(&self.received[consumed..])? {
            match received.kind {
                Kind::Control => {
                    if let ServerMessage::Call { call_id, .. } =
                        ServerMessage::parse(received.payload)?
                    {
                        push_frame(responses, Kind::Control, result(&call_id, data).as_bytes());
                    }
                }
                Kind::Ping => push_frame(responses, Kind::Pong, received.payload),
                Kind::Goaway => goaway = Some(serde_json::from_slice(received.payload)?),
                Kind::Error => {
                    bail!(
                        "disconnected by the edge: {}",
                        String::from_utf8_lossy(received.payload)
                    );
                }
                _ => {}
            }
            consumed += length;
        }
        self.received.drain(..consumed);
        Ok(goaway)
    }
}

/// The services of every device.
pub(super) fn services() -> Value {
    json!({ "echo": {
        "description": "Returns a text.",
        "parameters": {
            "type": "object",
            "properties": { "text": { "type": "string", "maxLength": 256 } },
            "required": ["text"],
        },
    } })
}

/// Writes and flushes. Without the flush, a TLS session may keep written bytes in its buffer.
async fn send(stream: &mut Box<dyn Stream>, bytes: &[u8]) -> anyhow::Result<()> {
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// The result message of a call. The call id is created by the edge and needs no escaping.
fn result(call_id: &str, data: &str) -> String {
    format!(
        r#"{{"type":"result","data":{{"call_id":"{call_id}","result":{{"success":true,"data":"{data}"}}}}}}"#
    )
}

fn push_frame(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    encode(out, kind, TaskId::MCP, 0, SeqFormat::Plain, payload);
}

fn heartbeat_interval(period: Duration) -> Interval {
    let mut interval = interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn call_that_arrives_with_the_answer_to_the_registration_is_answered() {
        let (near, far) = tokio::io::duplex(4096);
        let [mut device, mut edge] = [near, far].map(|end| WireDevice::new(Box::new(end)));
        let mut bytes = Vec::new();
        for message in [
            r#"{"type":"result","data":{"call_id":"register","result":{"success":true}}}"#,
            r#"{"type":"call","data":{"call_id":"c1","method":"echo","params":{}}}"#,
        ] {
            push_frame(&mut bytes, Kind::Control, message.as_bytes());
        }
        send(&mut edge.stream, &bytes).await.unwrap();
        // As after the answer to AUTH: one read returns both.
        device.received.reserve(bytes.len());
        device.register().await.unwrap();
        edge.receive(Kind::Control).await.unwrap();
        let answered = async {
            tokio::select! {
                _ = device.answer_until_goaway() => panic!("the edge sent no GOAWAY"),
                answer = edge.receive(Kind::Control) => answer.unwrap(),
            }
        };
        let deadline = Duration::from_secs(5);
        let answer = tokio::time::timeout(deadline, answered).await.unwrap();
        assert_eq!(answer, result("c1", &"x".repeat(PAYLOAD_BYTES)).as_bytes());
    }
}
