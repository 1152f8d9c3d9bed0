//! Retrieval for a message: memories of the NPC, and chunks of its skills books.
//! Invariant: memories about other users are never retrieved.

use std::time::Duration;

use serde::Serialize;
use switchboard_embeddings::QueryEmbedder;
use switchboard_phrases::{Language, Phrase};
use switchboard_protocol::id::{MemoryId, SkillsBookId};
use switchboard_store::{
    BookFilter, MemoryFilter, MemoryQuery, Npc, Owner, QueryEmbedding, Store, StoreError,
};
use switchboard_tools::text::clean_to;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::{answer::overlap::overlap, user_message::UserMessage};

/// Time for all searches together.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Share of the question's words that an answer without a model must contain.
const MIN_OVERLAP: f64 = 0.4;
/// Results of each search.
const SEARCH_LIMIT: u32 = 5;
/// Books that are searched.
const MAX_BOOKS: u32 = 16;
/// Chunks of all books in a prompt.
const MAX_CHUNKS: usize = 5;
/// Bytes of a result.
const MAX_RESULT_BYTES: usize = 1_200;
/// Bytes of the title of a source.
const MAX_TITLE_BYTES: usize = 120;

/// The results, best first.
#[derive(Debug, Default)]
pub(crate) struct RetrievedContext {
    pub(crate) memories: Vec<RetrievedMemory>,
    pub(crate) chunks: Vec<Chunk>,
}

/// A memory.
#[derive(Debug)]
pub(crate) struct RetrievedMemory {
    id: MemoryId,
    pub(crate) text: String,
    score: f64,
}

/// A part of a skills book.
#[derive(Debug)]
pub(crate) struct Chunk {
    book_id: SkillsBookId,
    pub(crate) book: String,
    pub(crate) heading: String,
    pub(crate) text: String,
    score: f64,
}

/// What an answer is based on, as its caller sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Source {
    /// `memory`, or `passage` of a skills book.
    kind: &'static str,
    /// The id of the memory or the book.
    id: String,
    /// The beginning of the memory; the book and the heading of the passage.
    title: String,
    /// How well it matches the message, from 0 to 1.
    score: f64,
}

impl From<&RetrievedMemory> for Source {
    fn from(memory: &RetrievedMemory) -> Self {
        Self {
            kind: "memory",
            id: memory.id.to_string(),
            title: clean_to(&memory.text, MAX_TITLE_BYTES),
            score: memory.score,
        }
    }
}

impl From<&Chunk> for Source {
    fn from(chunk: &Chunk) -> Self {
        let title = match chunk.heading.as_str() {
            "" => chunk.book.clone(),
            heading => format!("{}: {heading}", chunk.book),
        };
        Self {
            kind: "passage",
            id: chunk.book_id.to_string(),
            title: clean_to(&title, MAX_TITLE_BYTES),
            score: chunk.score,
        }
    }
}

/// Searches the memories and books of the message's NPC. Empty while the database is unavailable.
pub(crate) async fn retrieve(
    store: &Store,
    embedder: Option<&QueryEmbedder>,
    message: &UserMessage,
) -> RetrievedContext {
    // A picture may be without words.
    let npc = message.npc.as_ref();
    let Some(npc) = npc.filter(|_| !message.text.trim().is_empty()) else {
        return RetrievedContext::default();
    };
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    let embedding = timeout_at(deadline, embed(embedder, npc, &message.text)).await;
    let embedding = embedding.ok().flatten();
    let (memories, chunks) = tokio::join!(
        or_default_by(deadline, memories(store, npc, message, embedding.as_ref())),
        chunks(store, npc, &message.text, (deadline, embedding.as_ref())),
    );
    RetrievedContext { memories, chunks }
}

/// The result of a search by the deadline, else nothing. A slow or failed search does not discard
/// the results of the others.
async fn or_default_by<T: Default>(
    deadline: Instant,
    search: impl Future<Output = Result<T, StoreError>>,
) -> T {
    match timeout_at(deadline, search).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => warn!(error = error.report(), "search for an answer failed"),
        Err(_) => warn!("search for an answer timed out"),
    }
    T::default()
}

