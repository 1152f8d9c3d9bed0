//! `/v1/npcs`: the characters of an organisation, and their devices.
//!
//! Invariant: an NPC changes only if `If-Match` has its current version.

pub(crate) mod memories;
pub(crate) mod schema;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use switchboard_catalog::{NpcSettings, TemplateSettings};
use switchboard_protocol::id::{DeviceId, NpcId, OrgId, TemplateId};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Json, Path, Problem, ProblemKind, Query},
    quota::Quota,
};
use switchboard_store::{Npc, NpcFilter, NpcWrite, Owner, TenantTransaction};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireAdmin, RequireRead},
        documents::{StrictJson, invalid},
        error::ControlError,
        etag,
        idempotency::{Created, Idempotent},
        response::JsonResponse,
    },
    resources::templates,
};
use schema::NpcView;

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Npcs {
    /// Oldest first.
    #[schema(max_items = 200)]
    npcs: Vec<NpcView>,
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
    /// Only the NPC of this device.
    device_id: Option<DeviceId>,
    /// Only NPCs with this template.
    template_id: Option<TemplateId>,
}

/// Creates an NPC, with or without a template.
#[utoipa::path(
    post, path = "/v1/npcs", tag = "NPCs", operation_id = "createNpc",
    request_body(content = schema::NpcDocument),
    responses((status = 201, body = NpcView, description = "Created", headers(("Location" = String, description = "Path of the created resource"), ("ETag" = String, description = "Version of the NPC and its template, for `If-Match`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "device_taken", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Idempotent(guard, Json(StrictJson(document))): Idempotent<Json<StrictJson>>,
) -> Result<Response, ControlError> {
    let settings = schema::parse_new(&document)?;
    let effective = control.npcs().effective(caller.org, &settings).await?;
    control
        .admit(caller.org.into(), &[(Quota::Settings, 1)])
        .await?;
    let mut creation = guard.begin(&control.store, caller.org.into()).await?;
    let npc = add(&mut creation, caller.org, &settings, &effective).await?;
    let (id, etag) = (npc.id, npc_etag(&npc));
    let created = Created::new(&NpcView::from(npc))
        .location(format!("/v1/npcs/{id}"))
        .etag(etag);
    let response = guard.commit(creation, created).await?;
    tracing::info!(org.id = %caller.org, npc.id = %id, "NPC created");
    control.prompts_changed(Owner::Org(caller.org)).await;
    control.setting_changed(Owner::Org(caller.org), "npc", id);
    Ok(response)
}

/// Lists NPCs.
#[utoipa::path(
    get, path = "/v1/npcs", tag = "NPCs", operation_id = "listNpcs",
    params(ListParams),
    responses((status = 200, body = Npcs, description = "A page of NPCs")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireRead(caller): RequireRead,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    let filter = NpcFilter {
        device: params.device_id,
        template: params.template_id,
    };
    let list = List::new("/v1/npcs", caller.org);
    let after = list.position(params.cursor)?;
    let store = &control.store;
    let page = store.npcs(caller.org, &filter, after, limit.count());
    let page = page.await?;
    let next_cursor = page.next_page_after().map(|last| list.cursor(last.id));
    let npcs = Npcs {
        npcs: page.elements.into_iter().map(NpcView::from).collect(),
        next_cursor,
    };
    Ok(JsonResponse::page(&control, caller.org, &npcs)?)
}

/// Gets an NPC, with its effective settings.
#[utoipa::path(
    get, path = "/v1/npcs/{id}", tag = "NPCs", operation_id = "getNpc",
    params(("id" = NpcId, Path, description = "The NPC")),
    responses((status = 200, body = NpcView, description = "The NPC", headers(("ETag" = String, description = "Version of the NPC and its template, for `If-Match`")))),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    RequireRead(caller): RequireRead,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    Ok(control.npcs().find(caller.org, &id).await?.into())
}

/// Updates an NPC with a JSON merge patch (RFC 7396).
///
/// Null resets a member; a patch without effect creates no version.
#[utoipa::path(
    patch, path = "/v1/npcs/{id}", tag = "NPCs", operation_id = "updateNpc",
    params(("id" = NpcId, Path, description = "The NPC")),
    request_body(content = ref("#/components/schemas/NpcPatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = NpcView, description = "The updated NPC", headers(("ETag" = String, description = "Version of the NPC and its template, for `If-Match`")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "device_taken", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn update(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(StrictJson(patch)): Json<StrictJson>,
) -> Result<JsonResponse, ControlError> {
    let npcs = control.npcs();
    let current = npcs.find(caller.org, &id).await?;
    etag::require_etag(&headers, &npc_etag(&current))?;
    let settings = schema::apply_patch(&current, patch)?;
    if settings == current.settings {
        return Ok(current.into());
    }
    let npc = npcs.replace(&current, &settings).await?;
    tracing::info!(org.id = %caller.org, npc.id = %npc.id, npc.version = npc.version, "NPC updated");
    Ok(npc.into())
}

/// Deletes an NPC and its memories.
///
/// Its devices can be given to other NPCs.
#[utoipa::path(
    delete, path = "/v1/npcs/{id}", tag = "NPCs", operation_id = "deleteNpc",
    params(("id" = NpcId, Path, description = "The NPC")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn delete(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ControlError> {
    let npcs = control.npcs();
    let current = npcs.find(caller.org, &id).await?;
    etag::require_etag(&headers, &npc_etag(&current))?;
    npcs.delete(&current).await?;
    tracing::info!(org.id = %caller.org, npc.id = %current.id, "NPC deleted");
    Ok(StatusCode::NO_CONTENT)
}

impl From<Npc> for JsonResponse {
    fn from(npc: Npc) -> Self {
        let etag = npc_etag(&npc);
        Self::ok(&NpcView::from(npc)).etag(etag)
    }
}

/// The view contains the effective settings, so its tag has the version of the template, too.
fn npc_etag(npc: &Npc) -> String {
    match npc.effective_version {
        Some(template) => format!("\"{}-{template}\"", npc.version),
        None => etag::from_version(npc.version),
    }
}

impl Control {
    const fn npcs(&self) -> NpcWriter<'_> {
        NpcWriter { control: self }
    }
}

/// Finds, changes and deletes NPCs. Every write publishes the change to the other nodes.
struct NpcWriter<'a> {
    control: &'a Control,
}

impl NpcWriter<'_> {
    async fn find(&self, org: OrgId, id: &str) -> Result<Npc, ControlError> {
        let not_found = || ControlError::not_found("NPC", id);
        let id: NpcId = id.parse().map_err(|_| not_found())?;
        self.control.store.npc(org, id).await?.ok_or_else(not_found)
    }

    async fn replace(&self, current: &Npc, settings: &NpcSettings) -> Result<Npc, ControlError> {
        let before = &current.settings;
        // Unchanged overrides are not checked: lapsed ones do not block other changes.
        let is_same = (before.template, before.template_version, &before.overrides)
            == (
                settings.template,
                settings.template_version,
                &settings.overrides,
            );
        let effective = match is_same {
            true => None,
            false => Some(self.effective(current.org, settings).await?),
        };
        let (org, id, version) = (current.org, current.id, current.version);
        let store = &self.control.store;
        let write = store.replace_npc(org, id, version, settings).await?;
        let npc = into_npc(write, settings, effective.as_ref())?;
        self.control.prompts_changed(Owner::Org(org)).await;
        self.control.setting_changed(Owner::Org(org), "npc", id);
        Ok(npc)
    }

    async fn delete(&self, current: &Npc) -> Result<(), ControlError> {
        let (org, id, version) = (current.org, current.id, current.version);
        if !self.control.store.delete_npc(org, id, version).await? {
            return Err(etag::precondition_failed().into());
        }
        self.control.prompts_changed(Owner::Org(org)).await;
        // Its memories were deleted, too.
        self.control.resources_changed(Owner::Org(org), None).await;
        self.control.setting_changed(Owner::Org(org), "npc", id);
        Ok(())
    }

    /// The settings of the NPC after its overrides, if they are valid.
    async fn effective(
        &self,
        org: OrgId,
        settings: &NpcSettings,
    ) -> Result<TemplateSettings, ControlError> {
        let store = &self.control.store;
        let Some(id) = settings.template else {
            return Ok(schema::effective(None, &settings.overrides)?);
        };
        let reader = Owner::Org(org);
        let template = store.template(reader, id).await?;
        let template = template.ok_or_else(|| unknown_template(id))?;
        let base = match settings.template_version {
            Some(pinned) if pinned != template.version => {
                let stored = store.template_version(reader, id, pinned).await?;
                stored.ok_or_else(|| unknown_version(id, pinned))?
            }
            _ => template.settings,
        };
        Ok(schema::effective(Some(&base), &settings.overrides)?)
    }
}

async fn add(
    creation: &mut TenantTransaction,
    org: OrgId,
    settings: &NpcSettings,
    effective: &TemplateSettings,
) -> Result<Npc, ControlError> {
    let id = NpcId::from_uuid(Uuid::now_v7());
    let write = creation.create_npc(org, id, settings).await?;
    into_npc(write, settings, Some(effective))
}

fn unknown_template(id: TemplateId) -> Problem {
    let detail = format!("`/template_id` is {id}, and there is no such template.");
    invalid("/template_id", detail)
}

fn unknown_version(id: TemplateId, version: i64) -> Problem {
    let detail = format!("`/template_version` is {version}, and {id} does not have this version.");
    invalid("/template_version", detail)
}

/// The written NPC, or the problem with the settings.
fn into_npc(
    write: NpcWrite,
    settings: &NpcSettings,
    effective: Option<&TemplateSettings>,
) -> Result<Npc, ControlError> {
    let template = || {
        settings
            .template
            .unwrap_or(TemplateId::from_uuid(Uuid::nil()))
    };
    let problem = match write {
        NpcWrite::Written(npc) => return Ok(*npc),
        NpcWrite::Stale => etag::precondition_failed(),
        NpcWrite::UnknownTemplate => unknown_template(template()),
        NpcWrite::UnknownVersion => {
            unknown_version(template(), settings.template_version.unwrap_or_default())
        }
        NpcWrite::UnknownPicture(picture) => {
            let pointer = schema::picture_pointer(settings, effective, picture);
            let detail =
                format!("`{pointer}` is or contains {picture}, and there is no such picture.");
            invalid(&pointer, detail)
        }
        NpcWrite::UnknownSkillsBook(book) => {
            let overridden = settings.overrides.contains_key("skills_book_ids");
            let base = if overridden { "/overrides" } else { "" };
            let ids = effective.map_or(&[][..], |settings| &settings.skills_book_ids);
            templates::unknown_book(base, ids, book)
        }
        NpcWrite::UnknownVoice(voice) => {
            let overridden = settings.overrides.contains_key("voice");
            templates::unknown_voice(if overridden { "/overrides" } else { "" }, voice)
        }
        NpcWrite::DeviceTaken { index, by } => device_taken(settings, index, by),
    };
    Err(problem.into())
}

fn device_taken(settings: &NpcSettings, index: usize, by: Option<NpcId>) -> Problem {
    let pointer = format!("/device_ids/{index}");
    let device = settings.devices.get(index).map_or("", DeviceId::as_str);
    let by = by.map_or_else(|| "another NPC".to_owned(), |npc| npc.to_string());
    let detail = format!("`{pointer}`: {device} belongs to {by}; a device has one NPC at most.");
    Problem::new(ProblemKind::DeviceTaken, detail).at(pointer)
}
