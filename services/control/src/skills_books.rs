//! `/v1/skills-books`: documents that characters look things up in, sent in parts and searched.
//! Never: a document read while somebody waits for an answer; that is `ingestion`'s work.

pub(crate) mod asked;
mod refusals;
pub(crate) mod shape;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::SkillsBookId;
use switchboard_runtime::{
    paging::{Cursor, Limit, List, Paging},
    problem::{Json, Path, Problem, Query, RawBody},
};
use switchboard_store::{
    BookCancel, BookFinish, BookRemoval, Owner, PartWrite, ReadyBook, SkillsBook,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Author, Reader, forbidden},
    document::Unambiguous,
    error::{ControlError, no_objects},
    once::{Made, Once},
};
use asked::{PartNumber, Question};
use shape::{ShownBook, ShownChunk};

/// Where parts are sent, for whoever serves the router.
pub(crate) const PART_PATHS: &str = "/v1/skills-books/*/parts/*";
/// The largest part, in bytes. Protects memory: a part is held whole until it is stored.
pub(crate) const LARGEST_PART_BYTES: usize = 8 * 1024 * 1024;

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct SkillsBooks {
    /// In the order of their making.
    #[schema(max_items = 200)]
    skills_books: Vec<ShownBook>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

/// What is there after a part was written.
#[derive(Serialize, ToSchema)]
pub(crate) struct WrittenPart {
    /// Which part it was.
    part: PartNumber,
    /// How many bytes it has.
    #[schema(minimum = 1, maximum = 8_388_608, example = 4711)]
    size_bytes: usize,
    /// How many bytes all parts have.
    #[schema(minimum = 1, maximum = 67_108_864, example = 4711)]
    bytes_received: i64,
}

/// The bytes of a part.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary, min_length = 1)]
#[expect(dead_code, reason = "how a part travels, for the document")]
pub(crate) struct PartBytes(Vec<u8>);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// What is looked up.
    q: Question,
    /// The most chunks that are shown.
    #[param(minimum = 1, maximum = 200, example = 10)]
    #[serde(default = "default_results")]
    limit: u16,
}

/// What was found.
#[derive(Serialize, ToSchema)]
#[schema(as = FoundChunks)]
pub(crate) struct Found {
    /// The best first.
    #[schema(max_items = 200)]
    chunks: Vec<ShownChunk>,
}

const fn default_results() -> u16 {
    10
}

