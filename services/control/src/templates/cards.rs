//! `/v1/templates/import` and `/v1/templates/{id}/export`: templates as character cards, in JSON or inside a PNG.
//! Never: a template without the picture that it came in, or a picture without its template.

mod png;
#[cfg(test)]
mod tests;
mod v2;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_protocol::id::{PictureId, TemplateId};
use switchboard_runtime::problem::{self, Path, Problem, Query, RawBody};
use switchboard_store::{NewPicture, PictureWrite, Template};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

pub(crate) use v2::misplaced;

use super::{shape::ShownTemplate, written};
use crate::{
    Control,
    access::{Acting, Author, Reader},
    document::Unambiguous,
    error::{ControlError, no_objects},
    once::{Made, Once},
    pictures::{self, PictureBytes},
    precondition,
};

/// Where cards are sent.
pub(crate) const PATH: &str = "/v1/templates/import";
/// The largest card, in bytes of JSON: as any other document.
const LARGEST_CARD: usize = 1024 * 1024;
/// The largest body, in bytes: a picture, with a card in Base64.
pub(crate) const LARGEST_BYTES: usize = pictures::LARGEST_BYTES + LARGEST_CARD / 3 * 4 + 1024;
const PNG: &str = "image/png";

/// A Character Card V2 (`chara_card_v2`).
#[derive(Serialize, ToSchema)]
pub(crate) struct CharacterCard {
    /// Which specification it keeps: `chara_card_v2`.
    #[schema(pattern = "^chara_card_v2$", example = "chara_card_v2")]
    spec: String,
    /// Which version of it: `2.0`.
    #[schema(pattern = "^2\\.0$", example = "2.0")]
    spec_version: String,
    /// The character, as the specification says; docs/settings.md says what of it becomes what.
    #[schema(value_type = Object)]
    data: Map<String, Value>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    /// As what it is exported; a Character Card V2 when not given.
    #[param(inline, example = "card_v2")]
    #[expect(dead_code, reason = "there is one format so far")]
    format: Option<Format>,
}

/// As what a template is exported.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = "card_v2")]
#[serde(rename_all = "snake_case")]
enum Format {
    /// A Character Card V2.
    CardV2,
}

