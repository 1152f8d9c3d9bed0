//! `/v1/templates`: the templates of characters.
//!
//! Invariant: a template changes only if `If-Match` has its current version.

mod card_png;
#[cfg(test)]
mod card_tests;
mod card_v2;
pub(crate) mod cards;
pub(crate) mod rules;
mod schema;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use switchboard_catalog::{MAX_ATTACHED_BYTES, TemplateSettings};
use switchboard_protocol::id::{SkillsBookId, TemplateId, VoiceId};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Json, Path, Problem, ProblemKind, Query},
    quota::Quota,
};
use switchboard_store::{Owner, Template, TemplateRemoval, TemplateWrite};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, Reader, Writer, operator_only},
        documents::{StrictJson, invalid},
        error::ControlError,
        etag,
        idempotency::{Created, Idempotent},
        response::JsonResponse,
    },
};
use schema::TemplateView;
pub(crate) use schema::{parse_settings, picture_pointer};

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Templates {
    /// Oldest first.
    #[schema(max_items = 200)]
    templates: Vec<TemplateView>,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

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
    /// `public` lists public templates only. Default: all templates that the caller can read.
    #[param(inline, example = "public")]
    visibility: Option<VisibilityFilter>,
}

/// A subset of the templates that the caller can read.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = "public")]
#[serde(rename_all = "lowercase")]
enum VisibilityFilter {
    /// Templates that every organisation can read.
    Public,
}

