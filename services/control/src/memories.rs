//! `/v1/templates/{id}/memories` and `/v1/memories/{id}`: what templates remember.
//! Never: a batch stored in part.

mod shape;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde::Serialize;
use switchboard_protocol::id::{MemoryId, TemplateId};
use switchboard_runtime::problem::{Json, Path, Problem, Query};
use switchboard_store::{Memory, MemoryWrite, NewMemory, Owner};

use crate::{
    Control,
    access::{Author, Reader},
    document::Unambiguous,
    error::ControlError,
    paging::{Limit, Paging},
};
pub(crate) use shape::refuse_own_scheme;
use shape::{Sent, ShownMemory};

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

pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    Author(author): Author,
    Path(id): Path<String>,
    Json(Unambiguous(document)): Json<Unambiguous>,
) -> Result<Response, ControlError> {
    let template = control.templates().find_own(author, &id).await?;
    let sent = shape::read(&document, &template.settings.memory)?;
    let stored = control.memories().add(author, template.id, &sent).await?;
    tracing::info!(owner = %author, template.id = %template.id, memories = stored.len(), "memories were added");
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
        Sent::Batch(_) => format!("/v1/templates/{}/memories", template.id),
    };
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], body).into_response())
}

pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Path(id): Path<String>,
    Query(paging): Query<Paging<MemoryId>>,
) -> Result<axum::Json<Memories>, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let template = control.templates().find(reader, &id).await?.id;
    let found = control
        .store
        .memories(reader, template, paging.cursor, limit.probe())
        .await?;
    let (page, next_cursor) = limit.cut(found, |memory| memory.id);
    Ok(axum::Json(Memories {
        memories: page.into_iter().map(ShownMemory::from).collect(),
        next_cursor,
    }))
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

impl Control {
    const fn memories(&self) -> MemoryWriter<'_> {
        MemoryWriter { control: self }
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
        template: TemplateId,
        sent: &Sent,
    ) -> Result<Vec<Memory>, ControlError> {
        let memories: &[NewMemory] = sent.memories();
        let store = &self.control.store;
        match store.add_memories(author, template, memories).await? {
            MemoryWrite::Written(stored) => {
                let uri = match stored.as_slice() {
                    [one] => Some(one.uri.to_string()),
                    _ => None,
                };
                self.control.resources_changed(author, uri).await;
                Ok(stored)
            }
            MemoryWrite::UnknownTemplate => {
                Err(ControlError::unknown("template", &template.to_string()))
            }
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
