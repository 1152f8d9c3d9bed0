//! `/v1/templates`: what characters are made from.
//! Never: a change by somebody who has not seen the version they change.

pub(crate) mod cards;
pub(crate) mod rules;
mod shape;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, Response},
};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{SkillsBookId, TemplateId, VoiceId};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Json, Path, Problem, Query},
};
use switchboard_store::{
    Owner, SHOWN_LIMIT_BYTES, Template, TemplateRemoval, TemplateSettings, TemplateWrite,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Author, Reader, forbidden},
    document::{Unambiguous, invalid},
    error::ControlError,
    once::{Made, Once},
    precondition,
};
use shape::ShownTemplate;
pub(crate) use shape::{place_of, read_at};

/// A template, and its version as an entity tag.
type Shown = (
    StatusCode,
    AppendHeaders<Vec<(HeaderName, String)>>,
    axum::Json<ShownTemplate>,
);

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Templates {
    /// In the order of their making.
    #[schema(max_items = 200)]
    templates: Vec<ShownTemplate>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// The most elements of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the page before.
    cursor: Option<Cursor>,
    /// Only public ones, when it says so; else all that the caller sees.
    #[param(inline, example = "public")]
    visibility: Option<OnlyPublic>,
}

/// A part of what the caller sees.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = "public")]
#[serde(rename_all = "lowercase")]
enum OnlyPublic {
    /// What every organisation reads.
    Public,
}

