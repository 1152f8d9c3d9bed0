//! `GET /v1/voices/{id}/preview`: the sample of a voice.
//!
//! Invariant: a sample is not sent after its consent has ended.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::Path;

use super::{SampleBytes, problems};
use crate::{
    Control,
    http::{auth::Reader, content::Content, error::ControlError},
};

/// Downloads the sample of a voice, completely or in part (`Range`).
#[utoipa::path(
    get, path = "/v1/voices/{id}/preview", tag = "Voices", operation_id = "previewVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses(
        (status = 200, description = "The sample", content((inline(SampleBytes) = "audio/wav"), (inline(SampleBytes) = "audio/mpeg"), (inline(SampleBytes) = "audio/ogg"), (inline(SampleBytes) = "audio/flac")), headers(("ETag" = String, description = "Hash of the sample"))),
        (status = 206, description = "The requested `Range`", content((inline(SampleBytes) = "audio/wav"), (inline(SampleBytes) = "audio/mpeg"), (inline(SampleBytes) = "audio/ogg"), (inline(SampleBytes) = "audio/flac")), headers(("Content-Range" = String, description = "The range of the body"))),
        (status = 304, description = "Not modified"),
    ),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "consent_ended", "range_not_satisfiable", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn preview(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ControlError> {
    let objects = control.objects()?;
    let voice = control.voice(reader, &id).await?;
    if voice.consent.has_ended() {
        return Err(problems::consent_ended("played").into());
    }
    let content = Content {
        sha256: voice.sha256_hex(),
        mime_type: &voice.sample.mime_type,
        // Clients revalidate, so that the consent is checked for each request.
        cache_control: "private, no-cache",
        key: voice.key(),
    };
    content.respond(&headers, objects).await
}
