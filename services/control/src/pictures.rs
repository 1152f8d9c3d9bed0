//! `/v1/pictures`: pictures, sent and read as their bytes.
//! Never: a type believed because the sender names it.

mod header_facts;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{OrgId, PictureId};
use switchboard_runtime::{
    paging::{Cursor, Limit, List, Paging},
    problem::{Path, Problem, Query, RawBody},
};
use switchboard_store::{
    NewPicture, Objects, Owner, Picture, PictureRemoval, PictureWrite, UriTemplate,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Author, Reader},
    content::Content,
    error::{ControlError, no_objects},
    label::Label,
    memories::refuse_own_scheme,
    once::{Made, Once},
};

pub(crate) use header_facts::read as facts;

/// Where pictures are sent.
pub(crate) const PATH: &str = "/v1/pictures";
/// The largest picture, in bytes. Protects memory: a picture is held whole while it is read.
pub(crate) const LARGEST_BYTES: usize = 10 * 1024 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upload {
    /// What people call it; its id when not given.
    #[param(example = "Bello")]
    name: Option<Label>,
    /// Where agents read it, an absolute URI without expressions; by its id when not given.
    #[param(min_length = 1, max_length = 512, example = "bello://portrait")]
    uri: Option<String>,
}

/// A picture as it is shown.
#[derive(Serialize, ToSchema)]
#[schema(as = Picture)]
pub(crate) struct ShownPicture {
    /// Its id.
    id: PictureId,
    /// Whose it is; null when it is public.
    org_id: Option<OrgId>,
    /// What people call it.
    #[schema(min_length = 1, max_length = 100, example = "Bello")]
    name: String,
    /// Where agents read it.
    #[schema(max_length = 512, example = "bello://portrait")]
    uri: String,
    /// What its bytes are, whatever the sender called them.
    #[schema(pattern = "^image/(png|jpeg|gif|webp)$", example = "image/png")]
    mime_type: String,
    /// In pixels.
    #[schema(minimum = 1, maximum = 64_000_000, example = 640)]
    width: i32,
    /// In pixels.
    #[schema(minimum = 1, maximum = 64_000_000, example = 480)]
    height: i32,
    /// How many bytes it has.
    #[schema(minimum = 1, maximum = 10_485_760, example = 4711)]
    size_bytes: i64,
    /// Of the bytes, in hexadecimal digits.
    #[schema(
        pattern = "^[0-9a-f]{64}$",
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )]
    sha256: String,
    /// When it was sent.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
}

