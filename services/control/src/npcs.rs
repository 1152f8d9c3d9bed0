//! `/v1/npcs`: an organisation's characters, and the devices they speak through.
//! Never: a change by somebody who has not seen what they change.

pub(crate) mod memories;
mod shape;

use std::sync::Arc;

use axum::{extract::State, response::AppendHeaders};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{DeviceId, NpcId, OrgId, TemplateId};
use switchboard_runtime::problem::{Json, Path, Problem, Query};
use switchboard_store::{Npc, NpcFilter, NpcSettings, NpcWrite, Owner, TemplateSettings};
use uuid::Uuid;

use crate::{
    Control,
    access::{Administrator, Member},
    document::{Unambiguous, invalid},
    error::ControlError,
    paging::{self, Limit},
    precondition, templates,
};
use shape::ShownNpc;

/// An NPC, its versions as an entity tag, and where it is.
type Shown = (
    StatusCode,
    AppendHeaders<Vec<(HeaderName, String)>>,
    axum::Json<ShownNpc>,
);

/// A page of the list.
#[derive(Serialize)]
pub(crate) struct Npcs {
    npcs: Vec<ShownNpc>,
    next_cursor: Option<NpcId>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    #[serde(default = "paging::default_limit")]
    limit: u16,
    cursor: Option<NpcId>,
    /// Only the one that speaks through this device.
    device_id: Option<DeviceId>,
    /// Only those made from this template.
    template_id: Option<TemplateId>,
}

pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    Administrator(author): Administrator,
    Json(Unambiguous(document)): Json<Unambiguous>,
) -> Result<Shown, ControlError> {
    let settings = shape::created(&document)?;
    let npc = control.npcs().create(author.org, &settings).await?;
    tracing::info!(org.id = %author.org, npc.id = %npc.id, "an NPC was created");
    let location = format!("/v1/npcs/{}", npc.id);
    let (_, mut headers, body) = shown(npc);
    headers.0.push((header::LOCATION, location));
    Ok((StatusCode::CREATED, headers, body))
}

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
    let store = &control.store;
    let found = store.npcs(reader.org, &filter, listing.cursor, limit.probe());
    let (page, next_cursor) = limit.cut(found.await?, |npc| npc.id);
    Ok(axum::Json(Npcs {
        npcs: page.into_iter().map(ShownNpc::from).collect(),
        next_cursor,
    }))
}

pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Member(reader): Member,
    Path(id): Path<String>,
) -> Result<Shown, ControlError> {
    Ok(shown(control.npcs().find(reader.org, &id).await?))
}

pub(crate) async fn change(
    State(control): State<Arc<Control>>,
    Administrator(author): Administrator,
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

pub(crate) async fn remove(
    State(control): State<Arc<Control>>,
    Administrator(author): Administrator,
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

/// Finds NPCs, and is the one way in which they change.
struct NpcWriter<'a> {
    control: &'a Control,
}

impl NpcWriter<'_> {
    async fn find(&self, org: OrgId, id: &str) -> Result<Npc, ControlError> {
        let unknown = || ControlError::unknown("NPC", id);
        let id: NpcId = id.parse().map_err(|_| unknown())?;
        self.control.store.npc(org, id).await?.ok_or_else(unknown)
    }

    async fn create(&self, org: OrgId, settings: &NpcSettings) -> Result<Npc, ControlError> {
        let effective = self.effective(org, settings).await?;
        let id = NpcId::from_uuid(Uuid::now_v7());
        let write = self.control.store.create_npc(org, id, settings).await?;
        written(write, settings, Some(&effective))
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
        Ok(npc)
    }

    async fn remove(&self, current: &Npc) -> Result<(), ControlError> {
        let (org, id, version) = (current.org, current.id, current.version);
        if !self.control.store.delete_npc(org, id, version).await? {
            return Err(precondition::stale().into());
        }
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