/// Declares a skills book, whose parts are sent then.
#[utoipa::path(
    post, path = "/v1/skills-books", tag = "Skills books", operation_id = "createSkillsBook",
    request_body(content = shape::Begun),
    responses((status = 201, body = ShownBook, description = "It is declared", headers(("Location" = String, description = "Where it is")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Author(author): Author,
    Acting(control): Acting,
    Once(ticket, Json(Unambiguous(document))): Once<Json<Unambiguous>>,
) -> Result<Response, ControlError> {
    control.place_for_books()?;
    let new = shape::read(&document, SkillsBookId::from_uuid(Uuid::now_v7()))?;
    let mut creation = ticket.begin(&control.store, author).await?;
    let book = creation.begin_skills_book(author, &new).await?;
    let id = book.id;
    let made = Made::new(&ShownBook::from(book)).at(format!("/v1/skills-books/{id}"));
    let response = ticket.commit(creation, made).await?;
    tracing::info!(owner = %author, skills_book.id = %id, "a skills book was begun");
    Ok(response)
}

/// Lists own skills books and public ones.
#[utoipa::path(
    get, path = "/v1/skills-books", tag = "Skills books", operation_id = "listSkillsBooks",
    params(Paging),
    responses((status = 200, body = SkillsBooks, description = "A page of skills books")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<SkillsBooks>, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let list = List::of("/v1/skills-books", reader);
    let after = list.after(paging.cursor)?;
    let store = &control.store;
    let found = store.skills_books(reader, after, limit.probe()).await?;
    let (page, next_cursor) = limit.cut(found, |book| list.behind(book.id));
    Ok(axum::Json(SkillsBooks {
        skills_books: page.into_iter().map(ShownBook::from).collect(),
        next_cursor,
    }))
}

/// Shows a skills book, and how far it is.
#[utoipa::path(
    get, path = "/v1/skills-books/{id}", tag = "Skills books", operation_id = "getSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 200, body = ShownBook, description = "The skills book")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<axum::Json<ShownBook>, ControlError> {
    Ok(axum::Json(control.skills_book(reader, &id).await?.into()))
}

/// Stores a part, 8 MiB at most, in any order; written again, the last one counts.
#[utoipa::path(
    put, path = "/v1/skills-books/{id}/parts/{number}", tag = "Skills books", operation_id = "writeSkillsBookPart",
    params(("id" = SkillsBookId, Path, description = "The skills book"), ("number" = PartNumber, Path, description = "Which part, from 1 on")),
    request_body(content = inline(PartBytes), content_type = "application/octet-stream", description = "The bytes of the part, one at least; any Content-Type is taken."),
    responses((status = 200, body = WrittenPart, description = "It is stored")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["invalid_part_number", "not_found", "operator_only", "skills_book_not_uploading", "larger_than_declared", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn write_part(
    Author(author): Author,
    Acting(control): Acting,
    Path((id, number)): Path<(String, String)>,
    RawBody(bytes): RawBody,
) -> Result<axum::Json<WrittenPart>, ControlError> {
    control.place_for_books()?;
    let part = PartNumber::parse(&number).ok_or_else(|| refusals::part_number(&number))?;
    if bytes.is_empty() {
        return Err(refusals::empty_part().into());
    }
    let book = control.own_skills_book(author, &id).await?.id;
    let size_bytes = bytes.len();
    let store = &control.store;
    match store
        .write_skills_book_part(author, book, part.get(), bytes)
        .await?
    {
        PartWrite::Written { bytes_received } => Ok(axum::Json(WrittenPart {
            part,
            size_bytes,
            bytes_received,
        })),
        PartWrite::Unknown => Err(ControlError::unknown("skills book", &id)),
        PartWrite::NotUploading(state) => Err(refusals::takes_no_parts(state).into()),
        PartWrite::TooLarge { declared, would_be } => {
            Err(refusals::larger_than_declared(declared, would_be).into())
        }
    }
}

/// Says that all parts are sent; the skills book is then read. Again changes nothing.
#[utoipa::path(
    post, path = "/v1/skills-books/{id}/finish", tag = "Skills books", operation_id = "finishSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 202, body = ShownBook, description = "It is whole, and is being read or was")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "skills_book_over", "parts_missing", "size_mismatch", "sha256_mismatch", "parts_changed", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn finish(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<Response, ControlError> {
    control.place_for_books()?;
    let book = control.own_skills_book(author, &id).await?.id;
    let problem = match control.store.finish_skills_book(author, book).await? {
        BookFinish::Accepted(book) => {
            tracing::info!(owner = %author, skills_book.id = %book.id, "a skills book is whole");
            return Ok((StatusCode::ACCEPTED, axum::Json(ShownBook::from(*book))).into_response());
        }
        BookFinish::Unknown => return Err(ControlError::unknown("skills book", &id)),
        BookFinish::Over(state) => refusals::over(state, "finished"),
        BookFinish::Missing { parts, count } => refusals::parts_missing(&parts, count),
        BookFinish::WrongSize { declared, sent } => refusals::wrong_size(declared, sent),
        BookFinish::WrongHash { sent } => refusals::wrong_hash(&sent),
        BookFinish::Changed => refusals::changed(),
    };
    Err(problem.into())
}

/// Gives up a skills book that is not ready yet: its parts and chunks go, the entry stays. Again changes nothing.
#[utoipa::path(
    post, path = "/v1/skills-books/{id}/cancel", tag = "Skills books", operation_id = "cancelSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 200, body = ShownBook, description = "It is given up")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "skills_book_over", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn cancel(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<axum::Json<ShownBook>, ControlError> {
    control.place_for_books()?;
    let book = control.own_skills_book(author, &id).await?.id;
    match control.store.cancel_skills_book(author, book).await? {
        BookCancel::Cancelled(book) => {
            tracing::info!(owner = %author, skills_book.id = %book.id, "a skills book was given up");
            Ok(axum::Json((*book).into()))
        }
        BookCancel::Unknown => Err(ControlError::unknown("skills book", &id)),
        BookCancel::Over(state) => Err(refusals::over(state, "cancelled").into()),
    }
}

/// Removes a skills book that no template or NPC names, in whatever state, with all of its bytes.
#[utoipa::path(
    delete, path = "/v1/skills-books/{id}", tag = "Skills books", operation_id = "removeSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book")),
    responses((status = 204, description = "It is gone")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "operator_only", "skills_book_in_use", "objects_not_configured", "store_unavailable"]))),
)]
pub(crate) async fn remove(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    control.place_for_books()?;
    let book = control.own_skills_book(author, &id).await?.id;
    match control.store.delete_skills_book(author, book).await? {
        BookRemoval::Removed => {}
        BookRemoval::Unknown => return Err(ControlError::unknown("skills book", &id)),
        BookRemoval::InUse => return Err(refusals::in_use().into()),
    }
    tracing::info!(owner = %author, skills_book.id = %book, "a skills book was removed");
    let uri = ReadyBook::uri_of(book);
    control.resources_changed(author, Some(uri)).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Tries what is found in a skills book.
#[utoipa::path(
    get, path = "/v1/skills-books/{id}/search", tag = "Skills books", operation_id = "searchSkillsBook",
    params(("id" = SkillsBookId, Path, description = "The skills book"), Search),
    responses((status = 200, body = Found, description = "The chunks that fit best")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn search(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(asked): Query<Search>,
) -> Result<axum::Json<Found>, ControlError> {
    let limit = Limit::new(asked.limit)?;
    let book = control.skills_book(reader, &id).await?.id;
    let question = asked.q.as_str();
    let meaning = control.meaning(question).await;
    let store = &control.store;
    let found = store
        .search_skills_book(
            reader,
            book,
            question,
            meaning.as_ref(),
            limit.count().into(),
        )
        .await?;
    Ok(axum::Json(Found {
        chunks: found.into_iter().map(ShownChunk::from).collect(),
    }))
}

impl Control {
    fn place_for_books(&self) -> Result<(), Problem> {
        self.store.objects().map(drop).ok_or_else(no_objects)
    }

    /// A skills book that this reader sees.
    async fn skills_book(&self, reader: Owner, id: &str) -> Result<SkillsBook, ControlError> {
        let unknown = || ControlError::unknown("skills book", id);
        let id: SkillsBookId = id.parse().map_err(|_| unknown())?;
        self.store
            .skills_book(reader, id)
            .await?
            .ok_or_else(unknown)
    }

    /// A skills book that this author may change.
    async fn own_skills_book(&self, author: Owner, id: &str) -> Result<SkillsBook, ControlError> {
        let book = self.skills_book(author, id).await?;
        if book.owner == author {
            return Ok(book);
        }
        Err(forbidden("Only the operator may change what is public.").into())
    }
}
