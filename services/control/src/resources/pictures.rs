//! `/v1/pictures`: pictures, uploaded and downloaded as their bytes.
//!
//! Invariant: the type of a picture is detected from its bytes, never taken from the client.

mod image_header;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use switchboard_catalog::UriTemplate;
use switchboard_protocol::id::{OrgId, PictureId};
use switchboard_runtime::{
    paging::{Cursor, JsonElements, Limit, List, Paging},
    problem::{Path, Problem, ProblemKind, Query, RawBody},
    quota::Quota,
};
use switchboard_store::{NewPicture, Owner, Picture, PictureRemoval, PictureWrite};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, Reader, Writer},
        content::Content,
        error::ControlError,
        idempotency::{Created, Idempotent},
        label::Label,
        response::JsonResponse,
    },
    resources::memories::reject_own_scheme,
};

pub(crate) use image_header::read_image_info;

/// The path of uploads.
pub(crate) const PATH: &str = "/v1/pictures";
/// The maximum size of a picture. Protects memory: a picture is buffered completely.
pub(crate) const MAX_BYTES: usize = 10 * 1024 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadParams {
    /// Display name. Default: the id of the picture.
    #[param(example = "Bello")]
    name: Option<Label>,
    /// The URI of the MCP resource: an absolute URI without template expressions.
    /// Default: generated from the id.
    #[param(min_length = 1, max_length = 512, example = "bello://portrait")]
    uri: Option<String>,
}

