//! `/v1/templates/{id}/memories` and `/v1/memories/{id}`: the memories of templates.
//! NPCs share the code.
//!
//! Invariant: a batch is stored completely or not at all.

pub(crate) mod schema;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_catalog::MemoryPolicy;
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};
use switchboard_runtime::{
    paging::{self, Cursor, JsonElements, Limit, List},
    problem::{Json, Path, Problem, ProblemKind, Query},
    quota::Quota,
};
use switchboard_store::{
    Memory, MemoryFilter, MemoryHolder, MemoryQuery, MemoryUpdate, MemoryWrite, Owner,
    TenantTransaction,
};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Control,
    http::{
        auth::{AuditActor, Reader, Writer},
        documents::StrictJson,
        error::ControlError,
        etag,
        idempotency::{Created, IdempotencyGuard, Idempotent},
        response::JsonResponse,
    },
};
pub(crate) use schema::reject_own_scheme;
use schema::{MemoryView, ParsedMemories};

/// The maximum length of a search query, in characters.
const MAX_QUERY_CHARS: usize = 500;
/// How often a patch without If-Match is applied again because another request has changed its memory.
const MAX_UPDATE_ATTEMPTS: usize = 5;

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Memories {
    /// Oldest first.
    #[schema(max_items = 200, value_type = Vec<MemoryView>)]
    memories: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

/// The memories of a batch.
#[derive(Serialize, ToSchema)]
pub(crate) struct StoredMemories {
    /// In the order of the request.
    #[schema(max_items = 100)]
    memories: Vec<MemoryView>,
}

/// The query string of a list: all memories, oldest first, or those that match `q`, best first.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Maximum number of elements in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page; not allowed together with `q`.
    cursor: Option<Cursor>,
    /// Search query. The response has the best matches, each with its `score`.
    #[param(
        min_length = 1,
        max_length = 500,
        pattern = "^[^\\u0000]*$",
        example = "how old is Bello?"
    )]
    q: Option<String>,
    /// Only memories with exactly this subject.
    #[param(pattern = "^[^\\u0000]*$", example = "user:anna")]
    subject: Option<String>,
    /// Only memories of exactly this kind.
    #[param(pattern = "^[^\\u0000]*$", example = "fact")]
    kind: Option<String>,
}

/// The memories to read.
pub(crate) struct MemoryScope<'a> {
    pub(crate) reader: Owner,
    pub(crate) template: Option<TemplateId>,
    pub(crate) npc: Option<NpcId>,
    pub(crate) locale: Option<&'a str>,
}

/// One memory, or the memories of a batch.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the schema of responses in the OpenAPI document")]
pub(crate) enum OneOrMany {
    One(Box<MemoryView>),
    Many(StoredMemories),
}

