//! `/v1/voices`: samples of a person's voice, with that person's consent. A provider
//! trains a voice from each of them.
//!
//! Invariant: no voice is stored without consent. No voice is trained during a request;
//! `workers::voices` does that.

mod audio;
#[cfg(test)]
mod audio_tests;
pub(crate) mod list;
pub(crate) mod preview;
mod problems;
pub(crate) mod schema;
mod upload;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use switchboard_protocol::id::VoiceId;
use switchboard_runtime::{
    problem::{Json, Path, Query, RawBody},
    quota::Quota,
};
use switchboard_store::{
    NewVoice, Owner, StoredVoice, VoiceChange, VoiceRemake, VoiceRemoval, VoiceState,
};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, Reader, Writer, operator_only},
        documents::StrictJson,
        error::ControlError,
        etag,
        idempotency::{Created, Idempotent},
        response::JsonResponse,
    },
};
use schema::VoiceView;
use upload::UploadParams;

/// The path of uploads.
pub(crate) const PATH: &str = "/v1/voices";
/// The maximum size of a sample. Protects memory: a sample is buffered completely.
pub(crate) const MAX_BYTES: usize = 10 * 1024 * 1024;

/// The bytes of a sample.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "the schema of bodies in the OpenAPI document")]
pub(crate) struct SampleBytes(Vec<u8>);

/// Creates a voice, which its provider trains in the background.
///
/// The body is the sample itself, up to 10 MiB.
#[utoipa::path(
    post, path = "/v1/voices", tag = "Voices", operation_id = "createVoice",
    params(UploadParams),
    request_body(content = inline(SampleBytes), content_type = "application/octet-stream", description = "1 second to 5 minutes of WAV, MP3, FLAC, or Opus or Vorbis in Ogg. The type is detected from the bytes; `Content-Type` is ignored."),
    responses((status = 201, body = VoiceView, description = "Created; the training is pending", headers(("Location" = String, description = "Path of the created resource"), ("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "consent_required", "unsupported_audio", "broken_audio", "unsuitable_audio", "objects_not_configured", "objects_unavailable", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Query(upload): Query<UploadParams>,
    Idempotent(guard, RawBody(bytes)): Idempotent<RawBody>,
) -> Result<Response, ControlError> {
    control.objects()?;
    let consent = upload.consent()?;
    let settings = upload.settings()?;
    let provider = upload.provider();
    if !control.providers.has(provider) {
        return Err(problems::unknown_provider(provider, &control.providers.names()).into());
    }
    let new = NewVoice {
        id: VoiceId::from_uuid(Uuid::now_v7()),
        settings,
        consent,
        provider: provider.to_owned(),
        sample: audio::read_sample(&bytes).await?,
        bytes,
    };
    let more = [(Quota::Settings, 1), (Quota::ObjectBytes, new.bytes.len())];
    control.admit(owner, &more).await?;
    let placed = control.store.upload_voice(owner, new).await?;
    let added = async {
        let mut creation = guard.begin(&control.store, owner).await?;
        let voice = creation.add_voice(owner, &placed).await?;
        Ok::<_, ControlError>((creation, voice))
    };
    let (creation, voice) = placed.discard_on_error(added.await).await?;
    let (id, etag) = (voice.id, etag::from_version(voice.version));
    let created = Created::new(&VoiceView::from(voice))
        .location(format!("{PATH}/{id}"))
        .etag(etag);
    let response = guard.commit(creation, created).await?;
    tracing::info!(owner = %owner, voice.id = %id, "voice created");
    control.voice_changed(owner, id, Some(VoiceState::Uploaded));
    Ok(response)
}

/// Gets a voice, with the state of its training.
#[utoipa::path(
    get, path = "/v1/voices/{id}", tag = "Voices", operation_id = "getVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses((status = 200, body = VoiceView, description = "The voice", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    Ok(control.voice(reader, &id).await?.into())
}

/// Updates name, languages and labels of a voice with a JSON merge patch (RFC 7396).
///
/// A patch without effect creates no version.
#[utoipa::path(
    patch, path = "/v1/voices/{id}", tag = "Voices", operation_id = "updateVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    request_body(content = ref("#/components/schemas/VoicePatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = VoiceView, description = "The updated voice", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn update(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(StrictJson(patch)): Json<StrictJson>,
) -> Result<JsonResponse, ControlError> {
    let current = control.own_voice(owner, &id).await?;
    etag::require_version(&headers, current.version)?;
    let settings = schema::apply_patch(&current, patch)?;
    if settings == current.settings {
        return Ok(current.into());
    }
    let (id, version) = (current.id, current.version);
    let store = &control.store;
    match store.change_voice(owner, id, version, &settings).await? {
        VoiceChange::Written(voice) => {
            tracing::info!(owner = %owner, voice.id = %id, voice.version = voice.version, "voice updated");
            control.voice_changed(owner, id, Some(voice.state));
            Ok((*voice).into())
        }
        VoiceChange::Stale => Err(etag::precondition_failed().into()),
    }
}

/// Restarts the training of a voice from its sample.
///
/// A training in progress continues.
#[utoipa::path(
    post, path = "/v1/voices/{id}/train", tag = "Voices", operation_id = "trainVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses((status = 202, body = VoiceView, description = "The training is pending", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "consent_ended", "provider_missing", "store_unavailable"]))),
)]
pub(crate) async fn train(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    let voice = control.own_voice(owner, &id).await?;
    if !control.providers.has(&voice.provider) {
        return Err(problems::provider_missing(&voice.provider).into());
    }
    match control.store.remake_voice(owner, voice.id).await? {
        VoiceRemake::Started(voice) => {
            tracing::info!(owner = %owner, voice.id = %voice.id, "voice training restarted");
            control.voice_changed(owner, voice.id, Some(voice.state));
            let etag = etag::from_version(voice.version);
            Ok(JsonResponse::accepted(&VoiceView::from(*voice)).etag(etag))
        }
        VoiceRemake::Unknown => Err(ControlError::not_found("voice", &id)),
        VoiceRemake::NoConsent => Err(problems::consent_ended("trained again").into()),
    }
}

