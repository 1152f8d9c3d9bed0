//! `/v1/npcs/{id}/memories`: what an NPC remembers, and what it knows from its template.
//! Never: a memory of another NPC.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use switchboard_runtime::problem::{Json, Path, Query};
use switchboard_store::Owner;

use crate::{
    Control,
    access::{Administrator, Member},
    document::Unambiguous,
    error::ControlError,
    memories::{Listing, Memories, Reading},
};

pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    Administrator(author): Administrator,
    Path(id): Path<String>,
    Json(Unambiguous(document)): Json<Unambiguous>,
) -> Result<Response, ControlError> {
    let npc = control.npcs().find(author.org, &id).await?;
    let policy = &npc.effective.settings.memory;
    let author = Owner::Org(author.org);
    control
        .remember(author, npc.id.into(), policy, &document)
        .await
}

pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Member(reader): Member,
    Path(id): Path<String>,
    Query(listing): Query<Listing>,
) -> Result<axum::Json<Memories>, ControlError> {
    listing.check()?;
    let npc = control.npcs().find(reader.org, &id).await?;
    let reading = Reading {
        reader: Owner::Org(reader.org),
        template: npc.settings.template,
        npc: Some(npc.id),
        locale: npc.effective.settings.locale.as_deref(),
    };
    control.recall(reading, listing).await
}