/// Creates a template.
#[utoipa::path(
    post, path = "/v1/templates", tag = "Templates", operation_id = "createTemplate",
    request_body(content = schema::NewTemplate),
    responses((status = 201, body = TemplateView, description = "Created", headers(("Location" = String, description = "Path of the created resource"), ("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "operator_only", "prompt_name_taken", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Idempotent(guard, Json(StrictJson(document))): Idempotent<Json<StrictJson>>,
) -> Result<Response, ControlError> {
    let settings = schema::parse_new(document, owner)?;
    let id = TemplateId::from_uuid(Uuid::now_v7());
    control.admit(owner, &[(Quota::Settings, 1)]).await?;
    let mut creation = guard.begin(&control.store, owner).await?;
    let write = creation.create_template(owner, id, &settings).await?;
    let template = into_template(write, &settings)?;
    let response = guard.commit(creation, created(template)).await?;
    tracing::info!(owner = %owner, template.id = %id, "template created");
    control.prompts_changed(owner).await;
    control.setting_changed(owner, "template", id);
    Ok(response)
}

/// Lists the templates of the caller, and public ones.
#[utoipa::path(
    get, path = "/v1/templates", tag = "Templates", operation_id = "listTemplates",
    params(ListParams),
    responses((status = 200, body = Templates, description = "A page of templates")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    let public_only = params.visibility.is_some();
    let list = List::new("/v1/templates", reader);
    let after = list.position(params.cursor)?;
    let store = &control.store;
    let page = store.templates(reader, public_only, after, limit.count());
    let page = page.await?;
    let next_cursor = page.next_page_after().map(|last| list.cursor(last.id));
    let templates = page.elements.into_iter();
    let templates = Templates {
        templates: templates.map(TemplateView::from).collect(),
        next_cursor,
    };
    Ok(JsonResponse::page(&control, reader, &templates)?)
}

/// Gets a template.
#[utoipa::path(
    get, path = "/v1/templates/{id}", tag = "Templates", operation_id = "getTemplate",
    params(("id" = TemplateId, Path, description = "The template")),
    responses((status = 200, body = TemplateView, description = "The template", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    Ok(control.templates().find(reader, &id).await?.into())
}

/// Updates a template with a JSON merge patch (RFC 7396).
///
/// Null resets a member; a patch without effect creates no version.
#[utoipa::path(
    patch, path = "/v1/templates/{id}", tag = "Templates", operation_id = "updateTemplate",
    params(("id" = TemplateId, Path, description = "The template")),
    request_body(content = ref("#/components/schemas/TemplatePatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = TemplateView, description = "The updated template", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "prompt_name_taken", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn update(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(StrictJson(patch)): Json<StrictJson>,
) -> Result<JsonResponse, ControlError> {
    let templates = control.templates();
    let current = templates.find_own(owner, &id).await?;
    etag::require_version(&headers, current.version)?;
    let settings = schema::apply_patch(&current, patch)?;
    if settings == current.settings {
        return Ok(current.into());
    }
    let template = templates.replace(&current, &settings).await?;
    tracing::info!(owner = %owner, template.id = %template.id, template.version = template.version, "template updated");
    Ok(template.into())
}

/// Deletes a template and its memories.
#[utoipa::path(
    delete, path = "/v1/templates/{id}", tag = "Templates", operation_id = "deleteTemplate",
    params(("id" = TemplateId, Path, description = "The template")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "template_in_use", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn delete(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ControlError> {
    let templates = control.templates();
    let current = templates.find_own(owner, &id).await?;
    etag::require_version(&headers, current.version)?;
    templates.delete(&current).await?;
    tracing::info!(owner = %owner, template.id = %current.id, "template deleted");
    Ok(StatusCode::NO_CONTENT)
}

impl From<Template> for JsonResponse {
    fn from(template: Template) -> Self {
        let etag = etag::from_version(template.version);
        Self::ok(&TemplateView::from(template)).etag(etag)
    }
}

/// The response to a request that created this template.
fn created(template: Template) -> Created {
    let location = format!("/v1/templates/{}", template.id);
    let etag = etag::from_version(template.version);
    Created::new(&TemplateView::from(template))
        .location(location)
        .etag(etag)
}

impl Control {
    pub(crate) const fn templates(&self) -> TemplateWriter<'_> {
        TemplateWriter { control: self }
    }
}

/// Finds, changes and deletes templates. Every write publishes the change to the other nodes.
pub(crate) struct TemplateWriter<'a> {
    control: &'a Control,
}

impl TemplateWriter<'_> {
    /// A template that this owner can read.
    pub(crate) async fn find(&self, reader: Owner, id: &str) -> Result<Template, ControlError> {
        let not_found = || ControlError::not_found("template", id);
        let id: TemplateId = id.parse().map_err(|_| not_found())?;
        let found = self.control.store.template(reader, id).await?;
        found.ok_or_else(not_found)
    }

    /// A template that this owner can change.
    pub(crate) async fn find_own(&self, owner: Owner, id: &str) -> Result<Template, ControlError> {
        let template = self.find(owner, id).await?;
        if template.owner == owner {
            return Ok(template);
        }
        Err(operator_only("Only the operator may change public resources.").into())
    }

    async fn replace(
        &self,
        current: &Template,
        settings: &TemplateSettings,
    ) -> Result<Template, ControlError> {
        let (owner, id, version) = (current.owner, current.id, current.version);
        let store = &self.control.store;
        let write = store.replace_template(owner, id, version, settings).await?;
        let template = into_template(write, settings)?;
        self.control.prompts_changed(owner).await;
        self.control.setting_changed(owner, "template", id);
        Ok(template)
    }

    async fn delete(&self, current: &Template) -> Result<(), ControlError> {
        let (owner, id, version) = (current.owner, current.id, current.version);
        let store = &self.control.store;
        match store.delete_template(owner, id, version).await? {
            TemplateRemoval::Removed => {}
            TemplateRemoval::Stale => return Err(etag::precondition_failed().into()),
            TemplateRemoval::InUse => return Err(in_use(id).into()),
        }
        self.control.prompts_changed(owner).await;
        // Its memories were deleted, too.
        self.control.resources_changed(owner, None).await;
        self.control.setting_changed(owner, "template", id);
        Ok(())
    }
}

fn in_use(id: TemplateId) -> Problem {
    Problem::new(
        ProblemKind::TemplateInUse,
        format!(
            "NPCs use {id}; GET /v1/npcs?template_id={id} lists your own. Change or delete them first."
        ),
    )
}

/// The written template, or the problem with the settings.
fn into_template(
    write: TemplateWrite,
    settings: &TemplateSettings,
) -> Result<Template, ControlError> {
    match write {
        TemplateWrite::Written(template) => Ok(*template),
        TemplateWrite::Stale => Err(etag::precondition_failed().into()),
        TemplateWrite::NameTaken => Err(Problem::new(
            ProblemKind::PromptNameTaken,
            "Another template has a prompt of this name; choose another one for `/prompt/name`.",
        )
        .at("/prompt/name")
        .into()),
        TemplateWrite::UnknownPicture(picture) => {
            let pointer = picture_pointer(settings, picture);
            let detail = format!("`{pointer}` is {picture}, and there is no such picture.");
            Err(invalid(&pointer, detail).into())
        }
        TemplateWrite::TooManyBytes(bytes) => {
            let detail = format!(
                "The pictures in `/prompt/messages` have {bytes} bytes in total; the limit is {MAX_ATTACHED_BYTES}, \
                 since a prompt is sent as one response. Use smaller or fewer pictures."
            );
            Err(invalid("/prompt/messages", detail).into())
        }
        TemplateWrite::UnknownSkillsBook(book) => {
            Err(unknown_book("", &settings.skills_book_ids, book).into())
        }
        TemplateWrite::UnknownVoice(voice) => Err(unknown_voice("", voice).into()),
    }
}

/// The problem with settings, at the pointer `base` in the body, that have the id of no voice.
pub(crate) fn unknown_voice(base: &str, voice: VoiceId) -> Problem {
    let pointer = format!("{base}/voice/voice_id");
    let detail = format!("`{pointer}` is {voice}, and there is no such voice.");
    invalid(&pointer, detail)
}

/// The problem with settings, at the pointer `base` in the body, that have the id of
/// no skills book.
pub(crate) fn unknown_book(base: &str, ids: &[SkillsBookId], book: SkillsBookId) -> Problem {
    let index = ids.iter().position(|id| *id == book);
    let pointer = format!("{base}/skills_book_ids/{}", index.unwrap_or_default());
    let detail = format!("`{pointer}` is {book}, and there is no such skills book.");
    invalid(&pointer, detail)
}