/// The bytes of a picture.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary, min_length = 1)]
#[expect(dead_code, reason = "how a picture travels, for the document")]
pub(crate) struct PictureBytes(Vec<u8>);

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Pictures {
    /// In the order of their sending.
    #[schema(max_items = 200)]
    pictures: Vec<ShownPicture>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

impl From<Picture> for ShownPicture {
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

/// Stores a picture; the body is the picture itself, 10 MiB at most.
#[utoipa::path(
    post, path = "/v1/pictures", tag = "Pictures", operation_id = "addPicture",
    params(Upload),
    request_body(content = inline(PictureBytes), content_type = "application/octet-stream", description = "A PNG, JPEG, GIF or WebP picture. What it is, is read from its bytes; any Content-Type is taken."),
    responses((status = 201, body = ShownPicture, description = "It is stored", headers(("Location" = String, description = "Where it is")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "uri_taken", "unsupported_picture", "broken_picture", "picture_too_large", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Author(author): Author,
    Acting(control): Acting,
    Query(upload): Query<Upload>,
    Once(ticket, RawBody(bytes)): Once<RawBody>,
) -> Result<Response, ControlError> {
    control.place_for_pictures()?;
    let facts = facts(&bytes)?;
    let id = PictureId::from_uuid(Uuid::now_v7());
    let name = upload
        .name
        .map_or_else(|| id.to_string(), |name| name.as_str().to_owned());
    let new = NewPicture {
        id,
        name,
        uri: upload.uri.as_deref().map(checked_uri).transpose()?,
        mime_type: facts.mime_type,
        width: facts.width,
        height: facts.height,
        bytes,
    };
    let placed = control.store.place_picture(author, new).await?;
    let added = async {
        let mut creation = ticket.begin(&control.store, author).await?;
        match creation.add_picture(author, &placed).await? {
            PictureWrite::Written(picture) => Ok((creation, *picture)),
            PictureWrite::UriTaken => Err(ControlError::from(uri_taken())),
        }
    };
    let (creation, picture) = placed.kept_if(added.await).await?;
    let uri = picture.uri.clone();
    let made = Made::new(&ShownPicture::from(picture)).at(format!("{PATH}/{id}"));
    let response = ticket.commit(creation, made).await?;
    tracing::info!(owner = %author, picture.id = %id, "a picture was added");
    control.resources_changed(author, Some(uri)).await;
    Ok(response)
}

/// Lists own pictures and public ones.
#[utoipa::path(
    get, path = "/v1/pictures", tag = "Pictures", operation_id = "listPictures",
    params(Paging),
    responses((status = 200, body = Pictures, description = "A page of pictures")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Pictures>, ControlError> {
    control.place_for_pictures()?;
    let limit = Limit::new(paging.limit)?;
    let list = List::of("/v1/pictures", reader);
    let after = list.after(paging.cursor)?;
    let found = control.store.pictures(reader, after, limit.probe()).await?;
    let (page, next_cursor) = limit.cut(found, |picture| list.behind(picture.id));
    Ok(axum::Json(Pictures {
        pictures: page.into_iter().map(ShownPicture::from).collect(),
        next_cursor,
    }))
}

/// Shows what is known of a picture.
#[utoipa::path(
    get, path = "/v1/pictures/{id}", tag = "Pictures", operation_id = "getPicture",
    params(("id" = PictureId, Path, description = "The picture")),
    responses((status = 200, body = ShownPicture, description = "The picture, without its bytes")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<axum::Json<ShownPicture>, ControlError> {
    control.place_for_pictures()?;
    Ok(axum::Json(
        control.pictures().find(reader, &id).await?.into(),
    ))
}

/// Shows the picture itself; what is under an id never changes, so `If-None-Match` with its ETag answers 304.
#[utoipa::path(
    get, path = "/v1/pictures/{id}/content", tag = "Pictures", operation_id = "getPictureContent",
    params(("id" = PictureId, Path, description = "The picture")),
    responses(
        (status = 200, description = "The bytes", content((inline(PictureBytes) = "image/png"), (inline(PictureBytes) = "image/jpeg"), (inline(PictureBytes) = "image/gif"), (inline(PictureBytes) = "image/webp")), headers(("ETag" = String, description = "The hash of the bytes"))),
        (status = 206, description = "The part that was asked for with `Range`", content((inline(PictureBytes) = "image/png"), (inline(PictureBytes) = "image/jpeg"), (inline(PictureBytes) = "image/gif"), (inline(PictureBytes) = "image/webp")), headers(("Content-Range" = String, description = "Which part it is"))),
        (status = 304, description = "The caller has them"),
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
    let objects = control.place_for_pictures()?;
    let picture = control.pictures().find(reader, &id).await?;
    let content = Content {
        sha256: picture.sha256_hex(),
        mime_type: &picture.mime_type,
        // What is under an id never changes.
        cache: "private, max-age=31536000, immutable",
        key: picture.key(),
    };
    content.answer(&headers, objects).await
}

/// Removes a picture that no template shows.
#[utoipa::path(
    delete, path = "/v1/pictures/{id}", tag = "Pictures", operation_id = "removePicture",
    params(("id" = PictureId, Path, description = "The picture")),
    responses((status = 204, description = "It is gone")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "picture_in_use", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn remove(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    control.place_for_pictures()?;
    let unknown = || ControlError::unknown("picture", &id);
    let picture: PictureId = id.parse().map_err(|_| unknown())?;
    match control.pictures().remove(author, picture).await? {
        PictureRemoval::Removed => {}
        PictureRemoval::Unknown => return Err(unknown()),
        PictureRemoval::InUse => return Err(in_use().into()),
    }
    tracing::info!(owner = %author, picture.id = %picture, "a picture was removed");
    Ok(StatusCode::NO_CONTENT)
}

impl Control {
    fn place_for_pictures(&self) -> Result<&Objects, Problem> {
        self.store.objects().ok_or_else(no_objects)
    }

    const fn pictures(&self) -> PictureWriter<'_> {
        PictureWriter { control: self }
    }
}

/// Finds pictures, and removes them.
struct PictureWriter<'a> {
    control: &'a Control,
}

impl PictureWriter<'_> {
    async fn find(&self, reader: Owner, id: &str) -> Result<Picture, ControlError> {
        let unknown = || ControlError::unknown("picture", id);
        let id: PictureId = id.parse().map_err(|_| unknown())?;
        let found = self.control.store.picture(reader, id).await?;
        found.ok_or_else(unknown)
    }

    async fn remove(&self, author: Owner, id: PictureId) -> Result<PictureRemoval, ControlError> {
        let removal = self.control.store.delete_picture(author, id).await?;
        if matches!(removal, PictureRemoval::Removed) {
            self.control.resources_changed(author, None).await;
        }
        Ok(removal)
    }
}

fn checked_uri(text: &str) -> Result<UriTemplate, Problem> {
    let parsed = UriTemplate::parse_plain(text).map_err(|error| error.to_string());
    let checked = parsed.and_then(|uri| refuse_own_scheme(text).map(|()| uri));
    checked.map_err(|reason| Problem::invalid_query(format!("`uri` does not do: {reason}.")))
}

fn uri_taken() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "uri_taken",
        "URI taken",
        "Something else is read under the URI in `uri`; choose another, and nothing was stored.",
    )
}

fn in_use() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "picture_in_use",
        "Picture in use",
        "A template or an NPC shows this picture, as its avatar or in its prompt; take it out of there first.",
    )
}
