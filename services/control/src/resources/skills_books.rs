//! `/v1/skills-books`: documents that characters search, uploaded in parts.
//!
//! No document is parsed during a request; `workers::ingestion` does that.

mod problems;
pub(crate) mod query;
pub(crate) mod schema;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::SkillsBookId;
use switchboard_runtime::{
    paging::{Cursor, JsonElements, Limit, List, Paging},
    problem::{Json, Path, Query, RawBody},
    quota::Quota,
};
use switchboard_store::{
    BookCancel, BookFinish, BookRemoval, BookState, Owner, PartWrite, ReadyBook, SkillsBook,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, Reader, Writer, operator_only},
        documents::StrictJson,
        error::ControlError,
        idempotency::{Created, Idempotent},
        response::JsonResponse,
    },
};
use query::{PartNumber, SearchQuery};
use schema::{ChunkView, SkillsBookView};

/// The paths of parts.
pub(crate) const PART_PATHS: &str = "/v1/skills-books/*/parts/*";
/// The maximum size of a part. Protects memory: a part is buffered completely.
pub(crate) const MAX_PART_BYTES: usize = 8 * 1024 * 1024;

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct SkillsBooks {
    /// Oldest first.
    #[schema(max_items = 200, value_type = Vec<SkillsBookView>)]
    skills_books: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

/// An uploaded part.
#[derive(Serialize, ToSchema)]
pub(crate) struct UploadedPart {
    /// The number of the part.
    part: PartNumber,
    /// Size of the part in bytes.
    #[schema(minimum = 1, maximum = 8_388_608, example = 4711)]
    size_bytes: usize,
    /// Total size of all uploaded parts in bytes.
    #[schema(minimum = 1, maximum = 67_108_864, example = 4711)]
    bytes_received: i64,
}

/// The bytes of a part.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary, min_length = 1)]
#[expect(dead_code, reason = "the schema of bodies in the OpenAPI document")]
pub(crate) struct PartBytes(Vec<u8>);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchParams {
    /// Search query.
    q: SearchQuery,
    /// Maximum number of chunks in the response.
    #[param(minimum = 1, maximum = 200, example = 10)]
    #[serde(default = "default_results")]
    limit: u16,
}

/// The result of a search.
#[derive(Serialize, ToSchema)]
pub(crate) struct FoundChunks {
    /// Best match first.
    #[schema(max_items = 200)]
    chunks: Vec<ChunkView>,
}

const fn default_results() -> u16 {
    10
}

/// Creates a skills book.
///
/// Its parts are uploaded afterwards.
#[utoipa::path(
    post, path = "/v1/skills-books", tag = "Skills books", operation_id = "createSkillsBook",
    request_body(content = schema::SkillsBookDocument),
    responses((status = 201, body = SkillsBookView, description = "Created", headers(("Location" = String, description = "Path of the created resource")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "objects_not_configured", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Idempotent(guard, Json(StrictJson(document))): Idempotent<Json<StrictJson>>,
) -> Result<Response, ControlError> {
    control.objects()?;
    let new = schema::parse_new(&document, SkillsBookId::from_uuid(Uuid::now_v7()))?;
    control.admit(owner, &[(Quota::Settings, 1)]).await?;
    let mut creation = guard.begin(&control.store, owner).await?;
    let book = creation.begin_skills_book(owner, &new).await?;
    let id = book.id;
    let created =
        Created::new(&SkillsBookView::from(book)).location(format!("/v1/skills-books/{id}"));
    let response = guard.commit(creation, created).await?;
    tracing::info!(owner = %owner, skills_book.id = %id, "skills book created");
    control.book_changed(owner, id, Some(BookState::Uploading));
    Ok(response)
}

/// Lists the skills books of the caller, and public ones.
#[utoipa::path(
    get, path = "/v1/skills-books", tag = "Skills books", operation_id = "listSkillsBooks",
    params(Paging),
    responses((status = 200, body = SkillsBooks, description = "A page of skills books")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(paging): Query<Paging>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let list = List::new("/v1/skills-books", reader);
    let after = list.position(paging.cursor)?;
    let store = &control.store;
    let found = store
        .skills_books(reader, after, limit.fetch_count())
        .await?;
    let (skills_books, next_cursor) =
        limit.json_page(found, |book| list.cursor(book.id), SkillsBookView::from);
    Ok(JsonResponse::page(
        &control,
        reader,
        &SkillsBooks {
            skills_books,
            next_cursor,
        },
    )?)
}

/// Gets a skills book, with the progress of its ingestion.
#[utoipa::path(
    get, path = "/v1/skills-books/{id}", tag = "Skills books", operation_id = "getSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 200, body = SkillsBookView, description = "The skills book")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    Ok(control.skills_book(reader, &id).await?.into())
}

/// Uploads a part of up to 8 MiB.
///
/// Parts can be uploaded in any order; a repeated upload replaces the part.
#[utoipa::path(
    put, path = "/v1/skills-books/{id}/parts/{number}", tag = "Skills books", operation_id = "uploadSkillsBookPart",
    params(("id" = SkillsBookId, Path, description = "The skills book"), ("number" = PartNumber, Path, description = "The number of the part, starting at 1")),
    request_body(content = inline(PartBytes), content_type = "application/octet-stream", description = "The bytes of the part, at least one; `Content-Type` is ignored."),
    responses((status = 200, body = UploadedPart, description = "Stored")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["invalid_part_number", "not_found", "operator_only", "skills_book_not_uploading", "larger_than_declared", "objects_not_configured", "objects_unavailable", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn upload_part(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path((id, number)): Path<(String, String)>,
    RawBody(bytes): RawBody,
) -> Result<JsonResponse, ControlError> {
    control.objects()?;
    let part = PartNumber::parse(&number).ok_or_else(|| problems::part_number(&number))?;
    if bytes.is_empty() {
        return Err(problems::empty_part().into());
    }
    let book = control.own_skills_book(owner, &id).await?.id;
    let size_bytes = bytes.len();
    let more = [(Quota::ObjectBytes, size_bytes)];
    control.admit(owner, &more).await?;
    let store = &control.store;
    match store
        .write_skills_book_part(owner, book, part.get(), bytes)
        .await?
    {
        PartWrite::Written { bytes_received } => Ok(JsonResponse::ok(&UploadedPart {
            part,
            size_bytes,
            bytes_received,
        })),
        PartWrite::Unknown => Err(ControlError::not_found("skills book", &id)),
        PartWrite::NotUploading(state) => Err(problems::not_uploading(state).into()),
        PartWrite::TooLarge { declared, would_be } => {
            Err(problems::larger_than_declared(declared, would_be).into())
        }
    }
}

/// Completes the upload; the document is then parsed in the background.
///
/// A repeated request has no effect.
#[utoipa::path(
    post, path = "/v1/skills-books/{id}/finish", tag = "Skills books", operation_id = "finishSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 202, body = SkillsBookView, description = "Complete; being parsed, or already parsed")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "skills_book_over", "parts_missing", "size_mismatch", "sha256_mismatch", "parts_changed", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn finish(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    control.objects()?;
    let book = control.own_skills_book(owner, &id).await?.id;
    let problem = match control.store.finish_skills_book(owner, book).await? {
        BookFinish::Accepted(book) => {
            tracing::info!(owner = %owner, skills_book.id = %book.id, "skills book upload finished");
            control.book_changed(owner, book.id, Some(book.state));
            return Ok(JsonResponse::accepted(&SkillsBookView::from(*book)));
        }
        BookFinish::Unknown => return Err(ControlError::not_found("skills book", &id)),
        BookFinish::Ended(state) => problems::finished(state, "finished"),
        BookFinish::Missing { parts, count } => problems::parts_missing(&parts, count),
        BookFinish::WrongSize { declared, sent } => problems::wrong_size(declared, sent),
        BookFinish::WrongHash { sent } => problems::wrong_hash(&sent),
        BookFinish::Changed => problems::changed(),
    };
    Err(problem.into())
}

/// Cancels a skills book that is not ready yet.
///
/// Its parts and chunks are deleted, the skills book itself remains. A repeated
/// request has no effect.
#[utoipa::path(
    post, path = "/v1/skills-books/{id}/cancel", tag = "Skills books", operation_id = "cancelSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 200, body = SkillsBookView, description = "Cancelled")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "skills_book_over", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn cancel(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    control.objects()?;
    let book = control.own_skills_book(owner, &id).await?.id;
    match control.store.cancel_skills_book(owner, book).await? {
        BookCancel::Cancelled(book) => {
            tracing::info!(owner = %owner, skills_book.id = %book.id, "skills book cancelled");
            control.book_changed(owner, book.id, Some(book.state));
            Ok((*book).into())
        }
        BookCancel::Unknown => Err(ControlError::not_found("skills book", &id)),
        BookCancel::Ended(state) => Err(problems::finished(state, "cancelled").into()),
    }
}

/// Deletes a skills book that no template and no NPC uses.
///
/// A skills book can be deleted in any state. Its chunks and its bytes are deleted, too.
#[utoipa::path(
    delete, path = "/v1/skills-books/{id}", tag = "Skills books", operation_id = "deleteSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "skills_book_in_use", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn delete(
    Writer(owner): Writer,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    control.objects()?;
    let book = control.own_skills_book(owner, &id).await?.id;
    match control.store.delete_skills_book(owner, book).await? {
        BookRemoval::Removed => {}
        BookRemoval::Unknown => return Err(ControlError::not_found("skills book", &id)),
        BookRemoval::InUse => return Err(problems::in_use().into()),
    }
    tracing::info!(owner = %owner, skills_book.id = %book, "skills book deleted");
    let uri = ReadyBook::uri(book);
    control.resources_changed(owner, Some(uri)).await;
    control.book_changed(owner, book, None);
    Ok(StatusCode::NO_CONTENT)
}

/// Searches a skills book.
#[utoipa::path(
    get, path = "/v1/skills-books/{id}/search", tag = "Skills books", operation_id = "searchSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book"), SearchParams),
    responses((status = 200, body = FoundChunks, description = "The best matches")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn search(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(params): Query<SearchParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    let book = control.skills_book(reader, &id).await?.id;
    let query = params.q.as_str();
    let embedding = control.query_embedding(reader, query).await;
    let store = &control.store;
    let found = store
        .search_skills_book(
            reader,
            book,
            query,
            embedding.as_ref(),
            limit.count().into(),
        )
        .await?;
    Ok(JsonResponse::page(
        &control,
        reader,
        &FoundChunks {
            chunks: found.into_iter().map(ChunkView::from).collect(),
        },
    )?)
}

impl From<SkillsBook> for JsonResponse {
    fn from(book: SkillsBook) -> Self {
        Self::ok(&SkillsBookView::from(book))
    }
}

impl Control {
    /// A skills book that this owner can read.
    async fn skills_book(&self, reader: Owner, id: &str) -> Result<SkillsBook, ControlError> {
        let not_found = || ControlError::not_found("skills book", id);
        let id: SkillsBookId = id.parse().map_err(|_| not_found())?;
        self.store
            .skills_book(reader, id)
            .await?
            .ok_or_else(not_found)
    }

    /// A skills book that this owner can change.
    async fn own_skills_book(&self, owner: Owner, id: &str) -> Result<SkillsBook, ControlError> {
        let book = self.skills_book(owner, id).await?;
        if book.owner == owner {
            return Ok(book);
        }
        Err(operator_only("Only the operator may change public resources.").into())
    }
}