impl RetrievedContext {
    /// All results.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let memories = self.memories.iter().map(Source::from);
        memories
            .chain(self.chunks.iter().map(Source::from))
            .collect()
    }

    /// An answer without a model: the best result with enough words of the question.
    pub(crate) fn answer(&self, question: &str, language: Language) -> Option<(String, Source)> {
        let mut memories = self.memories.iter();
        if let Some(memory) = memories.find(|one| overlap(question, &one.text) >= MIN_OVERLAP) {
            let text = &*memory.text;
            let quote = Phrase::MemoryQuote { text }.text(language).into_owned();
            return Some((quote, memory.into()));
        }
        let score =
            |chunk: &Chunk| overlap(question, &format!("{}\n{}", chunk.heading, chunk.text));
        let chunks = self.chunks.iter().map(|chunk| (score(chunk), chunk));
        let (_, best) = chunks
            .filter(|(score, _)| *score >= MIN_OVERLAP)
            .max_by(|(one, _), (other, _)| one.total_cmp(other))?;
        let (book, text) = (&*best.book, &*best.text);
        let quote = Phrase::BookQuote { book, text }.text(language).into_owned();
        Some((quote, best.into()))
    }
}

async fn embed(embedder: Option<&QueryEmbedder>, npc: &Npc, text: &str) -> Option<QueryEmbedding> {
    let embedder = embedder?;
    let vector = embedder.embed(Owner::Org(npc.org).into(), text).await?;
    Some(QueryEmbedding {
        model: embedder.model().to_owned(),
        vector,
    })
}

/// Memories about the sender, and those without a subject.
async fn memories(
    store: &Store,
    npc: &Npc,
    message: &UserMessage,
    embedding: Option<&QueryEmbedding>,
) -> Result<Vec<RetrievedMemory>, StoreError> {
    let filter = MemoryFilter {
        template: npc.settings.template,
        npc: Some(npc.id),
        about: Some(subjects(message)),
        kind: None,
    };
    let query = MemoryQuery {
        text: &message.text,
        locale: npc.effective.settings.locale.as_deref(),
        embedding,
    };
    let owner = Owner::Org(npc.org);
    let found = store
        .search_memories(owner, &filter, query, SEARCH_LIMIT)
        .await?;
    let memories = found.iter().map(|found| RetrievedMemory {
        id: found.memory.id,
        text: clean_to(&found.memory.text, MAX_RESULT_BYTES),
        score: found.score,
    });
    Ok(memories.collect())
}

/// Subjects of memories about the sender; the empty one selects memories without a subject. A
/// memory may name a device by its id alone.
fn subjects(message: &UserMessage) -> Vec<String> {
    let mut subjects = vec![String::new()];
    if let Some(subject) = message.subject() {
        subjects.extend(subject.strip_prefix("device:").map(str::to_owned));
        subjects.push(subject);
    }
    subjects
}

async fn chunks(
    store: &Store,
    npc: &Npc,
    question: &str,
    (deadline, embedding): (Instant, Option<&QueryEmbedding>),
) -> Vec<Chunk> {
    let among = npc.effective.settings.skills_book_ids.as_slice();
    if among.is_empty() {
        return Vec::new();
    }
    let filter = BookFilter {
        among: Some(among),
        begins: "",
    };
    let books = store.ready_skills_books(npc.org, filter, None, MAX_BOOKS);
    let books = or_default_by(deadline, books).await;
    let mut chunks = Vec::new();
    for book in books {
        if Instant::now() >= deadline {
            break;
        }
        let owner = Owner::Org(npc.org);
        let found = store.search_skills_book(owner, book.id, question, embedding, SEARCH_LIMIT);
        let found = or_default_by(deadline, found).await;
        chunks.extend(found.into_iter().map(|chunk| Chunk {
            book_id: book.id,
            book: book.name.clone(),
            heading: chunk.heading.unwrap_or_default(),
            text: clean_to(&chunk.text, MAX_RESULT_BYTES),
            score: chunk.score,
        }));
    }
    chunks.sort_by(|one, other| other.score.total_cmp(&one.score));
    chunks.truncate(MAX_CHUNKS);
    chunks
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn slow_search_does_not_discard_other_results() {
        let deadline = Instant::now() + SEARCH_TIMEOUT;
        let found = or_default_by(deadline, ready(Ok(vec!["tea"])));
        let (memories, slow): (_, Vec<&str>) =
            tokio::join!(found, or_default_by(deadline, pending()));
        assert_eq!((memories, slow), (vec!["tea"], vec![]));
        assert_eq!(Instant::now(), deadline);
    }
}
