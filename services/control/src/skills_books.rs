//! `/v1/skills-books`: documents that characters look things up in, sent in parts and searched.
//! Never: a document read while somebody waits for an answer; that is `ingestion`'s work.

mod refusals;
mod shape;

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::SkillsBookId;
use switchboard_runtime::problem::{Json, Path, Problem, Query, RawBody};
use switchboard_store::{BookCancel, BookFinish, BookRemoval, Owner, PartWrite, SkillsBook};
use uuid::Uuid;

use crate::{
    Control,
    access::{Author, Reader, forbidden},
    document::Unambiguous,
    error::{ControlError, no_objects},
    paging::{Limit, Paging},
};
use shape::{ShownBook, ShownChunk};

/// Where parts are sent, for whoever serves the router.
pub(crate) const PART_PATHS: &str = "/v1/skills-books/*/parts/*";
/// The largest part, in bytes. Protects memory: a part is held whole until it is stored.
pub(crate) const LARGEST_PART_BYTES: usize = 8 * 1024 * 1024;
/// The last part's number.
const LAST_PART: i32 = 10_000;
/// The longest question, in characters.
const LONGEST_QUESTION: usize = 1_000;

/// A page of the list.
#[derive(Serialize)]
pub(crate) struct SkillsBooks {
    skills_books: Vec<ShownBook>,
    next_cursor: Option<SkillsBookId>,
}

/// What is there after a part was written.
#[derive(Serialize)]
pub(crate) struct WrittenPart {
    part: i32,
    size_bytes: usize,
    /// In all parts.
    bytes_received: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    q: String,
    #[serde(default = "default_results")]
    limit: u16,
}

/// What was found, the best first.
#[derive(Serialize)]
pub(crate) struct Found {
    chunks: Vec<ShownChunk>,
}

const fn default_results() -> u16 {
    10
}

pub(crate) fn routes() -> Router<Arc<Control>> {
    let part = put(write_part).layer(DefaultBodyLimit::max(LARGEST_PART_BYTES));
    Router::new()
        .route("/v1/skills-books", post(create).get(list))
        .route("/v1/skills-books/{id}", get(show).delete(remove))
        .route("/v1/skills-books/{id}/parts/{number}", part)
        .route("/v1/skills-books/{id}/finish", post(finish))
        .route("/v1/skills-books/{id}/cancel", post(cancel))
        .route("/v1/skills-books/{id}/search", get(search))
}

async fn create(
    State(control): State<Arc<Control>>,
    Author(author): Author,
    Json(Unambiguous(document)): Json<Unambiguous>,
) -> Result<Response, ControlError> {
    control.place_for_books()?;
    let new = shape::read(&document, SkillsBookId::from_uuid(Uuid::now_v7()))?;
    let book = control.store.begin_skills_book(author, &new).await?;
    tracing::info!(owner = %author, skills_book.id = %book.id, "a skills book was begun");
    let place = [(header::LOCATION, format!("/v1/skills-books/{}", book.id))];
    let shown = axum::Json(ShownBook::from(book));
    Ok((StatusCode::CREATED, place, shown).into_response())
}

async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(paging): Query<Paging<SkillsBookId>>,
) -> Result<axum::Json<SkillsBooks>, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let store = &control.store;
    let found = store
        .skills_books(reader, paging.cursor, limit.probe())
        .await?;
    let (page, next_cursor) = limit.cut(found, |book| book.id);
    Ok(axum::Json(SkillsBooks {
        skills_books: page.into_iter().map(ShownBook::from).collect(),
        next_cursor,
    }))
}

async fn show(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
) -> Result<axum::Json<ShownBook>, ControlError> {
    Ok(axum::Json(control.skills_book(reader, &id).await?.into()))
}

async fn write_part(
    State(control): State<Arc<Control>>,
    Author(author): Author,
    Path((id, number)): Path<(String, String)>,
    RawBody(bytes): RawBody,
) -> Result<axum::Json<WrittenPart>, ControlError> {
    control.place_for_books()?;
    let known = number
        .parse()
        .ok()
        .filter(|part| (1..=LAST_PART).contains(part));
    let part: i32 = known.ok_or_else(|| refusals::part_number(&number))?;
    if bytes.is_empty() {
        return Err(refusals::empty_part().into());
    }
    let book = control.own_skills_book(author, &id).await?.id;
    let size_bytes = bytes.len();
    let store = &control.store;
    match store
        .write_skills_book_part(author, book, part, bytes)
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

async fn finish(
    State(control): State<Arc<Control>>,
    Author(author): Author,
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

async fn cancel(
    State(control): State<Arc<Control>>,
    Author(author): Author,
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

async fn remove(
    State(control): State<Arc<Control>>,
    Author(author): Author,
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
    Ok(StatusCode::NO_CONTENT)
}

async fn search(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(asked): Query<Question>,
) -> Result<axum::Json<Found>, ControlError> {
    let limit = Limit::new(asked.limit)?;
    let question = asked.q.trim();
    let fits = (1..=LONGEST_QUESTION).contains(&question.chars().count());
    if !fits || question.contains('\0') {
        return Err(refusals::question(LONGEST_QUESTION).into());
    }
    let book = control.skills_book(reader, &id).await?.id;
    let store = &control.store;
    let found = store
        .search_skills_book(reader, book, question, limit.count().into())
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