/// Creates one memory of a template, or up to 100: all or none.
#[utoipa::path(
    post, path = "/v1/templates/{id}/memories", tag = "Memories", operation_id = "createMemories",
    params(("id" = TemplateId, Path, description = "The template")),
    request_body(content = schema::MemoriesRequest),
    responses((status = 201, body = inline(OneOrMany), description = "Created", headers(("Location" = String, description = "Path of the created resource")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "not_found", "operator_only", "uri_taken", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    Idempotent(guard, Json(StrictJson(document))): Idempotent<Json<StrictJson>>,
) -> Result<Response, ControlError> {
    let template = control.templates().find_own(owner, &id).await?;
    let policy = &template.settings.memory;
    control
        .create_memories(owner, template.id.into(), policy, (guard, &document))
        .await
}

/// Lists or searches the memories of a template.
#[utoipa::path(
    get, path = "/v1/templates/{id}/memories", tag = "Memories", operation_id = "listMemories",
    params(("id" = TemplateId, Path, description = "The template"), ListParams),
    responses((status = 200, body = Memories, description = "A page of memories that have not expired")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    params.check()?;
    let template = control.templates().find(reader, &id).await?;
    let scope = MemoryScope {
        reader,
        template: Some(template.id),
        npc: None,
        locale: template.settings.locale.as_deref(),
    };
    control.read_memories(scope, params).await
}

/// Changes a memory.
///
/// The body is a JSON merge patch (RFC 7396); `uri` and the template or NPC cannot change. Without
/// If-Match the change applies to any version.
#[utoipa::path(
    patch, path = "/v1/memories/{id}", tag = "Memories", operation_id = "updateMemory",
    params(("id" = MemoryId, Path, description = "The memory"), ("If-Match" = Option<String>, Header, pattern = "^(\\*|\"[0-9]{1,19}\")$", example = "\"1\"", description = "The ETag of the version to change, which is its `version` in quotes.")),
    request_body(content = ref("#/components/schemas/MemoryPatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = MemoryView, description = "The memory after the change", headers(("ETag" = String, description = "Version of the memory")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "precondition_failed", "store_unavailable"]))),
)]
pub(crate) async fn update(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(StrictJson(patch)): Json<StrictJson>,
) -> Result<JsonResponse, ControlError> {
    let not_found = || ControlError::not_found("memory", &id);
    let memory: MemoryId = id.parse().map_err(|_| not_found())?;
    for _ in 0..MAX_UPDATE_ATTEMPTS {
        let current = control.store.memory(owner, memory).await?;
        let current = current.ok_or_else(not_found)?;
        if headers.contains_key(header::IF_MATCH) {
            etag::require_version(&headers, current.version)?;
        }
        let version = current.version;
        let before = MemoryView::from(current);
        let Some(settings) = schema::apply_patch(&before, patch.clone())? else {
            return Ok(JsonResponse::ok(&before).etag(etag::from_version(version)));
        };
        let updated = control
            .store
            .update_memory(owner, (memory, version), &settings);
        match updated.await? {
            MemoryUpdate::Written(memory) => {
                tracing::info!(owner = %owner, memory.id = %memory.id, memory.version = memory.version, "memory updated");
                let uri = Some(memory.uri.clone());
                control.resources_changed(owner, uri).await;
                let etag = etag::from_version(memory.version);
                return Ok(JsonResponse::ok(&MemoryView::from(*memory)).etag(etag));
            }
            MemoryUpdate::Unknown => return Err(not_found()),
            // Another request has changed it: the patch applies to what it is now.
            MemoryUpdate::Stale => {}
        }
    }
    Err(etag::precondition_failed().into())
}

/// Deletes a memory.
#[utoipa::path(
    delete, path = "/v1/memories/{id}", tag = "Memories", operation_id = "deleteMemory",
    params(("id" = MemoryId, Path, description = "The memory")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn delete(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let not_found = || ControlError::not_found("memory", &id);
    let memory: MemoryId = id.parse().map_err(|_| not_found())?;
    if !control.store.delete_memory(owner, memory).await? {
        return Err(not_found());
    }
    tracing::info!(owner = %owner, memory.id = %memory, "memory deleted");
    control.resources_changed(owner, None).await;
    Ok(StatusCode::NO_CONTENT)
}

impl ListParams {
    /// Checks the parameters before any query.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let texts = [&self.q, &self.subject, &self.kind];
        if texts.into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(Problem::invalid_query(
                "no parameter may contain the character U+0000.",
            ));
        }
        let Some(q) = &self.q else {
            return Ok(());
        };
        if self.cursor.is_some() {
            let reason =
                "`q` returns the best matches, up to `limit`, and does not support `cursor`.";
            return Err(Problem::invalid_query(reason));
        }
        if (1..=MAX_QUERY_CHARS).contains(&q.chars().count()) {
            return Ok(());
        }
        let reason = format!("`q` must have 1 to {MAX_QUERY_CHARS} characters.");
        Err(Problem::invalid_query(reason))
    }
}

impl MemoryScope<'_> {
    /// The list that cursors belong to. The list of an NPC includes the memories of its template.
    fn list(&self) -> List {
        let path = match (self.npc, self.template) {
            (Some(npc), _) => format!("/v1/npcs/{npc}/memories"),
            (None, Some(template)) => format!("/v1/templates/{template}/memories"),
            (None, None) => "/v1/memories".to_owned(),
        };
        List::new(&path, self.reader)
    }
}

