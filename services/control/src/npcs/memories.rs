//! `/v1/npcs/{id}/memories`: what an NPC remembers, and what it knows from its template.
//! Never: a memory of another NPC.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use switchboard_protocol::id::NpcId;
use switchboard_runtime::problem::{Json, Path, Query};
use switchboard_store::Owner;

use crate::{
    Control,
    access::{Acting, Administrator, Member},
    document::Unambiguous,
    error::ControlError,
    memories::{Listing, Memories, OneOrMany, Reading, shape::MemoriesDocument},
    once::Once,
};

/// Adds a memory to an NPC, or up to 100, all or none.
#[utoipa::path(
    post, path = "/v1/npcs/{id}/memories", tag = "Memories", operation_id = "addNpcMemories",
    params(("id" = NpcId, Path, description = "The NPC")),
    request_body(content = MemoriesDocument),
    responses((status = 201, body = inline(OneOrMany), description = "They are stored", headers(("Location" = String, description = "Where it is")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "not_found", "uri_taken", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Administrator(author): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
    Once(ticket, Json(Unambiguous(document))): Once<Json<Unambiguous>>,
) -> Result<Response, ControlError> {
    let npc = control.npcs().find(author.org, &id).await?;
    let policy = &npc.effective.settings.memory;
    let author = Owner::Org(author.org);
    control
        .remember(author, npc.id.into(), policy, (ticket, &document))
        .await
}

/// Lists what an NPC remembers and what it knows from its template, or searches it.
#[utoipa::path(
    get, path = "/v1/npcs/{id}/memories", tag = "Memories", operation_id = "listNpcMemories",
    params(("id" = NpcId, Path, description = "The NPC"), Listing),
    responses((status = 200, body = Memories, description = "A page of memories that have not ended")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
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
