//! `/v1/templates/{id}/memories` and `/v1/memories/{id}`: what templates remember, and NPCs likewise.
//! Never: a batch stored in part.

pub(crate) mod shape;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Json, Path, Problem, Query},
};
use switchboard_store::{
    Creation, Memory, MemoryFilter, MemoryHolder, MemoryPolicy, MemoryQuestion, MemoryWrite, Owner,
};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Control,
    access::{Acting, Author, Reader},
    document::Unambiguous,
    error::ControlError,
    once::{Made, Once, Ticket},
};
pub(crate) use shape::refuse_own_scheme;
use shape::{Sent, ShownMemory};

/// The most characters that can be asked for.
const LONGEST_QUESTION: usize = 500;

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Memories {
    /// In the order of their sending.
    #[schema(max_items = 200)]
    memories: Vec<ShownMemory>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

/// What a batch became.
#[derive(Serialize, ToSchema)]
#[schema(as = StoredMemories)]
pub(crate) struct Stored {
    /// In the order in which they were sent.
    #[schema(max_items = 100)]
    memories: Vec<ShownMemory>,
}

/// The query string of a list: all in their order, or those that speak of `q`, best first.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// The most elements of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the page before; not together with `q`.
    cursor: Option<Cursor>,
    /// What is asked for: the best memories that speak of it, each with its `score`.
    #[param(
        min_length = 1,
        max_length = 500,
        pattern = "^[^\\u0000]*$",
        example = "how old is Bello?"
    )]
    q: Option<String>,
    /// Only those that are about exactly this.
    #[param(pattern = "^[^\\u0000]*$", example = "user:anna")]
    subject: Option<String>,
    /// Only those of exactly this kind.
    #[param(pattern = "^[^\\u0000]*$", example = "fact")]
    kind: Option<String>,
}

/// Whose memories are read, and how.
pub(crate) struct Reading<'a> {
    pub(crate) reader: Owner,
    pub(crate) template: Option<TemplateId>,
    pub(crate) npc: Option<NpcId>,
    pub(crate) locale: Option<&'a str>,
}

/// One memory, or what a batch became.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "how the answers of `addMemories` and `addNpcMemories` look, for the document"
)]
pub(crate) enum OneOrMany {
    One(Box<ShownMemory>),
    Many(Stored),
}

/// Adds a memory to a template, or up to 100, all or none.
#[utoipa::path(
    post, path = "/v1/templates/{id}/memories", tag = "Memories", operation_id = "addMemories",
    params(("id" = TemplateId, Path, description = "The template")),
    request_body(content = shape::MemoriesDocument),
    responses((status = 201, body = inline(OneOrMany), description = "They are stored", headers(("Location" = String, description = "Where it is")))),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "not_found", "operator_only", "uri_taken", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
    Once(ticket, Json(Unambiguous(document))): Once<Json<Unambiguous>>,
) -> Result<Response, ControlError> {
    let template = control.templates().find_own(author, &id).await?;
    let policy = &template.settings.memory;
    control
        .remember(author, template.id.into(), policy, (ticket, &document))
        .await
}

/// Lists what a template remembers, or searches it.
#[utoipa::path(
    get, path = "/v1/templates/{id}/memories", tag = "Memories", operation_id = "listMemories",
    params(("id" = TemplateId, Path, description = "The template"), Listing),
    responses((status = 200, body = Memories, description = "A page of memories that have not ended")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
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

/// Removes a memory.
#[utoipa::path(
    delete, path = "/v1/memories/{id}", tag = "Memories", operation_id = "removeMemory",
    params(("id" = MemoryId, Path, description = "The memory")),
    responses((status = 204, description = "It is gone")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn remove(
    Author(author): Author,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let unknown = || ControlError::unknown("memory", &id);
    let memory: MemoryId = id.parse().map_err(|_| unknown())?;
    if !control.store.delete_memory(author, memory).await? {
        return Err(unknown());
    }
    tracing::info!(owner = %author, memory.id = %memory, "a memory was removed");
    control.resources_changed(author, None).await;
    Ok(StatusCode::NO_CONTENT)
}

impl Listing {
    /// What is wrong with it, before anything is looked for.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let texts = [&self.q, &self.subject, &self.kind];
        if texts.into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(Problem::invalid_query(
                "no parameter may have the character U+0000.",
            ));
        }
        let Some(q) = &self.q else {
            return Ok(());
        };
        if self.cursor.is_some() {
            let reason =
                "`q` asks for the best ones, as many as `limit` says, and has no `cursor`.";
            return Err(Problem::invalid_query(reason));
        }
        if (1..=LONGEST_QUESTION).contains(&q.chars().count()) {
            return Ok(());
        }
        let reason = format!("`q` must have 1 to {LONGEST_QUESTION} characters.");
        Err(Problem::invalid_query(reason))
    }
}

