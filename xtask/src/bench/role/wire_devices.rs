//! Devices on our wire protocol: each authenticates, registers one service with a schema, and
//! answers calls; as lean as the devices of the other systems.
//! Never: an acceptance test; the devices trust what the edge sends.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::json;
use switchboard_protocol::{
    access::{Claims, Scope, SigningKey, Subject},
    frame::{Decoder, Kind, Spelling, TaskId, encode},
    id::{OrgId, TokenId},
    message::{ServerMessage, parse_auth_answer},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{Interval, MissedTickBehavior, interval_at},
};
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use super::{PAYLOAD_BYTES, device_name, fleet::Fleet};
use crate::bench::certificate::HOST;

const FRAME_LIMIT_BYTES: usize = 1 << 20;
const TOKEN_LIFE_S: u64 = 3600;
/// The task of whatever a device says.
const TASK: TaskId = TaskId(*b"task0001");

/// Where the edge is, and where the devices get their tokens.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `HOST:PORT` of the edge
    #[arg(long)]
    address: SocketAddr,
    /// The organisation that minted tokens are for
    #[arg(long, requires = "seed", conflicts_with = "api_key")]
    org: Option<OrgId>,
    /// 64 hexadecimal digits: the private key that tokens are minted with
    #[arg(long)]
    seed: Option<String>,
    /// `http://…/v1/tokens`
    #[arg(long, requires = "api_key")]
    token_url: Option<String>,
    /// What tokens are exchanged for
    #[arg(long)]
    api_key: Option<String>,
    /// The edge's certificate: devices dial over TLS then
    #[arg(long)]
    certificate: Option<PathBuf>,
}

/// Where tokens come from.
enum Tokens {
    Minted {
        key: Box<SigningKey>,
        org: OrgId,
    },
    Issued {
        client: reqwest::Client,
        url: String,
        api_key: String,
    },
}

/// Devices that dial one edge.
pub(super) struct WireFleet {
    address: SocketAddr,
    tokens: Tokens,
    tls: Option<TlsConnector>,
}

/// What a connection is, plain or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A registered connection.
pub(super) struct WireDevice {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    decoder: Decoder,
    heartbeat: Interval,
}

/// The key behind 64 hexadecimal digits.
pub(super) fn signing_key(seed: &str) -> anyhow::Result<SigningKey> {
    let number = |digits: &str| u128::from_str_radix(digits, 16).context("a seed is hexadecimal");
    let (high, low) = seed.split_at_checked(32).context("a seed has 64 digits")?;
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
            (Some(org), Some(seed), None, None) => Tokens::Minted {
                key: Box::new(signing_key(&seed)?),
                org,
            },
            (None, None, Some(url), Some(api_key)) => Tokens::Issued {
                client: reqwest::Client::new(),
                url,
                api_key,
            },
            _ => bail!("either --org and --seed, or --token-url and --api-key"),
        };
        Ok(Self {
            address: options.address,
            tokens,
            tls: options.certificate.as_deref().map(trusting).transpose()?,
        })
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let stream = tls.connect(HOST.try_into()?, stream).await?;
        Ok(Box::new(stream))
    }
}

/// Trusts nothing but this certificate.
fn trusting(certificate: &Path) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

impl Tokens {
    async fn token(&self, device: &str) -> anyhow::Result<String> {
        match self {
            Self::Minted { key, org } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
                Ok(key.sign(&Claims {
                    id: TokenId::from_uuid(Uuid::now_v7()),
                    org: *org,
                    subject: Subject::Device(device.parse()?),
                    scopes: [Scope::Device].into_iter().collect(),
                    issued_at: now,
                    expires_at: now + TOKEN_LIFE_S,
                })?)
            }
            Self::Issued {
                client,
                url,
                api_key,
            } => {
                let wish = json!({
                    "subject": format!("device:{device}"),
                    "scopes": ["device"],
                    "ttl_s": TOKEN_LIFE_S,
                });
                let request = client.post(url).bearer_auth(api_key).json(&wish);
                let answer = request.send().await?.error_for_status()?;
                let token: serde_json::Value = answer.json().await?;
                let token = token["access_token"]
                    .as_str()
                    .context("an answer without a token")?;
                Ok(token.to_owned())
            }
        }
    }
}

impl Fleet for WireFleet {
    type Device = WireDevice;

    async fn dial(&self, index: u32) -> anyhow::Result<WireDevice> {
        let name = device_name(index);
        let token = self.tokens.token(&name).await?;
        let mut device = WireDevice {
            stream: self.connect().await?,
            received: Vec::new(),
            decoder: Decoder::new(FRAME_LIMIT_BYTES),
            heartbeat: heartbeat(Duration::from_secs(3600)),
        };
        device.authenticate(&token).await?;
        device.register().await?;
        Ok(device)
    }

