//! Devices that say something, and the stand-in for a language model that is asked for the answer: in one process, so that both
//! ends of a word's way are on one clock.
//! Never: the model's own time, or the way of the question, in a figure.

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
    serve::ListenerExt as _,
};
use bytes::Bytes;
use clap::Args;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};

use super::{
    closed_loop::{ANSWER_WITHIN, Caller},
    fleet::Fleet as _,
    wire_devices::{self, WireDevice, WireFleet},
};

/// Devices that can be under way at a time, one for each request in flight.
const DEVICES: usize = 64;
/// How long the first device may take to be let in.
const FIRST_DEVICE_WITHIN: Duration = Duration::from_secs(15);
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// What every answer is made of, the first word apart from the others.
const FIRST: &str = "It";
const OTHERS: [&str; 4] = [" is", " half", " past", " two."];

/// Where the model listens, and where the devices dial in.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// `HOST:PORT` of the stand-in for a model
    #[arg(long)]
    listen: SocketAddr,
    #[command(flatten)]
    devices: wire_devices::Options,
}

/// When the first word of each answer was written, by its question.
type Written = Arc<Mutex<HashMap<String, Instant>>>;

/// Turns, over and over.
pub(super) struct TurnCaller {
    fleet: WireFleet,
    devices: Vec<tokio::sync::Mutex<Option<WireDevice>>>,
    written: Written,
    // Ends with it.
    _model: JoinSet<()>,
}

impl TurnCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let written = Written::default();
        let caller = Self {
            fleet: WireFleet::new(options.devices)?,
            devices: (0..DEVICES).map(|_| Default::default()).collect(),
            _model: model(options.listen, Arc::clone(&written)).await?,
            written,
        };
        let until = Instant::now() + FIRST_DEVICE_WITHIN;
        let first = loop {
            match caller.fleet.dial(0).await {
                Err(_) if Instant::now() < until => tokio::time::sleep(TRY_AGAIN).await,
                dialled => break dialled.context("the first device cannot connect")?,
            }
        };
        *caller.device(0)?.lock().await = Some(first);
        Ok(caller)
    }

    fn device(&self, worker: usize) -> anyhow::Result<&tokio::sync::Mutex<Option<WireDevice>>> {
        let device = self.devices.get(worker);
        device.with_context(|| format!("{DEVICES} in flight at most"))
    }

    async fn turn(&self, worker: usize, sequence: u64) -> anyhow::Result<Duration> {
        let question = format!("What time is it? {worker}-{sequence}");
        let mut place = self.device(worker)?.lock().await;
        let mut device = match place.take() {
            Some(device) => device,
            None => self.fleet.dial(u32::try_from(worker)?).await?,
        };
        let (heard, words) = timeout(ANSWER_WITHIN, device.ask(&question)).await??;
        *place = Some(device);
        let written = self.written.lock().remove(&question);
        let written = written.context("the model was not asked")?;
        ensure!(
            words == format!("{FIRST}{}", OTHERS.concat()),
            "answered with {words}"
        );
        Ok(heard.saturating_duration_since(written))
    }
}

impl Caller for TurnCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        self.turn(worker, sequence).await.map(drop)
    }

    /// From the model's first word written to the first word on the device.
    async fn timed(&self, worker: usize, sequence: u64) -> anyhow::Result<Duration> {
        self.turn(worker, sequence).await
    }
}

async fn model(listen: SocketAddr, written: Written) -> anyhow::Result<JoinSet<()>> {
    let listener = TcpListener::bind(listen).await?.tap_io(|connection| {
        // Without it the first word waits for an acknowledgement, and that is not what is measured.
        let _ = connection.set_nodelay(true);
    });
    let router = Router::new()
        .route("/v1/chat/completions", post(complete))
        .with_state(written);
    let mut model = JoinSet::new();
    model.spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("the model ended: {error}");
        }
    });
    Ok(model)
}

/// Says the first word, and notes when; then the others at once.
async fn complete(State(written): State<Written>, Json(request): Json<Value>) -> Response {
    let messages = request["messages"].as_array();
    let question = messages.and_then(|messages| messages.last()?["content"].as_str());
    let question = question.unwrap_or_default().to_owned();
    let first = async move {
        written.lock().insert(question, Instant::now());
        event(&json!({"role": "assistant", "content": FIRST}), None)
    };
    let mut others: String = OTHERS
        .iter()
        .map(|word| event(&json!({"content": word}), None))
        .collect();
    others.push_str(&event(&json!({}), Some("stop")));
    others.push_str("data: [DONE]\n\n");
    let pieces = stream::once(first).chain(stream::iter([others]));
    let pieces = pieces.map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(pieces)).into_response()
}

fn event(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "stand-in", "choices": [choice]});
    format!("data: {chunk}\n\n")
}