impl Reading<'_> {
    /// The list that it reads: an NPC's knows what its template does.
    fn list(&self) -> List {
        let path = match (self.npc, self.template) {
            (Some(npc), _) => format!("/v1/npcs/{npc}/memories"),
            (None, Some(template)) => format!("/v1/templates/{template}/memories"),
            (None, None) => "/v1/memories".to_owned(),
        };
        List::of(&path, self.reader)
    }
}

impl Control {
    /// Stores the memories that a body holds, once.
    pub(crate) async fn remember(
        &self,
        author: Owner,
        holder: MemoryHolder,
        policy: &MemoryPolicy,
        (ticket, document): (Ticket, &Value),
    ) -> Result<Response, ControlError> {
        let sent = shape::read(document, policy)?;
        let mut creation = ticket.begin(&self.store, author).await?;
        let stored = add(&mut creation, author, holder, &sent).await?;
        let path = match holder {
            MemoryHolder::Template(id) => format!("/v1/templates/{id}/memories"),
            MemoryHolder::Npc(id) => format!("/v1/npcs/{id}/memories"),
        };
        let (count, uri) = match stored.as_slice() {
            [one] => (1, Some(one.uri.clone())),
            many => (many.len(), None),
        };
        let mut shown: Vec<_> = stored.into_iter().map(ShownMemory::from).collect();
        let made = match (&sent, shown.pop()) {
            (Sent::One(memory), Some(one)) => {
                Made::new(&one).at(format!("/v1/memories/{}", memory.id))
            }
            (_, last) => {
                shown.extend(last);
                Made::new(&Stored { memories: shown }).at(path.clone())
            }
        };
        let response = ticket.commit(creation, made).await?;
        tracing::info!(owner = %author, path, memories = count, "memories were added");
        self.resources_changed(author, uri).await;
        Ok(response)
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
            about: listing.subject.map(|subject| vec![subject]),
            kind: listing.kind,
        };
        let (store, reader) = (&self.store, reading.reader);
        let Some(text) = listing.q.as_deref() else {
            let list = reading.list();
            let after = list.after(listing.cursor)?;
            let found = store.memories(reader, &filter, after, limit.probe());
            let (page, next_cursor) = limit.cut(found.await?, |memory| list.behind(memory.id));
            return Ok(axum::Json(Memories {
                memories: page.into_iter().map(ShownMemory::from).collect(),
                next_cursor,
            }));
        };
        let meaning = self.meaning(text).await;
        let question = MemoryQuestion {
            text,
            locale: reading.locale,
            meaning: meaning.as_ref(),
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

async fn add(
    creation: &mut Creation,
    author: Owner,
    holder: MemoryHolder,
    sent: &Sent,
) -> Result<Vec<Memory>, ControlError> {
    let write = creation.add_memories(author, holder, sent.memories());
    match write.await? {
        MemoryWrite::Written(stored) => Ok(stored),
        MemoryWrite::UnknownHolder => Err(match holder {
            MemoryHolder::Template(id) => ControlError::unknown("template", &id.to_string()),
            MemoryHolder::Npc(id) => ControlError::unknown("NPC", &id.to_string()),
        }),
        MemoryWrite::UriTaken(index) => Err(uri_taken(&sent.place(index)).into()),
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
