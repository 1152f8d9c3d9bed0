//! `/v1/npcs`: an organisation's characters, and the devices they speak through.
//! Never: a change by somebody who has not seen what they change.

pub(crate) mod memories;
pub(crate) mod shape;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, Response},
};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{DeviceId, NpcId, OrgId, TemplateId};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Json, Path, Problem, Query},
};
use switchboard_store::{Creation, Npc, NpcFilter, NpcSettings, NpcWrite, Owner, TemplateSettings};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Administrator, Member},
    document::{Unambiguous, invalid},
    error::ControlError,
    once::{Made, Once},
    precondition, templates,
};
use shape::ShownNpc;

/// An NPC, and its versions as an entity tag.
type Shown = (
    StatusCode,
    AppendHeaders<Vec<(HeaderName, String)>>,
    axum::Json<ShownNpc>,
);

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Npcs {
    /// In the order of their making.
    #[schema(max_items = 200)]
    npcs: Vec<ShownNpc>,
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
    /// Only the one that speaks through this device.
    device_id: Option<DeviceId>,
    /// Only those made from this template.
    template_id: Option<TemplateId>,
}

/// Makes an NPC, from a template or on its own.
#[utoipa::path(
    post, path = "/v1/npcs", tag = "NPCs", operation_id = "createNpc",
    request_body(content = shape::Document),
    responses((status = 201, body = ShownNpc, description = "It is made", headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "Its version and its template's, for If-Match")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "device_taken", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Administrator(author): Administrator,
    Acting(control): Acting,
    Once(ticket, Json(Unambiguous(document))): Once<Json<Unambiguous>>,
) -> Result<Response, ControlError> {
    let settings = shape::created(&document)?;
    let effective = control.npcs().effective(author.org, &settings).await?;
    let mut creation = ticket.begin(&control.store, author.org).await?;
    let npc = add(&mut creation, author.org, &settings, &effective).await?;
    let (id, etag) = (npc.id, etag(&npc));
    let made = Made::new(&ShownNpc::from(npc))
        .at(format!("/v1/npcs/{id}"))
        .tagged(etag);
    let response = ticket.commit(creation, made).await?;
    tracing::info!(org.id = %author.org, npc.id = %id, "an NPC was created");
    control.prompts_changed(Owner::Org(author.org)).await;
    Ok(response)
}

/// Lists NPCs.
#[utoipa::path(
    get, path = "/v1/npcs", tag = "NPCs", operation_id = "listNpcs",
    params(Listing),
    responses((status = 200, body = Npcs, description = "A page of NPCs")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Member(reader): Member,
    Query(listing): Query<Listing>,
) -> Result<axum::Json<Npcs>, ControlError> {
    let limit = Limit::new(listing.limit)?;
    let filter = NpcFilter {
        device: listing.device_id,
        template: listing.template_id,
    };
    let list = List::of("/v1/npcs", reader.org);
    let after = list.after(listing.cursor)?;
    let store = &control.store;
    let page = store.npcs(reader.org, &filter, after, limit.count());
    let page = page.await?;
    let next_cursor = page.continues_behind().map(|last| list.behind(last.id));
    Ok(axum::Json(Npcs {
        npcs: page.elements.into_iter().map(ShownNpc::from).collect(),
        next_cursor,
    }))
}

/// Shows an NPC, and what holds for it now.
#[utoipa::path(
    get, path = "/v1/npcs/{id}", tag = "NPCs", operation_id = "getNpc",
    params(("id" = NpcId, Path, description = "The NPC")),
    responses((status = 200, body = ShownNpc, description = "The NPC", headers(("ETag" = String, description = "Its version and its template's, for If-Match")))),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Member(reader): Member,
    Path(id): Path<String>,
) -> Result<Shown, ControlError> {
    Ok(shown(control.npcs().find(reader.org, &id).await?))
}