/// A picture, without its bytes.
#[derive(Serialize, ToSchema)]
#[schema(as = Picture)]
pub(crate) struct PictureView {
    /// Unique identifier.
    id: PictureId,
    /// The organisation that owns it; null if it is public.
    org_id: Option<OrgId>,
    /// Display name.
    #[schema(min_length = 1, max_length = 100, example = "Bello")]
    name: String,
    /// The URI of the MCP resource.
    #[schema(max_length = 512, example = "bello://portrait")]
    uri: String,
    /// Media type, detected from the bytes.
    #[schema(pattern = "^image/(png|jpeg|gif|webp)$", example = "image/png")]
    mime_type: String,
    /// Width in pixels.
    #[schema(minimum = 1, maximum = 64_000_000, example = 640)]
    width: i32,
    /// Height in pixels.
    #[schema(minimum = 1, maximum = 64_000_000, example = 480)]
    height: i32,
    /// Size in bytes.
    #[schema(minimum = 1, maximum = 10_485_760, example = 4711)]
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

/// The bytes of a picture.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary, min_length = 1)]
#[expect(dead_code, reason = "the schema of bodies in the OpenAPI document")]
pub(crate) struct PictureBytes(Vec<u8>);

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Pictures {
    /// Oldest first.
    #[schema(max_items = 200, value_type = Vec<PictureView>)]
    pictures: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

impl From<Picture> for PictureView {
    fn from(picture: Picture) -> Self {
        Self {
            sha256: picture.sha256_hex(),
            id: picture.id,
            org_id: match picture.owner {
                Owner::Org(org) => Some(org),
                Owner::Installation => None,
            },
            name: picture.name,
            uri: picture.uri,
            mime_type: picture.mime_type,
            width: picture.width,
            height: picture.height,
            size_bytes: picture.size_bytes,
            created_at: picture.created_at,
        }
    }
}

/// Creates a picture.
///
/// The body is the picture itself, up to 10 MiB.
#[utoipa::path(
    post, path = "/v1/pictures", tag = "Pictures", operation_id = "createPicture",
    params(UploadParams),
    request_body(content = inline(PictureBytes), content_type = "application/octet-stream", description = "A PNG, JPEG, GIF or WebP picture. The type is detected from the bytes; `Content-Type` is ignored."),
    responses((status = 201, body = PictureView, description = "Stored", headers(("Location" = String, description = "Path of the created resource")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "uri_taken", "unsupported_picture", "broken_picture", "picture_too_large", "objects_not_configured", "objects_unavailable", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Query(upload): Query<UploadParams>,
    Idempotent(guard, RawBody(bytes)): Idempotent<RawBody>,
) -> Result<Response, ControlError> {
    control.objects()?;
    let image = read_image_info(&bytes)?;
    let id = PictureId::from_uuid(Uuid::now_v7());
    let name = upload
        .name
        .map_or_else(|| id.to_string(), |name| name.as_str().to_owned());
    let new = NewPicture {
        id,
        name,
        uri: upload.uri.as_deref().map(checked_uri).transpose()?,
        mime_type: image.mime_type,
        width: image.width,
        height: image.height,
        bytes,
    };
    let more = [(Quota::Settings, 1), (Quota::ObjectBytes, new.bytes.len())];
    control.admit(owner, &more).await?;
    let placed = control.store.upload_picture(owner, new).await?;
    let added = async {
        let mut creation = guard.begin(&control.store, owner).await?;
        match creation.add_picture(owner, &placed).await? {
            PictureWrite::Written(picture) => Ok((creation, *picture)),
            PictureWrite::UriTaken => Err(ControlError::from(uri_taken())),
        }
    };
    let (creation, picture) = placed.discard_on_error(added.await).await?;
    let uri = picture.uri.clone();
    let created = Created::new(&PictureView::from(picture)).location(format!("{PATH}/{id}"));
    let response = guard.commit(creation, created).await?;
    tracing::info!(owner = %owner, picture.id = %id, "picture created");
    control.resources_changed(owner, Some(uri)).await;
    control.setting_changed(owner, "picture", id);
    Ok(response)
}

/// Lists the pictures of the caller, and public ones.
#[utoipa::path(
    get, path = "/v1/pictures", tag = "Pictures", operation_id = "listPictures",
    params(Paging),
    responses((status = 200, body = Pictures, description = "A page of pictures")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["objects_not_configured", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(paging): Query<Paging>,
) -> Result<JsonResponse, ControlError> {
    control.objects()?;
    let limit = Limit::new(paging.limit)?;
    let list = List::new("/v1/pictures", reader);
    let after = list.position(paging.cursor)?;
    let found = control
        .store
        .pictures(reader, after, limit.fetch_count())
        .await?;
    let (pictures, next_cursor) =
        limit.json_page(found, |picture| list.cursor(picture.id), PictureView::from);
    Ok(JsonResponse::page(
        &control,
        reader,
        &Pictures {
            pictures,
            next_cursor,
        },
    )?)
}

/// Gets the metadata of a picture.
#[utoipa::path(
    get, path = "/v1/pictures/{id}", tag = "Pictures", operation_id = "getPicture",
    params(("id" = PictureId, Path, description = "The picture")),
    responses((status = 200, body = PictureView, description = "The picture, without its bytes")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    control.objects()?;
    let picture = control.pictures().find(reader, &id).await?;
    Ok(JsonResponse::ok(&PictureView::from(picture)))
}

/// Downloads a picture.
///
/// Its bytes never change; a request with its ETag in `If-None-Match` returns 304.
#[utoipa::path(
    get, path = "/v1/pictures/{id}/content", tag = "Pictures", operation_id = "getPictureContent",
    params(("id" = PictureId, Path, description = "The picture")),
    responses(
        (status = 200, description = "The bytes", content((inline(PictureBytes) = "image/png"), (inline(PictureBytes) = "image/jpeg"), (inline(PictureBytes) = "image/gif"), (inline(PictureBytes) = "image/webp")), headers(("ETag" = String, description = "Hash of the bytes"))),
        (status = 206, description = "The requested `Range`", content((inline(PictureBytes) = "image/png"), (inline(PictureBytes) = "image/jpeg"), (inline(PictureBytes) = "image/gif"), (inline(PictureBytes) = "image/webp")), headers(("Content-Range" = String, description = "The range of the body"))),
        (status = 304, description = "Not modified"),
    ),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "range_not_satisfiable", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn content(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ControlError> {
    let objects = control.objects()?;
    let picture = control.pictures().find(reader, &id).await?;
    let content = Content {
        sha256: picture.sha256_hex(),
        mime_type: &picture.mime_type,
        // The bytes of a picture never change.
        cache_control: "private, max-age=31536000, immutable",
        key: picture.key(),
    };
    content.respond(&headers, objects).await
}

/// Deletes a picture that no template and no NPC uses.
#[utoipa::path(
    delete, path = "/v1/pictures/{id}", tag = "Pictures", operation_id = "deletePicture",
    params(("id" = PictureId, Path, description = "The picture")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "picture_in_use", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn delete(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    control.objects()?;
    let not_found = || ControlError::not_found("picture", &id);
    let picture: PictureId = id.parse().map_err(|_| not_found())?;
    match control.pictures().delete(owner, picture).await? {
        PictureRemoval::Removed => {}
        PictureRemoval::Unknown => return Err(not_found()),
        PictureRemoval::InUse => return Err(in_use().into()),
    }
    tracing::info!(owner = %owner, picture.id = %picture, "picture deleted");
    Ok(StatusCode::NO_CONTENT)
}

impl Control {
    const fn pictures(&self) -> PictureWriter<'_> {
        PictureWriter { control: self }
    }
}

/// Finds and deletes pictures. A deletion is published to the other nodes.
struct PictureWriter<'a> {
    control: &'a Control,
}

impl PictureWriter<'_> {
    async fn find(&self, reader: Owner, id: &str) -> Result<Picture, ControlError> {
        let not_found = || ControlError::not_found("picture", id);
        let id: PictureId = id.parse().map_err(|_| not_found())?;
        let found = self.control.store.picture(reader, id).await?;
        found.ok_or_else(not_found)
    }

    async fn delete(&self, owner: Owner, id: PictureId) -> Result<PictureRemoval, ControlError> {
        let removal = self.control.store.delete_picture(owner, id).await?;
        if matches!(removal, PictureRemoval::Removed) {
            self.control.resources_changed(owner, None).await;
            self.control.setting_changed(owner, "picture", id);
        }
        Ok(removal)
    }
}

fn checked_uri(text: &str) -> Result<UriTemplate, Problem> {
    let parsed = UriTemplate::parse_plain(text).map_err(|error| error.to_string());
    let checked = parsed.and_then(|uri| reject_own_scheme(text).map(|()| uri));
    checked.map_err(|reason| Problem::invalid_query(format!("`uri` is invalid: {reason}.")))
}

fn uri_taken() -> Problem {
    Problem::new(
        ProblemKind::UriTaken,
        "Another resource has the URI in `uri`; choose another one. Nothing was stored.",
    )
}

fn in_use() -> Problem {
    Problem::new(
        ProblemKind::PictureInUse,
        "A template or an NPC uses this picture, as its avatar or in its prompt. Remove it there first.",
    )
}