/// Makes a template from a Character Card V2: the card as JSON, or a PNG that has it inside and becomes the avatar.
#[utoipa::path(
    post, path = "/v1/templates/import", tag = "Templates", operation_id = "importTemplate",
    request_body(content((CharacterCard = "application/json"), (inline(PictureBytes) = "image/png")), description = "The card, 1 MiB at most, or a PNG of 10 MiB at most with the card as Base64 in a `tEXt` chunk `chara`. Which of them it is, is read from its first bytes."),
    responses((status = 201, body = ShownTemplate, description = "It is made", headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "broken_card", "broken_picture", "picture_too_large", "prompt_name_taken", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn import(
    Author(author): Author,
    Acting(control): Acting,
    Once(ticket, RawBody(body)): Once<RawBody>,
) -> Result<Response, ControlError> {
    let (card, picture) = if png::is_png(&body) {
        let (card, picture) = png::taken_out(&body, LARGEST_CARD)?;
        (parsed(&card.into())?, Some(picture))
    } else if body.len() > LARGEST_CARD {
        return Err(problem::body_too_large().into());
    } else {
        (parsed(&body)?, None)
    };
    let mut settings = v2::settings(card)?;
    let picture = picture
        .map(|bytes| avatar(&settings.name, bytes))
        .transpose()?;
    let id = TemplateId::from_uuid(Uuid::now_v7());
    if let Some(picture) = &picture {
        settings.avatar = Some(picture.id);
    }
    let placed = match picture {
        Some(picture) => Some(control.store.place_picture(author, picture).await?),
        None => None,
    };
    let added = async {
        let mut creation = ticket.begin(&control.store, author).await?;
        if let Some(placed) = &placed {
            // It is read under a URI that its id is part of, which nobody else has.
            match creation.add_picture(author, placed).await? {
                PictureWrite::Written(_) => {}
                PictureWrite::UriTaken => return Err(problem::internal().into()),
            }
        }
        let write = creation.create_template(author, id, &settings).await?;
        let template = written(write, &settings).map_err(v2::in_card)?;
        Ok::<_, ControlError>((creation, template))
    };
    let (creation, template) = match &placed {
        Some(placed) => placed.kept_if(added.await).await?,
        None => added.await?,
    };
    let etag = precondition::etag(template.version);
    let made = Made::new(&ShownTemplate::from(template))
        .at(format!("/v1/templates/{id}"))
        .tagged(etag);
    let response = ticket.commit(creation, made).await?;
    tracing::info!(owner = %author, template.id = %id, "a template was made from a character card");
    control.prompts_changed(author).await;
    if placed.is_some() {
        control.resources_changed(author, None).await;
    }
    Ok(response)
}

/// Shows a template as a Character Card V2: as JSON, or with `Accept: image/png` inside the PNG that is its avatar.
#[utoipa::path(
    get, path = "/v1/templates/{id}/export", tag = "Templates", operation_id = "exportTemplate",
    params(("id" = TemplateId, Path, description = "The template"), Export),
    responses((status = 200, description = "The card", content((CharacterCard = "application/json"), (inline(PictureBytes) = "image/png")))),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "no_png_avatar", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn export(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(_): Query<Export>,
    headers: HeaderMap,
) -> Result<Response, ControlError> {
    let template = control.templates().find(reader, &id).await?;
    let card = v2::card(&template.settings);
    let vary = [(header::VARY, "Accept")];
    if !wants_png(&headers) {
        return Ok((vary, axum::Json(card)).into_response());
    }
    let picture = portrait(&control, &template).await?;
    let card = serde_json::to_vec(&card).unwrap_or_default();
    let picture = png::put_in(&picture, &card).map_err(|_| no_png_avatar())?;
    let kind = [
        (header::CONTENT_TYPE, PNG),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((vary, kind, picture).into_response())
}

/// The bytes of the avatar.
async fn portrait(control: &Control, template: &Template) -> Result<bytes::Bytes, ControlError> {
    let avatar = template.settings.avatar.ok_or_else(no_png_avatar)?;
    let objects = control.store.objects().ok_or_else(no_objects)?;
    let picture = control.store.picture(template.owner, avatar).await?;
    let picture = picture
        .filter(|picture| picture.mime_type == PNG)
        .ok_or_else(no_png_avatar)?;
    Ok(objects.get(&picture.key()).await?)
}

fn parsed(body: &bytes::Bytes) -> Result<Value, Problem> {
    problem::parse(body).map(|Unambiguous(card)| card)
}

/// The picture of a card, about to be stored.
fn avatar(name: &str, bytes: Vec<u8>) -> Result<NewPicture, Problem> {
    let facts = pictures::facts(&bytes)?;
    Ok(NewPicture {
        id: PictureId::from_uuid(Uuid::now_v7()),
        name: name.to_owned(),
        uri: None,
        mime_type: facts.mime_type,
        width: facts.width,
        height: facts.height,
        bytes: bytes.into(),
    })
}

/// Whether a PNG is asked for, and JSON is not.
fn wants_png(headers: &HeaderMap) -> bool {
    let accepts = |wanted: &str| {
        let accepted = headers.get_all(header::ACCEPT).iter();
        accepted
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|kind| kind.split(';').next().unwrap_or_default().trim())
            .any(|kind| kind.eq_ignore_ascii_case(wanted))
    };
    accepts(PNG) && !accepts("application/json") && !accepts("application/*")
}

fn no_png_avatar() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "no_png_avatar",
        "No PNG as avatar",
        "A card is put into the PNG that is the template's avatar, and this template has none, or not a whole one; \
         ask for the card as JSON, or give the template such an avatar.",
    )
}
