//! `/v1/templates/{id}/memories` and `/v1/memories/{id}`: what templates remember, and NPCs likewise.
//! Never: a batch stored in part.

mod shape;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};
use switchboard_runtime::problem::{Json, Path, Problem, Query};
use switchboard_store::{
    Memory, MemoryFilter, MemoryHolder, MemoryPolicy, MemoryQuestion, MemoryWrite, NewMemory, Owner,
};

use crate::{
    Control,
    access::{Author, Reader},
    document::Unambiguous,
    error::ControlError,
    paging::{self, Limit},
};
pub(crate) use shape::refuse_own_scheme;
use shape::{Sent, ShownMemory};

/// The most characters that can be asked for.
const LONGEST_QUESTION: usize = 500;

/// A page of the list.
#[derive(Serialize)]
pub(crate) struct Memories {
    memories: Vec<ShownMemory>,
    next_cursor: Option<MemoryId>,
}

/// What a batch became.
#[derive(Serialize)]
struct Stored {
    memories: Vec<ShownMemory>,
}

/// The query string of a list: all in their order, or those that speak of `q`, best first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    #[serde(default = "paging::default_limit")]
    limit: u16,
    cursor: Option<MemoryId>,
    q: Option<String>,
    subject: Option<String>,
    kind: Option<String>,
}

/// Whose memories are read, and how.
pub(crate) struct Reading<'a> {
    pub(crate) reader: Owner,
    pub(crate) template: Option<TemplateId>,
    pub(crate) npc: Option<NpcId>,
    pub(crate) locale: Option<&'a str>,
}

pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    Author(author): Author,
    Path(id): Path<String>,
    Json(Unambiguous(document)): Json<Unambiguous>,
) -> Result<Response, ControlError> {
    let template = control.templates().find_own(author, &id).await?;
    let policy = &template.settings.memory;
    control
        .remember(author, template.id.into(), policy, &document)
        .await
}

pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(listing): Query<Listing>,
) -> Result<axum::Json<Memories>, ControlError> {
    listing.check()?;
    let template = control.templates().find(reader, &id).await?;
    let reading = Reading {
        reader,
        template: Some(template.id),
        npc: None,
        locale: template.settings.locale.as_deref(),
    };
    control.recall(reading, listing).await
}

pub(crate) async fn remove(
    State(control): State<Arc<Control>>,
    Author(author): Author,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let unknown = || ControlError::unknown("memory", &id);
    let memory: MemoryId = id.parse().map_err(|_| unknown())?;
    if !control.memories().remove(author, memory).await? {
        return Err(unknown());
    }
    tracing::info!(owner = %author, memory.id = %memory, "a memory was removed");
    Ok(StatusCode::NO_CONTENT)
}

impl Listing {
    /// What is wrong with it, before anything is looked for.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let texts = [&self.q, &self.subject, &self.kind];
        if texts.into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(refused("no parameter may have the character U+0000."));
        }
        let Some(q) = &self.q else {
            return Ok(());
        };
        if self.cursor.is_some() {
            let reason =
                "`q` asks for the best ones, as many as `limit` says, and has no `cursor`.";
            return Err(refused(reason));
        }
        if (1..=LONGEST_QUESTION).contains(&q.chars().count()) {
            return Ok(());
        }
        let reason = format!("`q` must have 1 to {LONGEST_QUESTION} characters.");
        Err(refused(&reason))
    }
}

fn refused(reason: &str) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "invalid_query",
        "Invalid query",
        reason,
    )
}

impl Control {
    const fn memories(&self) -> MemoryWriter<'_> {
        MemoryWriter { control: self }
    }

    /// Stores the memories that a body holds.
    pub(crate) async fn remember(
        &self,
        author: Owner,
        holder: MemoryHolder,
        policy: &MemoryPolicy,
        document: &Value,
    ) -> Result<Response, ControlError> {
        let sent = shape::read(document, policy)?;
        let stored = self.memories().add(author, holder, &sent).await?;
        let path = match holder {
            MemoryHolder::Template(id) => format!("/v1/templates/{id}/memories"),
            MemoryHolder::Npc(id) => format!("/v1/npcs/{id}/memories"),
        };
        tracing::info!(owner = %author, path, memories = stored.len(), "memories were added");
        let mut shown: Vec<_> = stored.into_iter().map(ShownMemory::from).collect();
        let body = match (&sent, shown.pop()) {
            (Sent::One(_), Some(one)) => axum::Json(one).into_response(),
            (_, last) => {
                shown.extend(last);
                axum::Json(Stored { memories: shown }).into_response()
            }
        };
        let place = match sent {
            Sent::One(memory) => format!("/v1/memories/{}", memory.id),
            Sent::Batch(_) => path,
        };
        Ok((StatusCode::CREATED, [(header::LOCATION, place)], body).into_response())
    }

    /// Reads memories as a checked query string asks for them.
    pub(crate) async fn recall(
        &self,
        reading: Reading<'_>,
        listing: Listing,
    ) -> Result<axum::Json<Memories>, ControlError> {
        let limit = Limit::new(listing.limit)?;
        let filter = MemoryFilter {
            template: reading.template,
            npc: reading.npc,
            subject: listing.subject,
            kind: listing.kind,
        };
        let (store, reader) = (&self.store, reading.reader);
        let Some(text) = listing.q.as_deref() else {
            let found = store.memories(reader, &filter, listing.cursor, limit.probe());
            let (page, next_cursor) = limit.cut(found.await?, |memory| memory.id);
            return Ok(axum::Json(Memories {
                memories: page.into_iter().map(ShownMemory::from).collect(),
                next_cursor,
            }));
        };
        let question = MemoryQuestion {
            text,
            locale: reading.locale,
        };
        let best = listing.limit.into();
        let found = store
            .search_memories(reader, &filter, question, best)
            .await?;
        Ok(axum::Json(Memories {
            memories: found.into_iter().map(ShownMemory::from).collect(),
            next_cursor: None,
        }))
    }
}

/// The one way in which memories change.
struct MemoryWriter<'a> {
    control: &'a Control,
}

impl MemoryWriter<'_> {
    async fn add(
        &self,
        author: Owner,
        holder: MemoryHolder,
        sent: &Sent,
    ) -> Result<Vec<Memory>, ControlError> {
        let memories: &[NewMemory] = sent.memories();
        let store = &self.control.store;
        match store.add_memories(author, holder, memories).await? {
            MemoryWrite::Written(stored) => {
                let uri = match stored.as_slice() {
                    [one] => Some(one.uri.to_string()),
                    _ => None,
                };
                self.control.resources_changed(author, uri).await;
                Ok(stored)
            }
            MemoryWrite::UnknownHolder => Err(match holder {
                MemoryHolder::Template(id) => ControlError::unknown("template", &id.to_string()),
                MemoryHolder::Npc(id) => ControlError::unknown("NPC", &id.to_string()),
            }),
            MemoryWrite::UriTaken(index) => Err(uri_taken(&sent.place(index)).into()),
        }
    }

    async fn remove(&self, author: Owner, memory: MemoryId) -> Result<bool, ControlError> {
        let removed = self.control.store.delete_memory(author, memory).await?;
        if removed {
            self.control.resources_changed(author, None).await;
        }
        Ok(removed)
    }
}

fn uri_taken(place: &str) -> Problem {
    let pointer = format!("{place}/uri");
    Problem::new(
        StatusCode::CONFLICT,
        "uri_taken",
        "URI taken",
        format!("Something else is read under the URI in `{pointer}`; choose another, and nothing was stored."),
    )
    .with("pointer", pointer)
}
