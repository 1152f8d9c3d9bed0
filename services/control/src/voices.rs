//! `/v1/voices`: how somebody sounds, sent as a sample with that person's consent, made into a voice by a provider.
//! Never: a voice without consent, or one made while somebody waits for an answer; that is `maker`'s work.

mod audio;
mod leftovers;
pub(crate) mod listing;
mod maker;
pub(crate) mod preview;
mod provider;
mod refusals;
mod remote;
pub(crate) mod shape;
mod upload;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, Response},
};
use http::{HeaderMap, HeaderName, StatusCode, header};
use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::{Json, Path, Problem, Query, RawBody};
use switchboard_store::{
    NewVoice, Objects, Owner, StoredVoice, VoiceChange, VoiceRemake, VoiceRemoval,
};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Author, Reader, forbidden},
    document::Unambiguous,
    error::{ControlError, no_objects},
    once::{Made, Once},
    precondition,
};
pub(crate) use maker::Maker;
pub(crate) use provider::Providers;
use shape::ShownVoice;
use upload::Upload;

/// Where voices are sent.
pub(crate) const PATH: &str = "/v1/voices";
/// The largest sample, in bytes. Protects memory: a sample is held whole while it is read.
pub(crate) const LARGEST_BYTES: usize = 10 * 1024 * 1024;

/// A voice, and its version as an entity tag.
type Shown = (
    StatusCode,
    AppendHeaders<Vec<(HeaderName, String)>>,
    axum::Json<ShownVoice>,
);

/// The bytes of a sample.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "how a sample travels, for the document")]
pub(crate) struct SampleBytes(Vec<u8>);

/// Stores a voice, to be made by its provider; the body is the sample itself, 10 MiB at most.
#[utoipa::path(
    post, path = "/v1/voices", tag = "Voices", operation_id = "addVoice",
    params(Upload),
    request_body(content = inline(SampleBytes), content_type = "application/octet-stream", description = "1 second to 5 minutes as WAV, MP3, FLAC, or Opus or Vorbis in Ogg. What it is, is read from its bytes; any Content-Type is taken."),
    responses((status = 201, body = ShownVoice, description = "It is stored, and will be made", headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "consent_required", "unsupported_audio", "broken_audio", "unsuitable_audio", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Author(author): Author,
    Acting(control): Acting,
    Query(upload): Query<Upload>,
    Once(ticket, RawBody(bytes)): Once<RawBody>,
) -> Result<Response, ControlError> {
    control.place_for_voices()?;
    let consent = upload.consent()?;
    let settings = upload.settings()?;
    let provider = upload.provider();
    if !control.providers.has(provider) {
        return Err(refusals::unknown_provider(provider, &control.providers.names()).into());
    }
    let new = NewVoice {
        id: VoiceId::from_uuid(Uuid::now_v7()),
        settings,
        consent,
        provider: provider.to_owned(),
        sample: audio::read(&bytes).await?,
        bytes,
    };
    let placed = control.store.place_voice(author, new).await?;
    let added = async {
        let mut creation = ticket.begin(&control.store, author).await?;
        let voice = creation.add_voice(author, &placed).await?;
        Ok::<_, ControlError>((creation, voice))
    };
    let (creation, voice) = placed.kept_if(added.await).await?;
    let (id, etag) = (voice.id, precondition::etag(voice.version));
    let made = Made::new(&ShownVoice::from(voice))
        .at(format!("{PATH}/{id}"))
        .tagged(etag);
    let response = ticket.commit(creation, made).await?;
    tracing::info!(owner = %author, voice.id = %id, "a voice was added");
    Ok(response)
}

/// Shows a voice, and how far it is.
#[utoipa::path(
    get, path = "/v1/voices/{id}", tag = "Voices", operation_id = "getVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses((status = 200, body = ShownVoice, description = "The voice", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<Shown, ControlError> {
    Ok(shown(StatusCode::OK, control.voice(reader, &id).await?))
}