/// Deletes a voice that no template and no NPC uses, with its sample.
///
/// It is also deleted at its provider.
#[utoipa::path(
    delete, path = "/v1/voices/{id}", tag = "Voices", operation_id = "deleteVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "voice_in_use", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn delete(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    control.objects()?;
    let voice = control.own_voice(owner, &id).await?.id;
    match control.store.delete_voice(owner, voice).await? {
        VoiceRemoval::Removed => {}
        VoiceRemoval::Unknown => return Err(ControlError::not_found("voice", &id)),
        VoiceRemoval::InUse => return Err(problems::in_use(voice).into()),
    }
    tracing::info!(owner = %owner, voice.id = %voice, "voice deleted");
    control.voice_changed(owner, voice, None);
    Ok(StatusCode::NO_CONTENT)
}

impl From<StoredVoice> for JsonResponse {
    fn from(voice: StoredVoice) -> Self {
        let etag = etag::from_version(voice.version);
        Self::ok(&VoiceView::from(voice)).etag(etag)
    }
}

impl Control {
    /// A voice that this owner can read.
    async fn voice(&self, reader: Owner, id: &str) -> Result<StoredVoice, ControlError> {
        let not_found = || ControlError::not_found("voice", id);
        let id: VoiceId = id.parse().map_err(|_| not_found())?;
        self.store.voice(reader, id).await?.ok_or_else(not_found)
    }

    /// A voice that this owner can change.
    async fn own_voice(&self, owner: Owner, id: &str) -> Result<StoredVoice, ControlError> {
        let voice = self.voice(owner, id).await?;
        if voice.owner == owner {
            return Ok(voice);
        }
        Err(operator_only("Only the operator may change public resources.").into())
    }
}
