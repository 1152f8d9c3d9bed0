//! `/v1/templates/import` and `/v1/templates/{id}/export`: templates as character
//! cards, in JSON or inside a PNG.
//!
//! Invariant: an imported PNG and its template are created in one transaction.
//! Invariant: an import holds no copy of its PNG beside the body, which the budget `http_bodies` charges to
//! the organisation before it is read.

use std::sync::Arc;

use axum::{
    BoxError,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_protocol::id::{PictureId, TemplateId};
use switchboard_runtime::{
    problem::{self, Path, Problem, ProblemKind, Query, RawBody},
    quota::Quota,
};
use switchboard_store::{NewPicture, ObjectKey, ObjectStream, Objects, PictureWrite, Template};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{
    card_png::{self, CardInserter},
    card_v2, created, into_template,
    schema::TemplateView,
};
use crate::{
    Control,
    http::{
        auth::{AuditActor, Reader, Writer},
        documents::StrictJson,
        error::{ControlError, objects_not_configured},
        idempotency::Idempotent,
    },
    resources::pictures::{self, PictureBytes},
};

/// The path of imports.
pub(crate) const PATH: &str = "/v1/templates/import";
/// The maximum size of a card as JSON, as of any other document.
const MAX_CARD_BYTES: usize = 1024 * 1024;
/// The maximum size of a body: a picture with a card in Base64.
pub(crate) const MAX_BYTES: usize = pictures::MAX_BYTES + MAX_CARD_BYTES / 3 * 4 + 1024;
const PNG: &str = "image/png";

/// A Character Card V2 (`chara_card_v2`).
#[derive(Serialize, ToSchema)]
pub(crate) struct CharacterCard {
    /// The specification: `chara_card_v2`.
    #[schema(pattern = "^chara_card_v2$", example = "chara_card_v2")]
    spec: String,
    /// The version of the specification: `2.0`.
    #[schema(pattern = "^2\\.0$", example = "2.0")]
    spec_version: String,
    /// The character as the specification defines it. docs/settings.md lists which
    /// member becomes which setting.
    #[schema(value_type = Object)]
    data: Map<String, Value>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportParams {
    /// The format. Default: Character Card V2.
    #[param(inline, example = "card_v2")]
    #[expect(dead_code, reason = "there is one format so far")]
    format: Option<ExportFormat>,
}

/// The format of an export.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = "card_v2")]
#[serde(rename_all = "snake_case")]
enum ExportFormat {
    /// Character Card V2.
    CardV2,
}

/// Creates a template from a Character Card V2.
///
/// The body is the card as JSON, or a PNG with the card inside, which becomes the avatar.
#[utoipa::path(
    post, path = "/v1/templates/import", tag = "Templates", operation_id = "importTemplate",
    request_body(content((CharacterCard = "application/json"), (inline(PictureBytes) = "image/png")), description = "The card, up to 1 MiB, or a PNG of up to 10 MiB with the card as Base64 in a `tEXt` chunk `chara`. The type is detected from the first bytes; `Content-Type` is ignored."),
    responses((status = 201, body = TemplateView, description = "Created", headers(("Location" = String, description = "Path of the created resource"), ("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "broken_card", "broken_picture", "picture_too_large", "prompt_name_taken", "objects_not_configured", "objects_unavailable", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn import(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Idempotent(guard, RawBody(body)): Idempotent<RawBody>,
) -> Result<Response, ControlError> {
    let (card, picture) = if card_png::is_png(&body) {
        let (card, picture) = card_png::extract_card(body, MAX_CARD_BYTES)?;
        (parse_json(&card.into())?, Some(picture))
    } else if body.len() > MAX_CARD_BYTES {
        return Err(problem::body_too_large(MAX_CARD_BYTES, Some(body.len() as u64)).into());
    } else {
        (parse_json(&body)?, None)
    };
    let mut settings = card_v2::parse_card(card)?;
    let picture = picture
        .map(|bytes| new_avatar(&settings.name, bytes))
        .transpose()?;
    let id = TemplateId::from_uuid(Uuid::now_v7());
    if let Some(picture) = &picture {
        settings.avatar = Some(picture.id);
    }
    let more = match &picture {
        Some(picture) => [
            (Quota::Settings, 2),
            (Quota::ObjectBytes, picture.bytes.len()),
        ],
        None => [(Quota::Settings, 1), (Quota::ObjectBytes, 0)],
    };
    control.admit(owner, &more).await?;
    let placed = match picture {
        Some(picture) => Some(control.store.upload_picture(owner, picture).await?),
        None => None,
    };
    let added = async {
        let mut creation = guard.begin(&control.store, owner).await?;
        if let Some(placed) = &placed {
            // Its URI contains its new id, so no other resource has this URI.
            match creation.add_picture(owner, placed).await? {
                PictureWrite::Written(_) => {}
                PictureWrite::UriTaken => return Err(problem::internal().into()),
            }
        }
        let write = creation.create_template(owner, id, &settings).await?;
        let template = into_template(write, &settings).map_err(card_v2::point_into_card)?;
        Ok::<_, ControlError>((creation, template))
    };
    let (creation, template) = match &placed {
        Some(placed) => placed.discard_on_error(added.await).await?,
        None => added.await?,
    };
    let response = guard.commit(creation, created(template)).await?;
    tracing::info!(owner = %owner, template.id = %id, "template imported from a character card");
    control.prompts_changed(owner).await;
    control.setting_changed(owner, "template", id);
    if placed.is_some() {
        control.resources_changed(owner, None).await;
    }
    Ok(response)
}

/// Exports a template as a Character Card V2.
///
/// The response is JSON or, with `Accept: image/png`, the PNG avatar with the card inside.
#[utoipa::path(
    get, path = "/v1/templates/{id}/export", tag = "Templates", operation_id = "exportTemplate",
    params(("id" = TemplateId, Path, description = "The template"), ExportParams),
    responses((status = 200, description = "The card", content((CharacterCard = "application/json"), (inline(PictureBytes) = "image/png")))),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "no_png_avatar", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn export(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(_): Query<ExportParams>,
    headers: HeaderMap,
) -> Result<Response, ControlError> {
    let template = control.templates().find(reader, &id).await?;
    let card = card_v2::to_card(&template.settings);
    let vary = [(header::VARY, "Accept")];
    if !accepts_png(&headers) {
        return Ok((vary, axum::Json(card)).into_response());
    }
    let avatar = avatar_png(&control, &template).await?;
    let objects = control.store.objects().ok_or_else(objects_not_configured)?;
    let card = serde_json::to_vec(&card).unwrap_or_default();
    let length = length_with_card(objects, &avatar, &card).await?;
    let headers = [
        (header::CONTENT_TYPE, PNG.to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    let parts = objects.stream(&avatar).await?;
    let body = with_card(parts, &card);
    Ok((vary, headers, body).into_response())
}

/// Reads a PNG once, to know that it is intact and how long it is with its card: the response has
/// begun when it is read again.
async fn length_with_card(
    objects: &Objects,
    picture: &ObjectKey,
    card: &[u8],
) -> Result<usize, ControlError> {
    let (mut inserter, mut out, mut length) = (CardInserter::new(card), Vec::new(), 0);
    let mut parts = objects.stream(picture).await?;
    while let Some(part) = parts.next().await? {
        let fed = inserter.feed(&part, &mut out);
        fed.map_err(|_| no_png_avatar())?;
        length += out.len();
        out.clear();
    }
    inserter.finish().map_err(|_| no_png_avatar())?;
    Ok(length)
}

/// The PNG with its card, part by part. An error ends the connection before the announced length.
fn with_card(parts: ObjectStream, card: &[u8]) -> Body {
    let start = (CardInserter::new(card), parts);
    let stream = futures_util::stream::try_unfold(start, async |(mut inserter, mut parts)| {
        let Some(part) = parts.next().await? else {
            return Ok::<_, BoxError>(None);
        };
        let mut out = Vec::new();
        let fed = inserter.feed(&part, &mut out);
        fed.map_err(|problem| problem.detail)?;
        Ok(Some((Bytes::from(out), (inserter, parts))))
    });
    Body::from_stream(stream)
}

/// The avatar, if it is a PNG.
async fn avatar_png(control: &Control, template: &Template) -> Result<ObjectKey, ControlError> {
    let avatar = template.settings.avatar.ok_or_else(no_png_avatar)?;
    let picture = control.store.picture(template.owner, avatar).await?;
    let picture = picture
        .filter(|picture| picture.mime_type == PNG)
        .ok_or_else(no_png_avatar)?;
    Ok(picture.key())
}

fn parse_json(body: &Bytes) -> Result<Value, Problem> {
    problem::parse_json(body).map(|StrictJson(card)| card)
}

/// The picture of a card, to be stored.
fn new_avatar(name: &str, bytes: Bytes) -> Result<NewPicture, Problem> {
    let image = pictures::read_image_info(&bytes)?;
    Ok(NewPicture {
        id: PictureId::from_uuid(Uuid::now_v7()),
        name: name.to_owned(),
        uri: None,
        mime_type: image.mime_type,
        width: image.width,
        height: image.height,
        bytes,
    })
}

/// Whether the client accepts PNG and does not accept JSON.
fn accepts_png(headers: &HeaderMap) -> bool {
    let accepts = |media_type: &str| {
        let accepted = headers.get_all(header::ACCEPT).iter();
        accepted
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|kind| kind.split(';').next().unwrap_or_default().trim())
            .any(|kind| kind.eq_ignore_ascii_case(media_type))
    };
    accepts(PNG) && !accepts("application/json") && !accepts("application/*")
}

fn no_png_avatar() -> Problem {
    Problem::new(
        ProblemKind::NoPngAvatar,
        "A card is exported inside the PNG avatar of its template. This template has no avatar that is an intact PNG; \
         export the card as JSON, or set such an avatar.",
    )
}
