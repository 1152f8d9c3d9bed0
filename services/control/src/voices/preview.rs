//! How a voice is played: its sample, whole or in part.
//! Never: a voice played whose consent has ended.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::Path;

use super::{SampleBytes, refusals};
use crate::{Control, access::Reader, content::Content, error::ControlError};

/// Plays a voice: its sample, whole or in part (`Range`).
#[utoipa::path(
    get, path = "/v1/voices/{id}/preview", tag = "Voices", operation_id = "playVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses(
        (status = 200, description = "The sample", content((inline(SampleBytes) = "audio/wav"), (inline(SampleBytes) = "audio/mpeg"), (inline(SampleBytes) = "audio/ogg"), (inline(SampleBytes) = "audio/flac")), headers(("ETag" = String, description = "The hash of the sample"))),
        (status = 206, description = "The part that was asked for", content((inline(SampleBytes) = "audio/wav"), (inline(SampleBytes) = "audio/mpeg"), (inline(SampleBytes) = "audio/ogg"), (inline(SampleBytes) = "audio/flac")), headers(("Content-Range" = String, description = "Which part it is"))),
        (status = 304, description = "The caller has it"),
    ),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "consent_ended", "range_not_satisfiable", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn play(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ControlError> {
    let objects = control.place_for_voices()?;
    let voice = control.voice(reader, &id).await?;
    if voice.consent.has_ended() {
        return Err(refusals::consent_ended("played").into());
    }
    let content = Content {
        sha256: voice.sha256_hex(),
        mime_type: &voice.sample.mime_type,
        // Whether it may still be played is asked each time.
        cache: "private, no-cache",
        key: voice.key(),
    };
    content.answer(&headers, objects).await
}
