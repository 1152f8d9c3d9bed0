//! Skills books as resources: what is in a book, one chunk of it, and what it says about a question.
//! Never: a whole book in one answer; it can have 64 MiB.

use rmcp::{
    ErrorData,
    model::{CompletionContext, CompletionInfo},
};
use serde::Serialize;
use serde_json::json;
use switchboard_protocol::id::SkillsBookId;
use switchboard_store::{
    BookFilter, BookPlace, ListedResource, Owner, ReadyBook, Resource, ResourceBody,
};

use super::{
    book_uri::{self, Place, uri_of_chunk},
    knowledge::{Readable, unreadable},
};
use crate::Gateway;

/// Chunks of all books.
const CHUNKS: &str = "switchboard://skills-books/{id}/chunks/{n}";
/// Searches in all books.
const SEARCHES: &str = "switchboard://skills-books/{id}/search{?q}";
const JSON: &str = "application/json";
/// The most places that a book's table of contents has. Protects a model's context.
const MOST_PLACES: u32 = 500;
/// How many chunks a search finds.
const FOUND: u32 = 10;

/// What is in a book.
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

/// Where another heading or page begins.
#[derive(Serialize)]
struct Heading {
    chunk: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    heading: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<i32>,
}

/// A chunk as it is read and found.
#[derive(Serialize)]
struct Chunk {
    #[serde(flatten)]
    place: Heading,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    uri: String,
    text: String,
}

impl From<BookPlace> for Heading {
    fn from(place: BookPlace) -> Self {
        Self {
            chunk: place.chunk,
            heading: place.heading,
            page: place.page,
        }
    }
}

/// The ready books that somebody reads.
pub(super) async fn list(
    gateway: &Gateway,
    readable: Readable<'_>,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<ListedResource>, ErrorData> {
    let (org, among) = (readable.org(), readable.books());
    let store = &gateway.store;
    let found = store.list_skills_book_resources(org, among, after, limit);
    found.await.map_err(|error| unreadable(&error))
}

/// How chunks and searches are asked for, where there is a book.
pub(super) async fn list_templates(
    gateway: &Gateway,
    readable: Readable<'_>,
    after: Option<&str>,
) -> Result<Vec<ListedResource>, ErrorData> {
    if list(gateway, readable, None, 1).await?.is_empty() {
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
            CHUNKS,
            "skills-book-chunk",
            "A chunk of a skills book",
            "About 1000 characters of the book with this id; chunks are numbered from 0",
        ),
        template(
            SEARCHES,
            "skills-book-search",
            "A search in a skills book",
            "The chunks of the book with this id that fit a question best",
        ),
    ];
    let behind = templates
        .into_iter()
        .filter(|template| after.is_none_or(|after| template.uri.as_str() > after));
    Ok(behind.collect())
}

