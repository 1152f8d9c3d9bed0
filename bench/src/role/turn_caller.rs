//! Devices that run turns, and the fake model provider that serves them. Both are in one process,
//! so that latency is measured with one clock. The latency is that of the first chunk of the reply,
//! from provider to device; it excludes the path of the request.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use clap::Args;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use super::{
    closed_loop::{Caller, RESPONSE_TIMEOUT},
    fleet::Fleet as _,
    provider::{event, last_events, serve},
    wire_devices::{self, WireDevice, WireFleet},
};

/// Number of devices, one for each possible turn in flight.
const MAX_DEVICES: usize = 64;
const FIRST_DEVICE_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// First chunk of every reply.
const FIRST_CHUNK: &str = "It";
/// Further chunks of every reply.
const FURTHER_CHUNKS: [&str; 4] = [" is", " half", " past", " two."];

/// Listen address of the fake provider, and options of the devices.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// `HOST:PORT` of the fake model provider
    #[arg(long)]
    listen: SocketAddr,
    #[command(flatten)]
    devices: wire_devices::Options,
}

/// Time at which the first chunk of each reply was written, by user message.
type WriteTimes = Arc<Mutex<HashMap<String, Instant>>>;

/// A caller that repeats turns.
pub(super) struct TurnCaller {
    fleet: WireFleet,
    devices: Vec<tokio::sync::Mutex<Option<WireDevice>>>,
    written: WriteTimes,
    // Aborts the provider task when the caller is dropped.
    _provider: JoinSet<()>,
}

impl TurnCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let written = WriteTimes::default();
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .with_state(Arc::clone(&written));
        let caller = Self {
            fleet: WireFleet::new(options.devices)?,
            devices: (0..MAX_DEVICES).map(|_| Default::default()).collect(),
            _provider: serve(options.listen, router).await?,
            written,
        };
        let deadline = Instant::now() + FIRST_DEVICE_TIMEOUT;
        let first = loop {
            match caller.fleet.dial(0).await {
                Err(_) if Instant::now() < deadline => {
                    tokio::time::sleep(CONNECT_RETRY_INTERVAL).await
                }
                dialled => break dialled.context("the first device failed to connect")?,
            }
        };
        *caller.device(0)?.lock().await = Some(first);
        Ok(caller)
    }

    fn device(&self, worker: usize) -> anyhow::Result<&tokio::sync::Mutex<Option<WireDevice>>> {
        let device = self.devices.get(worker);
        device.with_context(|| format!("at most {MAX_DEVICES} turns in flight are supported"))
    }

    async fn run_turn(&self, worker: usize, sequence: u64) -> anyhow::Result<Duration> {
        let message = format!("What time is it? {worker}-{sequence}");
        let mut slot = self.device(worker)?.lock().await;
        let mut device = match slot.take() {
            Some(device) => device,
            None => self.fleet.dial(u32::try_from(worker)?).await?,
        };
        let (received, reply) = timeout(RESPONSE_TIMEOUT, device.run_turn(&message)).await??;
        *slot = Some(device);
        let written = self.written.lock().remove(&message);
        let written = written.context("the provider received no request for this turn")?;
        ensure!(
            reply == format!("{FIRST_CHUNK}{}", FURTHER_CHUNKS.concat()),
            "unexpected reply {reply}"
        );
        Ok(received.saturating_duration_since(written))
    }
}

impl Caller for TurnCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        self.run_turn(worker, sequence).await.map(drop)
    }

    /// The time between the provider's first chunk and the device's first text frame.
    async fn timed_call(&self, worker: usize, sequence: u64) -> anyhow::Result<Duration> {
        self.run_turn(worker, sequence).await
    }
}

/// Streams the first chunk and records the time, then sends the further chunks without delay.
async fn complete(State(written): State<WriteTimes>, Json(request): Json<Value>) -> Response {
    let messages = request["messages"].as_array();
    let message = messages.and_then(|messages| messages.last()?["content"].as_str());
    let message = message.unwrap_or_default().to_owned();
    let first = async move {
        written.lock().insert(message, Instant::now());
        event(&json!({"role": "assistant", "content": FIRST_CHUNK}), None)
    };
    let mut further: String = FURTHER_CHUNKS
        .iter()
        .map(|text| event(&json!({"content": text}), None))
        .collect();
    further.push_str(&last_events());
    let chunks = stream::once(first).chain(stream::iter([further]));
    let chunks = chunks.map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk)));
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(chunks)).into_response()
}
