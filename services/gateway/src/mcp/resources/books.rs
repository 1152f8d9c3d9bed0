//! Skills books as resources: the contents of a book, its chunks, and searches in it.
//!
//! Invariant: no response contains a whole book, which can have 64 MiB.

use rmcp::{
    ErrorData,
    model::{CompletionContext, CompletionInfo},
};
use serde::Serialize;
use serde_json::json;
use switchboard_catalog::ListedResource;
use switchboard_protocol::id::SkillsBookId;
use switchboard_store::{BookFilter, BookSection, Owner, ReadyBook, Resource, ResourceBody};

use super::book_uri::{self, BookPart, chunk_uri};
use crate::{
    Gateway,
    mcp::readable::{ReadScope, unavailable},
};

/// URI template of chunks.
const CHUNK_TEMPLATE: &str = "switchboard://skills-books/{id}/chunks/{n}";
/// URI template of searches.
const SEARCH_TEMPLATE: &str = "switchboard://skills-books/{id}/search{?q}";
const JSON: &str = "application/json";
/// Entries in a table of contents. Protects the context of a model.
const MAX_HEADINGS: u32 = 500;
/// Chunks that a search returns.
const SEARCH_LIMIT: u32 = 10;

/// A book's table of contents.
#[derive(Serialize)]
struct Contents<'a> {
    id: SkillsBookId,
    name: &'a str,
    mime_type: &'a str,
    chunks: i32,
    chunk_uri: String,
    search_uri: String,
    contents: Vec<Heading>,
    contents_complete: bool,
}

/// The chunk in which a heading or a page begins.
#[derive(Serialize)]
struct Heading {
    chunk: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    heading: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<i32>,
}

/// A chunk of a book, with its score if it was found by a search.
#[derive(Serialize)]
struct Chunk {
    #[serde(flatten)]
    place: Heading,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    uri: String,
    text: String,
}

impl From<BookSection> for Heading {
    fn from(place: BookSection) -> Self {
        Self {
            chunk: place.chunk,
            heading: place.heading,
            page: place.page,
        }
    }
}

