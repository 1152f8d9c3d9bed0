//! `/v1/npcs/{id}/memories`: the memories of an NPC and of its template.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use switchboard_protocol::id::NpcId;
use switchboard_runtime::problem::{Json, Path, Query};
use switchboard_store::Owner;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireAdmin, RequireRead},
        documents::StrictJson,
        error::ControlError,
        idempotency::Idempotent,
        response::JsonResponse,
    },
    resources::memories::{ListParams, Memories, MemoryScope, OneOrMany, schema::MemoriesRequest},
};

/// Creates one memory of an NPC, or up to 100: all or none.
#[utoipa::path(
    post, path = "/v1/npcs/{id}/memories", tag = "Memories", operation_id = "createNpcMemories",
    params(("id" = NpcId, Path, description = "The NPC")),
    request_body(content = MemoriesRequest),
    responses((status = 201, body = inline(OneOrMany), description = "Created", headers(("Location" = String, description = "Path of the created resource")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "not_found", "uri_taken", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    Idempotent(guard, Json(StrictJson(document))): Idempotent<Json<StrictJson>>,
) -> Result<Response, ControlError> {
    let npc = control.npcs().find(caller.org, &id).await?;
    let policy = &npc.effective.settings.memory;
    let owner = Owner::Org(caller.org);
    control
        .create_memories(owner, npc.id.into(), policy, (guard, &document))
        .await
}

/// Lists or searches the memories of an NPC and of its template.
#[utoipa::path(
    get, path = "/v1/npcs/{id}/memories", tag = "Memories", operation_id = "listNpcMemories",
    params(("id" = NpcId, Path, description = "The NPC"), ListParams),
    responses((status = 200, body = Memories, description = "A page of memories that have not expired")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireRead(caller): RequireRead,
    Path(id): Path<String>,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    params.check()?;
    let npc = control.npcs().find(caller.org, &id).await?;
    let scope = MemoryScope {
        reader: Owner::Org(caller.org),
        template: npc.settings.template,
        npc: Some(npc.id),
        locale: npc.effective.settings.locale.as_deref(),
    };
    control.read_memories(scope, params).await
}