/// Makes a template.
#[utoipa::path(
    post, path = "/v1/templates", tag = "Templates", operation_id = "createTemplate",
    request_body(content = shape::NewTemplate),
    responses((status = 201, body = ShownTemplate, description = "It is made", headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "operator_only", "prompt_name_taken", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Author(author): Author,
    Acting(control): Acting,
    Once(ticket, Json(Unambiguous(document))): Once<Json<Unambiguous>>,
) -> Result<Response, ControlError> {
    let settings = shape::created(document, author)?;
    let id = TemplateId::from_uuid(Uuid::now_v7());
    let mut creation = ticket.begin(&control.store, author).await?;
    let write = creation.create_template(author, id, &settings).await?;
    let template = written(write, &settings)?;
    let etag = precondition::etag(template.version);
    let made = Made::new(&ShownTemplate::from(template))
        .at(format!("/v1/templates/{id}"))
        .tagged(etag);
    let response = ticket.commit(creation, made).await?;
    tracing::info!(owner = %author, template.id = %id, "a template was created");
    control.prompts_changed(author).await;
    Ok(response)
}

/// Lists own templates and public ones.
#[utoipa::path(
    get, path = "/v1/templates", tag = "Templates", operation_id = "listTemplates",
    params(Listing),
    responses((status = 200, body = Templates, description = "A page of templates")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(listing): Query<Listing>,
) -> Result<axum::Json<Templates>, ControlError> {
    let limit = Limit::new(listing.limit)?;
    let public_only = listing.visibility.is_some();
    let list = List::of("/v1/templates", reader);
    let after = list.after(listing.cursor)?;
    let store = &control.store;
    let page = store.templates(reader, public_only, after, limit.count());
    let page = page.await?;
    let next_cursor = page.continues_behind().map(|last| list.behind(last.id));
    let templates = page.elements.into_iter();
    Ok(axum::Json(Templates {
        templates: templates.map(ShownTemplate::from).collect(),
        next_cursor,
    }))
}

/// Shows a template.
#[utoipa::path(
    get, path = "/v1/templates/{id}", tag = "Templates", operation_id = "getTemplate",
    params(("id" = TemplateId, Path, description = "The template")),
    responses((status = 200, body = ShownTemplate, description = "The template", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<Shown, ControlError> {
    Ok(shown(control.templates().find(reader, &id).await?))
}

/// Changes what a merge patch (RFC 7396) names; null removes. What changes nothing makes no version.
#[utoipa::path(
    patch, path = "/v1/templates/{id}", tag = "Templates", operation_id = "changeTemplate",
    params(("id" = TemplateId, Path, description = "The template")),
    request_body(content = ref("#/components/schemas/TemplatePatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = ShownTemplate, description = "The template as it is now", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "prompt_name_taken", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn change(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(Unambiguous(patch)): Json<Unambiguous>,
) -> Result<Shown, ControlError> {
    let templates = control.templates();
    let current = templates.find_own(author, &id).await?;
    precondition::require(&headers, current.version)?;
    let settings = shape::patched(&current, patch)?;
    if settings == current.settings {
        return Ok(shown(current));
    }
    let template = templates.replace(&current, &settings).await?;
    tracing::info!(owner = %author, template.id = %template.id, template.version = template.version, "a template was changed");
    Ok(shown(template))
}

/// Removes a template and its memories.
#[utoipa::path(
    delete, path = "/v1/templates/{id}", tag = "Templates", operation_id = "removeTemplate",
    params(("id" = TemplateId, Path, description = "The template")),
    responses((status = 204, description = "It is gone")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "template_in_use", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn remove(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ControlError> {
    let templates = control.templates();
    let current = templates.find_own(author, &id).await?;
    precondition::require(&headers, current.version)?;
    templates.remove(&current).await?;
    tracing::info!(owner = %author, template.id = %current.id, "a template was removed");
    Ok(StatusCode::NO_CONTENT)
}

fn shown(template: Template) -> Shown {
    let headers = AppendHeaders(vec![(header::ETAG, precondition::etag(template.version))]);
    (StatusCode::OK, headers, axum::Json(template.into()))
}

impl Control {
    pub(crate) const fn templates(&self) -> TemplateWriter<'_> {
        TemplateWriter { control: self }
    }
}

/// Finds templates, and is the one way in which those change that are there.
pub(crate) struct TemplateWriter<'a> {
    control: &'a Control,
}

impl TemplateWriter<'_> {
    /// A template that this reader sees.
    pub(crate) async fn find(&self, reader: Owner, id: &str) -> Result<Template, ControlError> {
        let unknown = || ControlError::unknown("template", id);
        let id: TemplateId = id.parse().map_err(|_| unknown())?;
        let found = self.control.store.template(reader, id).await?;
        found.ok_or_else(unknown)
    }

    /// A template that this author may change.
    pub(crate) async fn find_own(&self, author: Owner, id: &str) -> Result<Template, ControlError> {
        let template = self.find(author, id).await?;
        if template.owner == author {
            return Ok(template);
        }
        Err(forbidden("Only the operator may change what is public.").into())
    }

    async fn replace(
        &self,
        current: &Template,
        settings: &TemplateSettings,
    ) -> Result<Template, ControlError> {
        let (owner, id, version) = (current.owner, current.id, current.version);
        let store = &self.control.store;
        let write = store.replace_template(owner, id, version, settings).await?;
        let template = written(write, settings)?;
        self.control.prompts_changed(owner).await;
        Ok(template)
    }

    async fn remove(&self, current: &Template) -> Result<(), ControlError> {
        let (owner, id, version) = (current.owner, current.id, current.version);
        let store = &self.control.store;
        match store.delete_template(owner, id, version).await? {
            TemplateRemoval::Removed => {}
            TemplateRemoval::Stale => return Err(precondition::stale().into()),
            TemplateRemoval::InUse => return Err(in_use(id).into()),
        }
        self.control.prompts_changed(owner).await;
        // Its memories went with it.
        self.control.resources_changed(owner, None).await;
        Ok(())
    }
}

fn in_use(id: TemplateId) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "template_in_use",
        "Template in use",
        format!(
            "NPCs are made from {id}; GET /v1/npcs?template_id={id} lists your own. Change or remove them first."
        ),
    )
}

fn written(write: TemplateWrite, settings: &TemplateSettings) -> Result<Template, ControlError> {
    match write {
        TemplateWrite::Written(template) => Ok(*template),
        TemplateWrite::Stale => Err(precondition::stale().into()),
        TemplateWrite::NameTaken => Err(Problem::new(
            StatusCode::CONFLICT,
            "prompt_name_taken",
            "Prompt name taken",
            "Another template has this name as a prompt; choose another for `/prompt/name`.",
        )
        .with("pointer", "/prompt/name")
        .into()),
        TemplateWrite::UnknownPicture(picture) => {
            let pointer = place_of(settings, picture);
            let detail = format!("`{pointer}` names {picture}, and there is no such picture.");
            Err(invalid(&pointer, detail).into())
        }
        TemplateWrite::TooManyBytes(bytes) => {
            let detail = format!(
                "The pictures in `/prompt/messages` have {bytes} bytes together; {SHOWN_LIMIT_BYTES} is the limit, \
                 since a prompt is read as one answer. Show smaller or fewer ones."
            );
            Err(invalid("/prompt/messages", detail).into())
        }
        TemplateWrite::UnknownSkillsBook(book) => {
            Err(unknown_book("", &settings.skills_book_ids, book).into())
        }
        TemplateWrite::UnknownVoice(voice) => Err(unknown_voice("", voice).into()),
    }
}

/// The refusal of settings, which stand at `at` in the body, that name a voice which there is not.
pub(crate) fn unknown_voice(at: &str, unknown: VoiceId) -> Problem {
    let pointer = format!("{at}/voice/voice_id");
    let detail = format!("`{pointer}` names {unknown}, and there is no such voice.");
    invalid(&pointer, detail)
}

/// The refusal of settings, which stand at `at` in the body, that name a book which there is not.
pub(crate) fn unknown_book(at: &str, named: &[SkillsBookId], unknown: SkillsBookId) -> Problem {
    let place = named.iter().position(|id| *id == unknown);
    let pointer = format!("{at}/skills_book_ids/{}", place.unwrap_or_default());
    let detail = format!("`{pointer}` names {unknown}, and there is no such skills book.");
    invalid(&pointer, detail)
}