impl Control {
    /// Creates the memories in a body, at most once.
    pub(crate) async fn create_memories(
        &self,
        owner: Owner,
        holder: MemoryHolder,
        policy: &MemoryPolicy,
        (guard, document): (IdempotencyGuard, &Value),
    ) -> Result<Response, ControlError> {
        let parsed = schema::parse(document, policy)?;
        let more = [(Quota::Settings, parsed.memories().len())];
        self.admit(owner, &more).await?;
        let mut creation = guard.begin(&self.store, owner).await?;
        let stored = add(&mut creation, owner, holder, &parsed).await?;
        let path = match holder {
            MemoryHolder::Template(id) => format!("/v1/templates/{id}/memories"),
            MemoryHolder::Npc(id) => format!("/v1/npcs/{id}/memories"),
        };
        let (count, uri) = match stored.as_slice() {
            [one] => (1, Some(one.uri.clone())),
            many => (many.len(), None),
        };
        let mut views: Vec<_> = stored.into_iter().map(MemoryView::from).collect();
        let created = match (&parsed, views.pop()) {
            (ParsedMemories::One(memory), Some(one)) => {
                Created::new(&one).location(format!("/v1/memories/{}", memory.id))
            }
            (_, last) => {
                views.extend(last);
                Created::new(&StoredMemories { memories: views }).location(path.clone())
            }
        };
        let response = guard.commit(creation, created).await?;
        tracing::info!(owner = %owner, path, memories = count, "memories created");
        self.resources_changed(owner, uri).await;
        Ok(response)
    }

    /// Lists or searches memories. The parameters are already checked.
    pub(crate) async fn read_memories(
        &self,
        scope: MemoryScope<'_>,
        params: ListParams,
    ) -> Result<JsonResponse, ControlError> {
        let limit = Limit::new(params.limit)?;
        let filter = MemoryFilter {
            template: scope.template,
            npc: scope.npc,
            about: params.subject.map(|subject| vec![subject]),
            kind: params.kind,
        };
        let (store, reader) = (&self.store, scope.reader);
        let Some(text) = params.q.as_deref() else {
            let list = scope.list();
            let after = list.position(params.cursor)?;
            let found = store.memories(reader, &filter, after, limit.fetch_count());
            let (memories, next_cursor) = limit.json_page(
                found.await?,
                |memory| list.cursor(memory.id),
                MemoryView::from,
            );
            let memories = Memories {
                memories,
                next_cursor,
            };
            return Ok(JsonResponse::page(self, reader, &memories)?);
        };
        let embedding = self.query_embedding(reader, text).await;
        let query = MemoryQuery {
            text,
            locale: scope.locale,
            embedding: embedding.as_ref(),
        };
        let max = params.limit.into();
        let found = store.search_memories(reader, &filter, query, max).await?;
        // The best matches; a search has no further pages.
        let (memories, _) = limit.json_page(found, |_| (), MemoryView::from);
        let memories = Memories {
            memories,
            next_cursor: None,
        };
        Ok(JsonResponse::page(self, reader, &memories)?)
    }
}

async fn add(
    creation: &mut TenantTransaction,
    owner: Owner,
    holder: MemoryHolder,
    parsed: &ParsedMemories,
) -> Result<Vec<Memory>, ControlError> {
    let write = creation.add_memories(owner, holder, parsed.memories());
    match write.await? {
        MemoryWrite::Written(stored) => Ok(stored),
        MemoryWrite::UnknownHolder => Err(match holder {
            MemoryHolder::Template(id) => ControlError::not_found("template", &id.to_string()),
            MemoryHolder::Npc(id) => ControlError::not_found("NPC", &id.to_string()),
        }),
        MemoryWrite::UriTaken(index) => Err(uri_taken(&parsed.pointer(index)).into()),
    }
}

fn uri_taken(base: &str) -> Problem {
    let pointer = format!("{base}/uri");
    Problem::new(
        ProblemKind::UriTaken,
        format!(
            "Another resource has the URI in `{pointer}`; choose another one. Nothing was stored."
        ),
    )
    .at(pointer)
}