/// Changes what a merge patch (RFC 7396) names; null removes. What changes nothing makes no version.
#[utoipa::path(
    patch, path = "/v1/npcs/{id}", tag = "NPCs", operation_id = "changeNpc",
    params(("id" = NpcId, Path, description = "The NPC")),
    request_body(content = ref("#/components/schemas/NpcPatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = ShownNpc, description = "The NPC as it is now", headers(("ETag" = String, description = "Its version and its template's, for If-Match")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "device_taken", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn change(
    Administrator(author): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(Unambiguous(patch)): Json<Unambiguous>,
) -> Result<Shown, ControlError> {
    let npcs = control.npcs();
    let current = npcs.find(author.org, &id).await?;
    precondition::require_tag(&headers, &etag(&current))?;
    let settings = shape::patched(&current, patch)?;
    if settings == current.settings {
        return Ok(shown(current));
    }
    let npc = npcs.replace(&current, &settings).await?;
    tracing::info!(org.id = %author.org, npc.id = %npc.id, npc.version = npc.version, "an NPC was changed");
    Ok(shown(npc))
}

/// Removes an NPC and its memories. Its devices are free again.
#[utoipa::path(
    delete, path = "/v1/npcs/{id}", tag = "NPCs", operation_id = "removeNpc",
    params(("id" = NpcId, Path, description = "The NPC")),
    responses((status = 204, description = "It is gone")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn remove(
    Administrator(author): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ControlError> {
    let npcs = control.npcs();
    let current = npcs.find(author.org, &id).await?;
    precondition::require_tag(&headers, &etag(&current))?;
    npcs.remove(&current).await?;
    tracing::info!(org.id = %author.org, npc.id = %current.id, "an NPC was removed");
    Ok(StatusCode::NO_CONTENT)
}

fn shown(npc: Npc) -> Shown {
    let headers = AppendHeaders(vec![(header::ETAG, etag(&npc))]);
    (StatusCode::OK, headers, axum::Json(npc.into()))
}

/// What is shown changes with the NPC and with the template that it follows, and so does its tag.
fn etag(npc: &Npc) -> String {
    match npc.effective_version {
        Some(template) => format!("\"{}-{template}\"", npc.version),
        None => precondition::etag(npc.version),
    }
}

impl Control {
    const fn npcs(&self) -> NpcWriter<'_> {
        NpcWriter { control: self }
    }
}

/// Finds NPCs, and is the one way in which those change that are there.
struct NpcWriter<'a> {
    control: &'a Control,
}

impl NpcWriter<'_> {
    async fn find(&self, org: OrgId, id: &str) -> Result<Npc, ControlError> {
        let unknown = || ControlError::unknown("NPC", id);
        let id: NpcId = id.parse().map_err(|_| unknown())?;
        self.control.store.npc(org, id).await?.ok_or_else(unknown)
    }

    async fn replace(&self, current: &Npc, settings: &NpcSettings) -> Result<Npc, ControlError> {
        let before = &current.settings;
        // What has lapsed since it was written hinders no other change.
        let same = (before.template, before.template_version, &before.overrides)
            == (
                settings.template,
                settings.template_version,
                &settings.overrides,
            );
        let effective = match same {
            true => None,
            false => Some(self.effective(current.org, settings).await?),
        };
        let (org, id, version) = (current.org, current.id, current.version);
        let store = &self.control.store;
        let write = store.replace_npc(org, id, version, settings).await?;
        let npc = written(write, settings, effective.as_ref())?;
        self.control.prompts_changed(Owner::Org(org)).await;
        Ok(npc)
    }

    async fn remove(&self, current: &Npc) -> Result<(), ControlError> {
        let (org, id, version) = (current.org, current.id, current.version);
        if !self.control.store.delete_npc(org, id, version).await? {
            return Err(precondition::stale().into());
        }
        self.control.prompts_changed(Owner::Org(org)).await;
        // Its memories went with it.
        self.control.resources_changed(Owner::Org(org), None).await;
        Ok(())
    }

    /// What will hold, if it keeps the rules.
    async fn effective(
        &self,
        org: OrgId,
        settings: &NpcSettings,
    ) -> Result<TemplateSettings, ControlError> {
        let store = &self.control.store;
        let Some(id) = settings.template else {
            return Ok(shape::effective(None, &settings.overrides)?);
        };
        let reader = Owner::Org(org);
        let template = store.template(reader, id).await?;
        let template = template.ok_or_else(|| unknown_template(id))?;
        let base = match settings.template_version {
            Some(pinned) if pinned != template.version => {
                let kept = store.template_version(reader, id, pinned).await?;
                kept.ok_or_else(|| unknown_version(id, pinned))?
            }
            _ => template.settings,
        };
        Ok(shape::effective(Some(&base), &settings.overrides)?)
    }
}

async fn add(
    creation: &mut Creation,
    org: OrgId,
    settings: &NpcSettings,
    effective: &TemplateSettings,
) -> Result<Npc, ControlError> {
    let id = NpcId::from_uuid(Uuid::now_v7());
    let write = creation.create_npc(org, id, settings).await?;
    written(write, settings, Some(effective))
}

fn unknown_template(id: TemplateId) -> Problem {
    let detail = format!("`/template_id` names {id}, and there is no such template.");
    invalid("/template_id", detail)
}

fn unknown_version(id: TemplateId, version: i64) -> Problem {
    let detail = format!(
        "`/template_version` is {version}, and {id} has no such version, or has it no more."
    );
    invalid("/template_version", detail)
}

fn written(
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
        NpcWrite::Stale => precondition::stale(),
        NpcWrite::UnknownTemplate => unknown_template(template()),
        NpcWrite::UnknownVersion => {
            unknown_version(template(), settings.template_version.unwrap_or_default())
        }
        NpcWrite::UnknownPicture(picture) => {
            let pointer = shape::place_of(settings, effective, picture);
            let detail = format!("`{pointer}` leads to {picture}, and there is no such picture.");
            invalid(&pointer, detail)
        }
        NpcWrite::UnknownSkillsBook(book) => {
            let overridden = settings.overrides.contains_key("skills_book_ids");
            let at = if overridden { "/overrides" } else { "" };
            let named = effective.map_or(&[][..], |settings| &settings.skills_book_ids);
            templates::unknown_book(at, named, book)
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
    let detail =
        format!("`{pointer}`: {by} speaks through {device}; a device speaks for one NPC at most.");
    Problem::new(StatusCode::CONFLICT, "device_taken", "Device taken", detail)
        .with("pointer", pointer)
}
