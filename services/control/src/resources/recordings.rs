//! `/v1/recordings`: what users said to devices, of organisations that switched `record_speech` on.
//!
//! Invariant: only administrators of the organisation reach them; nobody else does, the operator included.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{DeviceId, OrgId, RecordingId};
use switchboard_runtime::{
    paging::{self, Cursor, JsonElements, Limit, List},
    problem::{Path, Problem, Query},
};
use switchboard_store::{RecordingFilter, StoredRecording};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireAdmin},
        content::Content,
        error::ControlError,
        response::JsonResponse,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Maximum number of elements in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
    /// Only recordings of this device.
    #[param(pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-1")]
    device_id: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeletionParams {
    /// Only recordings of this device. Default: those of all devices.
    #[param(pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-1")]
    device_id: Option<String>,
}

/// A recording of what a user said to a device, without its bytes.
#[derive(Serialize, ToSchema)]
#[schema(as = Recording)]
pub(crate) struct RecordingView {
    /// Unique identifier.
    id: RecordingId,
    /// The device.
    #[schema(value_type = DeviceId)]
    device_id: String,
    /// Duration in milliseconds.
    #[schema(minimum = 1, example = 2400)]
    duration_ms: i32,
    /// Size in bytes.
    #[schema(minimum = 1, maximum = 131_072, example = 7200)]
    size_bytes: i64,
    /// SHA-256 of the bytes in hexadecimal digits.
    #[schema(
        pattern = "^[0-9a-f]{64}$",
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )]
    sha256: String,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
}

/// The bytes of a recording: Opus in Ogg.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary, min_length = 1)]
#[expect(dead_code, reason = "the schema of bodies in the OpenAPI document")]
pub(crate) struct RecordingBytes(Vec<u8>);

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Recordings {
    /// Oldest first.
    #[schema(max_items = 200, value_type = Vec<RecordingView>)]
    recordings: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

/// What a request has deleted.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeletedRecordings {
    /// How many recordings were deleted.
    #[schema(maximum = 1000, example = 12)]
    deleted: u64,
    /// Whether there may be more: repeat the request.
    #[schema(example = false)]
    has_more: bool,
}

impl From<StoredRecording> for RecordingView {
    fn from(recording: StoredRecording) -> Self {
        Self {
            sha256: recording.sha256_hex(),
            id: recording.id,
            device_id: recording.device_id,
            duration_ms: recording.duration_ms,
            size_bytes: recording.size_bytes,
            created_at: recording.created_at,
        }
    }
}

/// Lists the recordings of the caller's organisation.
#[utoipa::path(
    get, path = "/v1/recordings", tag = "Recordings", operation_id = "listRecordings",
    params(ListParams),
    responses((status = 200, body = Recordings, description = "A page of recordings")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    let list = List::new("/v1/recordings", caller.org);
    let after = list.position(params.cursor)?;
    let device = parse_device(params.device_id.as_deref())?;
    let count = limit.fetch_count();
    let found = control
        .store
        .recordings(caller.org, device.as_ref(), after, count);
    let (recordings, next_cursor) =
        limit.json_page(found.await?, |one| list.cursor(one.id), RecordingView::from);
    let page = Recordings {
        recordings,
        next_cursor,
    };
    Ok(JsonResponse::page(&control, caller.org, &page)?)
}

/// Gets the metadata of a recording.
#[utoipa::path(
    get, path = "/v1/recordings/{id}", tag = "Recordings", operation_id = "getRecording",
    params(("id" = RecordingId, Path, description = "The recording")),
    responses((status = 200, body = RecordingView, description = "The recording, without its bytes")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    let recording = control.recording(caller.org, &id).await?;
    Ok(JsonResponse::ok(&RecordingView::from(recording)))
}

/// Downloads a recording, completely or in part (`Range`).
#[utoipa::path(
    get, path = "/v1/recordings/{id}/content", tag = "Recordings", operation_id = "getRecordingContent",
    params(("id" = RecordingId, Path, description = "The recording")),
    responses(
        (status = 200, description = "The bytes", content((inline(RecordingBytes) = "audio/ogg")), headers(("ETag" = String, description = "Hash of the bytes"))),
        (status = 206, description = "The requested `Range`", content((inline(RecordingBytes) = "audio/ogg")), headers(("Content-Range" = String, description = "The range of the body"))),
        (status = 304, description = "Not modified"),
    ),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "range_not_satisfiable", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn content(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ControlError> {
    let objects = control.objects()?;
    let recording = control.recording(caller.org, &id).await?;
    let content = Content {
        sha256: recording.sha256_hex(),
        mime_type: "audio/ogg",
        // No copy outlives the recording.
        cache_control: "private, no-store",
        key: recording.key(),
    };
    content.respond(&headers, objects).await
}

/// Deletes a recording.
#[utoipa::path(
    delete, path = "/v1/recordings/{id}", tag = "Recordings", operation_id = "deleteRecording",
    params(("id" = RecordingId, Path, description = "The recording")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn delete(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let not_found = || ControlError::not_found("recording", &id);
    let recording: RecordingId = id.parse().map_err(|_| not_found())?;
    let filter = RecordingFilter::One(recording);
    let (deleted, _) = control.store.delete_recordings(caller.org, filter).await?;
    if deleted == 0 {
        return Err(not_found());
    }
    tracing::info!(org.id = %caller.org, recording.id = %recording, "recording deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes the recordings of a device, or all of the organisation: the oldest 1,000 with each request.
#[utoipa::path(
    delete, path = "/v1/recordings", tag = "Recordings", operation_id = "deleteRecordings",
    params(DeletionParams),
    responses((status = 200, body = DeletedRecordings, description = "How many were deleted")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn delete_all(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Query(params): Query<DeletionParams>,
) -> Result<JsonResponse, ControlError> {
    let device = parse_device(params.device_id.as_deref())?;
    let filter = device
        .as_ref()
        .map_or(RecordingFilter::All, RecordingFilter::Device);
    let (deleted, has_more) = control.store.delete_recordings(caller.org, filter).await?;
    tracing::info!(org.id = %caller.org, recordings = deleted, "recordings deleted");
    Ok(JsonResponse::ok(&DeletedRecordings { deleted, has_more }))
}

impl Control {
    async fn recording(&self, org: OrgId, id: &str) -> Result<StoredRecording, ControlError> {
        let not_found = || ControlError::not_found("recording", id);
        let id: RecordingId = id.parse().map_err(|_| not_found())?;
        self.store.recording(org, id).await?.ok_or_else(not_found)
    }
}

fn parse_device(id: Option<&str>) -> Result<Option<DeviceId>, Problem> {
    let parsed = id.map(|id| id.parse::<DeviceId>()).transpose();
    parsed.map_err(|_| Problem::invalid_query("`device_id` is not the id of a device.".to_owned()))
}
