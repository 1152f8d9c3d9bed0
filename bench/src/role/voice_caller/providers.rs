//! Recognition, a language model and synthesis over HTTP, each with a fixed delay.

use std::{f32::consts::TAU, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    http::header,
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::role::provider::{event, last_events, serve};

/// Samples per second of synthesised audio.
const SPEECH_RATE: usize = 24_000;

/// The time that each provider takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delays {
    pub(super) recognition: Duration,
    pub(super) model: Duration,
    pub(super) synthesis: Duration,
}

/// Serves the three interfaces. An answer is a tone of this duration.
pub(super) async fn start(
    listen: SocketAddr,
    delays: Delays,
    answer: Duration,
) -> anyhow::Result<JoinSet<()>> {
    let speech = tone(answer);
    let router = Router::new()
        .route(
            "/v1/audio/transcriptions",
            post(async move |_: axum::body::Bytes| {
                sleep_if(delays.recognition).await;
                Json(json!({"text": "What time is it?"}))
            }),
        )
        .route(
            "/v1/chat/completions",
            post(async move |_: Json<Value>| {
                sleep_if(delays.model).await;
                complete()
            }),
        )
        .route(
            "/v1/audio/speech",
            post(async move |_: Json<Value>| {
                sleep_if(delays.synthesis).await;
                speech.to_vec()
            }),
        );
    serve(listen, router).await
}

/// A timer has a resolution of a millisecond.
async fn sleep_if(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

/// Signed 16-bit samples, little-endian.
fn tone(duration: Duration) -> Arc<[u8]> {
    let count = (duration.as_secs_f64() * SPEECH_RATE as f64) as usize;
    let sample = |n: usize| (TAU * 440.0 * n as f32 / SPEECH_RATE as f32).sin() * 8_000.0;
    let samples = (0..count).map(|n| sample(n) as i16);
    samples.flat_map(i16::to_le_bytes).collect()
}

fn complete() -> Response {
    let text = json!({"role": "assistant", "content": "It is half past two."});
    let body = event(&text, None) + &last_events();
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
