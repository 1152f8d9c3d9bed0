//! `/v1/pictures`: pictures, sent and read as their bytes.
//! Never: a type believed because the sender names it.

mod header_facts;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{OrgId, PictureId};
use switchboard_runtime::problem::{Path, Problem, Query, RawBody};
use switchboard_store::{
    NewPicture, Objects, Owner, Picture, PictureRemoval, PictureWrite, UriTemplate,
};
use uuid::Uuid;

use crate::{
    Control,
    access::{Author, Reader},
    error::{ControlError, no_objects},
    label::Label,
    memories::refuse_own_scheme,
    paging::{Limit, Paging},
};

/// Where pictures are sent.
pub(crate) const PATH: &str = "/v1/pictures";
/// The largest picture, in bytes. Protects memory: a picture is held whole while it is read.
pub(crate) const LARGEST_BYTES: usize = 10 * 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upload {
    /// What people call it; its id when not given.
    name: Option<Label>,
    /// Where agents read it; by its id when not given.
    uri: Option<String>,
}

/// A picture as it is shown.
#[derive(Serialize)]
pub(crate) struct ShownPicture {
    id: PictureId,
    /// Null when it is public.
    org_id: Option<OrgId>,
    name: String,
    uri: String,
    mime_type: String,
    width: i32,
    height: i32,
    size_bytes: i64,
    sha256: String,
    created_at: DateTime<Utc>,
}

/// A page of the list.
#[derive(Serialize)]
pub(crate) struct Pictures {
    pictures: Vec<ShownPicture>,
    next_cursor: Option<PictureId>,
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

pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    Author(author): Author,
    Query(upload): Query<Upload>,
    RawBody(bytes): RawBody,
) -> Result<Response, ControlError> {
    control.place_for_pictures()?;
    let facts = header_facts::read(&bytes)?;
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
    let picture = control.pictures().add(author, new).await?;
    tracing::info!(owner = %author, picture.id = %id, "a picture was added");
    let place = [(header::LOCATION, format!("{PATH}/{id}"))];
    let shown = axum::Json(ShownPicture::from(picture));
    Ok((StatusCode::CREATED, place, shown).into_response())
}

pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(paging): Query<Paging<PictureId>>,
) -> Result<axum::Json<Pictures>, ControlError> {
    control.place_for_pictures()?;
    let limit = Limit::new(paging.limit)?;
    let found = control
        .store
        .pictures(reader, paging.cursor, limit.probe())
        .await?;
    let (page, next_cursor) = limit.cut(found, |picture| picture.id);
    Ok(axum::Json(Pictures {
        pictures: page.into_iter().map(ShownPicture::from).collect(),
        next_cursor,
    }))
}

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

pub(crate) async fn content(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ControlError> {
    let objects = control.place_for_pictures()?;
    let picture = control.pictures().find(reader, &id).await?;
    let tag = format!("\"{}\"", picture.sha256_hex());
    let fixed = [
        // What is under an id never changes.
        (
            header::CACHE_CONTROL,
            "private, max-age=31536000, immutable".to_owned(),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::ETAG, tag.clone()),
    ];
    if headers
        .get(header::IF_NONE_MATCH)
        .and_then(|sent| sent.to_str().ok())
        == Some(tag.as_str())
    {
        return Ok((StatusCode::NOT_MODIFIED, fixed).into_response());
    }
    let bytes = objects.get(&picture.key()).await?;
    let mime_type = HeaderValue::from_str(&picture.mime_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    Ok((fixed, [(header::CONTENT_TYPE, mime_type)], bytes).into_response())
}

pub(crate) async fn remove(
    State(control): State<Arc<Control>>,
    Author(author): Author,
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

/// Finds pictures, and is the one way in which they change.
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

    async fn add(&self, author: Owner, picture: NewPicture) -> Result<Picture, ControlError> {
        match self.control.store.add_picture(author, picture).await? {
            PictureWrite::Written(picture) => {
                let uri = picture.uri.to_string();
                self.control.resources_changed(author, Some(uri)).await;
                Ok(*picture)
            }
            PictureWrite::UriTaken => Err(uri_taken().into()),
        }
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
    checked.map_err(|reason| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_query",
            "Invalid query",
            format!("`uri` does not do: {reason}."),
        )
    })
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