    async fn serve(mut device: WireDevice) -> anyhow::Result<()> {
        let data = "x".repeat(PAYLOAD_BYTES);
        let mut answers = Vec::new();
        loop {
            tokio::select! {
                read = device.stream.read_buf(&mut device.received) => {
                    ensure!(read? > 0, "the edge closed");
                    device.answer(&data, &mut answers)?;
                }
                _ = device.heartbeat.tick() => frame(&mut answers, Kind::Ping, b""),
            }
            send(&mut device.stream, &answers).await?;
            answers.clear();
        }
    }
}

impl WireDevice {
    async fn authenticate(&mut self, token: &str) -> anyhow::Result<()> {
        let hello = json!({ "token": token }).to_string();
        self.send(Kind::Auth, hello.as_bytes()).await?;
        let answer = self.receive(Kind::Auth).await?;
        let accepted = parse_auth_answer(&answer)?.map_err(|error| anyhow!("refused: {error}"))?;
        self.heartbeat = heartbeat(Duration::from_secs(accepted.heartbeat_s.into()));
        Ok(())
    }

    async fn register(&mut self) -> anyhow::Result<()> {
        let services = json!({ "type": "register", "data": { "services": { "echo": {
            "description": "Returns a text.",
            "parameters": {
                "type": "object",
                "properties": { "text": { "type": "string", "maxLength": 256 } },
                "required": ["text"],
            },
        } } } });
        self.send(Kind::Control, services.to_string().as_bytes())
            .await?;
        let answer = self.receive(Kind::Control).await?;
        match ServerMessage::parse(&answer)? {
            ServerMessage::Result { success: true, .. } => Ok(()),
            refused => bail!("the registration was answered with {refused:?}"),
        }
    }

    /// Says something, and hears the answer to its end: when its first word came, and all of it.
    pub(super) async fn ask(&mut self, words: &str) -> anyhow::Result<(Instant, String)> {
        let mut said = Vec::new();
        encode(
            &mut said,
            Kind::Text,
            TASK,
            0,
            Spelling::Plain,
            words.as_bytes(),
        );
        encode(&mut said, Kind::End, TASK, 1, Spelling::Plain, b"");
        send(&mut self.stream, &said).await?;
        let (mut first, mut heard) = (None, Vec::new());
        loop {
            while let Some((frame, consumed)) = self.decoder.decode(&self.received)? {
                let is_end = frame.kind == Kind::End;
                if frame.kind == Kind::Text {
                    first.get_or_insert_with(Instant::now);
                    heard.extend_from_slice(frame.payload);
                }
                self.received.drain(..consumed);
                if is_end {
                    let first = first.context("an answer without a word")?;
                    return Ok((first, String::from_utf8(heard)?));
                }
            }
            let read = self.stream.read_buf(&mut self.received).await?;
            ensure!(read > 0, "the edge closed");
        }
    }

    async fn send(&mut self, kind: Kind, payload: &[u8]) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        frame(&mut bytes, kind, payload);
        send(&mut self.stream, &bytes).await
    }

    /// The payload of the next frame, which must be of this kind.
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
            ensure!(read > 0, "the edge closed");
        }
    }

    /// Appends the answers to all that has arrived whole.
    fn answer(&mut self, data: &str, answers: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut consumed = 0;
        while let Some((received, length)) = self.decoder.decode(&self.received[consumed..])? {
            match received.kind {
                Kind::Control => {
                    if let ServerMessage::Call { call_id, .. } =
                        ServerMessage::parse(received.payload)?
                    {
                        frame(answers, Kind::Control, result(&call_id, data).as_bytes());
                    }
                }
                Kind::Ping => frame(answers, Kind::Pong, received.payload),
                Kind::Goaway | Kind::Error => {
                    bail!("sent away: {}", String::from_utf8_lossy(received.payload));
                }
                _ => {}
            }
            consumed += length;
        }
        self.received.drain(..consumed);
        Ok(())
    }
}

/// Over TLS, what was written may still be in the session: it is on its way when it is flushed.
async fn send(stream: &mut Box<dyn Stream>, bytes: &[u8]) -> anyhow::Result<()> {
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// A call's id needs no escaping: the edge made it.
fn result(call_id: &str, data: &str) -> String {
    format!(
        r#"{{"type":"result","data":{{"call_id":"{call_id}","result":{{"success":true,"data":"{data}"}}}}}}"#
    )
}

fn frame(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    encode(out, kind, TaskId::MCP, 0, Spelling::Plain, payload);
}

fn heartbeat(period: Duration) -> Interval {
    let mut interval = interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