/// What stands under a URI, if it is one of a ready book that is there to be read.
pub(super) async fn find(
    gateway: &Gateway,
    readable: Readable<'_>,
    uri: &str,
) -> Result<Option<Resource>, ErrorData> {
    let Some((id, place)) = book_uri::parse(uri) else {
        return Ok(None);
    };
    let Some(book) = ready(gateway, readable, id).await? else {
        return Ok(None);
    };
    let (title, text) = match place {
        Place::Contents => (book.name.clone(), contents(gateway, readable, &book).await?),
        Place::Chunk(number) => {
            let org = readable.org();
            let found = gateway.store.skills_book_chunk(org, id, number).await;
            let Some(found) = found.map_err(|error| unreadable(&error))? else {
                return Ok(None);
            };
            (
                format!("{}, chunk {number}", book.name),
                chunk(&book, found),
            )
        }
        Place::Search(question) => {
            let question = book_uri::asked(question)?;
            let found = search(gateway, readable, id, &question).await?;
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

/// Suggestions for what stands in an expression of a template here.
pub(super) async fn complete(
    gateway: &Gateway,
    readable: Readable<'_>,
    template: &str,
    (name, begun): (&str, &str),
    context: Option<&CompletionContext>,
) -> Result<Vec<String>, ErrorData> {
    let most = CompletionInfo::MAX_VALUES;
    match (template, name) {
        (CHUNKS | SEARCHES, "id") => {
            let filter = BookFilter {
                among: readable.books(),
                begins: begun,
            };
            let limit = u32::try_from(most).unwrap_or(u32::MAX);
            let store = &gateway.store;
            let found = store.ready_skills_books(readable.org(), filter, None, limit);
            let found = found.await.map_err(|error| unreadable(&error))?;
            Ok(found.into_iter().map(|book| book.id.to_string()).collect())
        }
        (CHUNKS, "n") => {
            let known = context.and_then(|context| context.arguments.as_ref());
            let id = known.and_then(|known| known.get("id")?.parse().ok());
            let Some(id) = id else {
                return Ok(Vec::new());
            };
            let book = ready(gateway, readable, id).await?;
            let numbers = 0..book.map_or(0, |book| book.chunks);
            let numbers = numbers.map(|number| number.to_string());
            let begun = numbers.filter(|number| number.starts_with(begun));
            Ok(begun.take(most).collect())
        }
        _ => Ok(Vec::new()),
    }
}

async fn ready(
    gateway: &Gateway,
    readable: Readable<'_>,
    id: SkillsBookId,
) -> Result<Option<ReadyBook>, ErrorData> {
    if readable.books().is_some_and(|books| !books.contains(&id)) {
        return Ok(None);
    }
    let filter = BookFilter {
        among: Some(&[id]),
        begins: "",
    };
    let found = gateway
        .store
        .ready_skills_books(readable.org(), filter, None, 1)
        .await;
    let found = found.map_err(|error| unreadable(&error))?;
    Ok(found.into_iter().next())
}

async fn contents(
    gateway: &Gateway,
    readable: Readable<'_>,
    book: &ReadyBook,
) -> Result<String, ErrorData> {
    let (org, id) = (readable.org(), book.id);
    let store = &gateway.store;
    let places = store.skills_book_places(org, id, MOST_PLACES + 1).await;
    let mut places = places.map_err(|error| unreadable(&error))?;
    let most = usize::try_from(MOST_PLACES).unwrap_or(usize::MAX);
    let contents_complete = places.len() <= most;
    places.truncate(most);
    let with_id = |template: &str| template.replace("{id}", &id.to_string());
    let contents = Contents {
        id,
        name: &book.name,
        mime_type: &book.mime_type,
        chunks: book.chunks,
        chunk_uri: with_id(CHUNKS),
        search_uri: with_id(SEARCHES),
        contents: places.into_iter().map(Heading::from).collect(),
        contents_complete,
    };
    Ok(json!(contents).to_string())
}

fn chunk(book: &ReadyBook, found: switchboard_store::BookChunk) -> String {
    let number = found.place.chunk;
    let neighbour = |number: Option<i32>| {
        let there = number.filter(|number| (0..book.chunks).contains(number));
        there.map(|number| uri_of_chunk(book.id, number))
    };
    let mut read = json!(Chunk {
        place: found.place.into(),
        score: None,
        uri: uri_of_chunk(book.id, number),
        text: found.text,
    });
    read["previous"] = json!(neighbour(number.checked_sub(1)));
    read["next"] = json!(neighbour(number.checked_add(1)));
    read.to_string()
}

async fn search(
    gateway: &Gateway,
    readable: Readable<'_>,
    id: SkillsBookId,
    question: &str,
) -> Result<String, ErrorData> {
    let reader = Owner::Org(readable.org());
    let store = &gateway.store;
    let found = store.search_skills_book(reader, id, question, None, FOUND);
    let found = found.await.map_err(|error| unreadable(&error))?;
    let chunks = found.into_iter().map(|found| Chunk {
        uri: uri_of_chunk(id, found.number),
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
