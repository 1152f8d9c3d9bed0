//! The device that the conformance suite calls: it connects over TCP, registers the fixture tools
//! and
//! serves concurrent calls, without the product's device client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::{Map, Value, json};
use switchboard_protocol::{
    frame::{Decoder, Kind, SeqFormat, TaskId, encode},
    message::{ServerMessage, parse_auth_answer},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
    task::JoinSet,
    time::sleep,
};

use super::{
    fixtures::Fixtures,
    tools::{self, Call},
};

const FRAME_LIMIT_BYTES: usize = 1 << 20;
/// Between two notifications of a tool, about what the suite asks for.
const NOTIFICATION_INTERVAL: Duration = Duration::from_millis(50);

/// A registered connection.
pub(super) struct Device {
    incoming: OwnedReadHalf,
    received: Vec<u8>,
    decoder: Decoder,
    state: Arc<DeviceState>,
}

/// State shared by all calls in flight.
struct DeviceState {
    outgoing: Mutex<OwnedWriteHalf>,
    fixtures: Fixtures,
    registrations: AtomicU32,
}

impl Device {
    /// Connects, authenticates and registers the tools.
    pub(super) async fn dial(
        address: &str,
        token: &str,
        fixtures: Fixtures,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (incoming, outgoing) = stream.into_split();
        let state = DeviceState {
            outgoing: Mutex::new(outgoing),
            fixtures,
            registrations: AtomicU32::new(0),
        };
        let mut device = Self {
            incoming,
            received: Vec::new(),
            decoder: Decoder::new(FRAME_LIMIT_BYTES),
            state: Arc::new(state),
        };
        device.authenticate(token).await?;
        device.state.register().await?;
        let answer = device.expect(Kind::Control).await?;
        accepted(&ServerMessage::parse(&answer)?)?;
        Ok(device)
    }

    async fn authenticate(&mut self, token: &str) -> anyhow::Result<()> {
        let hello = json!({"token": token, "client": {"name": "conformance", "version": "1"}});
        self.state.send(Kind::Auth, &hello.to_string()).await?;
        let answer = self.expect(Kind::Auth).await?;
        parse_auth_answer(&answer)?.map_err(|error| anyhow!("refused: {error}"))?;
        Ok(())
    }

    /// Answers calls. Always ends with an error, since the server has no reason to close.
    pub(super) async fn serve(mut self) -> anyhow::Result<()> {
        let mut calls = JoinSet::new();
        loop {
            tokio::select! {
                frame = self.receive() => {
                    let (kind, payload) = frame?;
                    self.take(kind, &payload, &mut calls).await?;
                }
                Some(ended) = calls.join_next() => ended??,
            }
        }
    }

    async fn take(
        &self,
        kind: Kind,
        payload: &[u8],
        calls: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        match kind {
            Kind::Ping => self.state.send(Kind::Pong, "").await,
            Kind::Goaway | Kind::Error => {
                bail!("sent away: {}", String::from_utf8_lossy(payload))
            }
            Kind::Control => match ServerMessage::parse(payload)? {
                ServerMessage::Call {
                    call_id,
                    method,
                    params,
                    input,
                } => {
                    let call = Call {
                        id: call_id.into_owned(),
                        tool: method.into_owned(),
                        params: serde_json::from_str(params.get())?,
                        input: input
                            .map_or(Ok(Value::Null), |input| serde_json::from_str(input.get()))?,
                    };
                    calls.spawn(perform(Arc::clone(&self.state), call));
                    Ok(())
                }
                // Every tool is fast, so cancellations are ignored.
                ServerMessage::Cancel { .. } => Ok(()),
                answer @ ServerMessage::Result { .. } => accepted(&answer),
            },
            _ => Ok(()),
        }
    }

    /// The payload of the next frame, which must be of this kind.
    async fn expect(&mut self, kind: Kind) -> anyhow::Result<Vec<u8>> {
        let (found, payload) = self.receive().await?;
        let text = String::from_utf8_lossy(&payload);
        ensure!(found == kind, "a {found:?} frame instead: {text}");
        Ok(payload)
    }

    /// The next frame. Cancel-safe.
    async fn receive(&mut self) -> anyhow::Result<(Kind, Vec<u8>)> {
        loop {
            if let Some((frame, consumed)) = self.decoder.decode(&self.received)? {
                let found = (frame.kind, frame.payload.to_vec());
                self.received.drain(..consumed);
                return Ok(found);
            }
            let read = self.incoming.read_buf(&mut self.received).await?;
            ensure!(read > 0, "the edge closed the device's connection");
        }
    }
}

impl DeviceState {
    /// Registers the tools, every other time with one more.
    async fn register(&self) -> anyhow::Result<()> {
        let before = self.registrations.fetch_add(1, Ordering::Relaxed);
        let services = tools::services(before % 2 == 1);
        let message = json!({"type": "register", "data": {"services": services}});
        self.send(Kind::Control, &message.to_string()).await
    }

    async fn send_event(
        &self,
        kind: &str,
        mut data: Map<String, Value>,
        id: &str,
    ) -> anyhow::Result<()> {
        data.insert("call_id".to_owned(), id.into());
        let message = json!({"type": kind, "data": data});
        self.send(Kind::Control, &message.to_string()).await
    }

    async fn send(&self, kind: Kind, payload: &str) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        let payload = payload.as_bytes();
        encode(&mut bytes, kind, TaskId::MCP, 0, SeqFormat::Plain, payload);
        let mut outgoing = self.outgoing.lock().await;
        let written = outgoing.write_all(&bytes).await;
        written.context("the edge closed the device's connection")
    }
}

async fn perform(state: Arc<DeviceState>, call: Call) -> anyhow::Result<()> {
    for (kind, data) in tools::notifications(&call.tool) {
        state.send_event(kind, data, &call.id).await?;
        sleep(NOTIFICATION_INTERVAL).await;
    }
    let mut result = tools::result(&call);
    match call.tool.as_str() {
        tools::TRIGGER_TOOLS => state.register().await?,
        tools::TRIGGER_PROMPTS => {
            if let Err(error) = state.fixtures.add_prompt().await {
                result = json!({"success": false, "error": format!("{error:#}")});
            }
        }
        _ => {}
    }
    let data = Map::from_iter([("result".to_owned(), result)]);
    state.send_event("result", data, &call.id).await
}

/// Whether the server accepted a registration.
fn accepted(answer: &ServerMessage<'_>) -> anyhow::Result<()> {
    match answer {
        ServerMessage::Result { success: true, .. } => Ok(()),
        refused => bail!("the device's message was answered with {refused:?}"),
    }
}