/// The ready books in a scope.
pub(super) async fn list(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<ListedResource>, ErrorData> {
    let (org, among) = (scope.org(), scope.books());
    let store = &gateway.store;
    let found = store.list_skills_book_resources(org, among, after, limit);
    found.await.map_err(|error| unavailable(&error))
}

/// The URI templates, if the scope has a book.
pub(super) async fn list_templates(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    after: Option<&str>,
) -> Result<Vec<ListedResource>, ErrorData> {
    if list(gateway, scope, None, 1).await?.is_empty() {
        return Ok(Vec::new());
    }
    let template = |uri: &str, name: &str, title: &str, description: &str| ListedResource {
        uri: uri.to_owned(),
        name: name.to_owned(),
        title: title.to_owned(),
        description: Some(description.to_owned()),
        mime_type: JSON.to_owned(),
        size_bytes: None,
    };
    let templates = [
        template(
            CHUNK_TEMPLATE,
            "skills-book-chunk",
            "A chunk of a skills book",
            "About 1000 characters of the book with this id; chunks are numbered from 0",
        ),
        template(
            SEARCH_TEMPLATE,
            "skills-book-search",
            "A search in a skills book",
            "The chunks of the book with this id that match a question best",
        ),
    ];
    let remaining = templates
        .into_iter()
        .filter(|template| after.is_none_or(|after| template.uri.as_str() > after));
    Ok(remaining.collect())
}

/// The resource with this URI. `None` if it does not name a part of a ready book in the scope.
pub(super) async fn find(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    uri: &str,
) -> Result<Option<Resource>, ErrorData> {
    let Some((id, part)) = book_uri::parse(uri) else {
        return Ok(None);
    };
    let Some(book) = ready(gateway, scope, id).await? else {
        return Ok(None);
    };
    let (title, text) = match part {
        BookPart::Contents => (book.name.clone(), contents(gateway, scope, &book).await?),
        BookPart::Chunk(number) => {
            let org = scope.org();
            let found = gateway.store.skills_book_chunk(org, id, number).await;
            let Some(found) = found.map_err(|error| unavailable(&error))? else {
                return Ok(None);
            };
            (
                format!("{}, chunk {number}", book.name),
                chunk(&book, found),
            )
        }
        BookPart::Search(question) => {
            let question = book_uri::parse_question(question)?;
            let found = search(gateway, scope, id, &question).await?;
            (format!("{}: {question}", book.name), found)
        }
    };
    Ok(Some(Resource {
        uri: uri.to_owned(),
        name: id.to_string(),
        title,
        description: None,
        mime_type: JSON.to_owned(),
        body: ResourceBody::Text(text),
    }))
}

/// Completions of an expression in one of the templates.
pub(super) async fn complete(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    template: &str,
    (name, prefix): (&str, &str),
    context: Option<&CompletionContext>,
) -> Result<Vec<String>, ErrorData> {
    let max = CompletionInfo::MAX_VALUES;
    match (template, name) {
        (CHUNK_TEMPLATE | SEARCH_TEMPLATE, "id") => {
            let filter = BookFilter {
                among: scope.books(),
                begins: prefix,
            };
            let limit = u32::try_from(max).unwrap_or(u32::MAX);
            let store = &gateway.store;
            let found = store.ready_skills_books(scope.org(), filter, None, limit);
            let found = found.await.map_err(|error| unavailable(&error))?;
            Ok(found.into_iter().map(|book| book.id.to_string()).collect())
        }
        (CHUNK_TEMPLATE, "n") => {
            let arguments = context.and_then(|context| context.arguments.as_ref());
            let id = arguments.and_then(|arguments| arguments.get("id")?.parse().ok());
            let Some(id) = id else {
                return Ok(Vec::new());
            };
            let book = ready(gateway, scope, id).await?;
            let numbers = 0..book.map_or(0, |book| book.chunks);
            let numbers = numbers.map(|number| number.to_string());
            let matching = numbers.filter(|number| number.starts_with(prefix));
            Ok(matching.take(max).collect())
        }
        _ => Ok(Vec::new()),
    }
}

async fn ready(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    id: SkillsBookId,
) -> Result<Option<ReadyBook>, ErrorData> {
    if scope.books().is_some_and(|books| !books.contains(&id)) {
        return Ok(None);
    }
    let filter = BookFilter {
        among: Some(&[id]),
        begins: "",
    };
    let found = gateway
        .store
        .ready_skills_books(scope.org(), filter, None, 1)
        .await;
    let found = found.map_err(|error| unavailable(&error))?;
    Ok(found.into_iter().next())
}

async fn contents(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    book: &ReadyBook,
) -> Result<String, ErrorData> {
    let (org, id) = (scope.org(), book.id);
    let store = &gateway.store;
    let headings = store.skills_book_sections(org, id, MAX_HEADINGS + 1).await;
    let mut headings = headings.map_err(|error| unavailable(&error))?;
    let max = usize::try_from(MAX_HEADINGS).unwrap_or(usize::MAX);
    let contents_complete = headings.len() <= max;
    headings.truncate(max);
    let with_id = |template: &str| template.replace("{id}", &id.to_string());
    let contents = Contents {
        id,
        name: &book.name,
        mime_type: &book.mime_type,
        chunks: book.chunks,
        chunk_uri: with_id(CHUNK_TEMPLATE),
        search_uri: with_id(SEARCH_TEMPLATE),
        contents: headings.into_iter().map(Heading::from).collect(),
        contents_complete,
    };
    Ok(json!(contents).to_string())
}

fn chunk(book: &ReadyBook, found: switchboard_store::BookChunk) -> String {
    let number = found.place.chunk;
    let neighbour = |number: Option<i32>| {
        let existing = number.filter(|number| (0..book.chunks).contains(number));
        existing.map(|number| chunk_uri(book.id, number))
    };
    let mut document = json!(Chunk {
        place: found.place.into(),
        score: None,
        uri: chunk_uri(book.id, number),
        text: found.text,
    });
    document["previous"] = json!(neighbour(number.checked_sub(1)));
    document["next"] = json!(neighbour(number.checked_add(1)));
    document.to_string()
}

async fn search(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    id: SkillsBookId,
    question: &str,
) -> Result<String, ErrorData> {
    let owner = Owner::Org(scope.org());
    let store = &gateway.store;
    let found = store.search_skills_book(owner, id, question, None, SEARCH_LIMIT);
    let found = found.await.map_err(|error| unavailable(&error))?;
    let chunks = found.into_iter().map(|found| Chunk {
        uri: chunk_uri(id, found.number),
        place: Heading {
            chunk: found.number,
            heading: found.heading,
            page: found.page,
        },
        score: Some(found.score),
        text: found.text,
    });
    let chunks: Vec<_> = chunks.collect();
    Ok(json!({"q": question, "chunks": chunks}).to_string())
}