/// Changes what a merge patch (RFC 7396) names of name, languages and labels. What changes nothing makes no version.
#[utoipa::path(
    patch, path = "/v1/voices/{id}", tag = "Voices", operation_id = "changeVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    request_body(content = ref("#/components/schemas/VoicePatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = ShownVoice, description = "The voice as it is now", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn change(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(Unambiguous(patch)): Json<Unambiguous>,
) -> Result<Shown, ControlError> {
    let current = control.own_voice(author, &id).await?;
    precondition::require(&headers, current.version)?;
    let settings = shape::patched(&current, patch)?;
    if settings == current.settings {
        return Ok(shown(StatusCode::OK, current));
    }
    let (id, version) = (current.id, current.version);
    let store = &control.store;
    match store.change_voice(author, id, version, &settings).await? {
        VoiceChange::Written(voice) => {
            tracing::info!(owner = %author, voice.id = %id, voice.version = voice.version, "a voice was changed");
            Ok(shown(StatusCode::OK, *voice))
        }
        VoiceChange::Stale => Err(precondition::stale().into()),
    }
}

/// Has a voice made again from its sample. One that is being made goes on.
#[utoipa::path(
    post, path = "/v1/voices/{id}/train", tag = "Voices", operation_id = "trainVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses((status = 202, body = ShownVoice, description = "It will be made", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "consent_ended", "provider_missing", "store_unavailable"]))),
)]
pub(crate) async fn train(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<Shown, ControlError> {
    let voice = control.own_voice(author, &id).await?;
    if !control.providers.has(&voice.provider) {
        return Err(refusals::provider_missing(&voice.provider).into());
    }
    match control.store.remake_voice(author, voice.id).await? {
        VoiceRemake::Begun(voice) => {
            tracing::info!(owner = %author, voice.id = %voice.id, "a voice is made again");
            Ok(shown(StatusCode::ACCEPTED, *voice))
        }
        VoiceRemake::Unknown => Err(ControlError::unknown("voice", &id)),
        VoiceRemake::NoConsent => Err(refusals::consent_ended("made again").into()),
    }
}

/// Removes a voice that nobody speaks with, its sample, and what its provider has of it.
#[utoipa::path(
    delete, path = "/v1/voices/{id}", tag = "Voices", operation_id = "removeVoice",
    params(("id" = VoiceId, Path, description = "The voice")),
    responses((status = 204, description = "It is gone")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "voice_in_use", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn remove(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    control.place_for_voices()?;
    let voice = control.own_voice(author, &id).await?.id;
    match control.store.delete_voice(author, voice).await? {
        VoiceRemoval::Removed => {}
        VoiceRemoval::Unknown => return Err(ControlError::unknown("voice", &id)),
        VoiceRemoval::InUse => return Err(refusals::in_use(voice).into()),
    }
    tracing::info!(owner = %author, voice.id = %voice, "a voice was removed");
    Ok(StatusCode::NO_CONTENT)
}

fn shown(status: StatusCode, voice: StoredVoice) -> Shown {
    let headers = AppendHeaders(vec![(header::ETAG, precondition::etag(voice.version))]);
    (status, headers, axum::Json(voice.into()))
}

impl Control {
    fn place_for_voices(&self) -> Result<&Objects, Problem> {
        self.store.objects().ok_or_else(no_objects)
    }

    /// A voice that this reader sees.
    async fn voice(&self, reader: Owner, id: &str) -> Result<StoredVoice, ControlError> {
        let unknown = || ControlError::unknown("voice", id);
        let id: VoiceId = id.parse().map_err(|_| unknown())?;
        self.store.voice(reader, id).await?.ok_or_else(unknown)
    }

    /// A voice that this author may change.
    async fn own_voice(&self, author: Owner, id: &str) -> Result<StoredVoice, ControlError> {
        let voice = self.voice(author, id).await?;
        if voice.owner == author {
            return Ok(voice);
        }
        Err(forbidden("Only the operator may change what is public.").into())
    }
}
