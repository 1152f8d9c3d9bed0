//! What a character knows of a question: its memories, and passages of its skills books.
//! Never: what is remembered of somebody else, or an answer that waits long because the record is away.

use std::time::Duration;

use switchboard_embeddings::Questions;
use switchboard_store::{
    BookFilter, Meaning, MemoryFilter, MemoryQuestion, Npc, Owner, Store, StoreError,
};
use switchboard_tools::text::clean_to;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::{
    embedded::{Phrases, speaks_of},
    question::Question,
};

/// How long all searches together may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much of the question must be in what rules answer with.
const LEAST: f64 = 0.4;
/// Findings of each search that are looked at.
const FOUND: u32 = 5;
/// Books that are searched.
const BOOKS: u32 = 16;
/// Passages of all books that a model is shown.
const PASSAGES: usize = 5;
/// What is told of a finding.
const TOLD_BYTES: usize = 1_200;

/// What was found, the best first.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) memories: Vec<String>,
    pub(crate) passages: Vec<Passage>,
}

/// A part of a skills book.
#[derive(Debug)]
pub(crate) struct Passage {
    pub(crate) book: String,
    pub(crate) heading: String,
    pub(crate) text: String,
    score: f64,
}

/// What its character knows of a question; nothing while the record is away.
pub(crate) async fn search(
    store: &Store,
    questions: Option<&Questions>,
    question: &Question,
) -> Known {
    let Some(npc) = &question.npc else {
        return Known::default();
    };
    let until = Instant::now() + PATIENCE;
    let meaning = timeout_at(until, meaning(questions, &question.text)).await;
    let meaning = meaning.ok().flatten();
    let (memories, passages) = tokio::join!(
        in_time(until, memories(store, npc, question, meaning.as_ref())),
        passages(store, npc, &question.text, (until, meaning.as_ref())),
    );
    Known { memories, passages }
}

/// What is found by then. What one search finds is not lost because another one is slow or fails.
async fn in_time<T: Default>(
    until: Instant,
    search: impl Future<Output = Result<T, StoreError>>,
) -> T {
    match timeout_at(until, search).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => {
            warn!(
                error = error.report(),
                "what a character knows could not be searched"
            );
        }
        Err(_) => warn!("what a character knows was not searched in time"),
    }
    T::default()
}

impl Known {
    /// The answer that is known by rules alone, if any is.
    pub(crate) fn answer(&self, question: &str, phrases: Phrases) -> Option<String> {
        let mut memories = self.memories.iter();
        if let Some(text) = memories.find(|text| speaks_of(question, text) >= LEAST) {
            return Some(phrases.remembered(text));
        }
        let fits = |passage: &Passage| {
            speaks_of(question, &format!("{}\n{}", passage.heading, passage.text))
        };
        let passages = self.passages.iter().map(|passage| (fits(passage), passage));
        let (_, best) = passages
            .filter(|(fit, _)| *fit >= LEAST)
            .max_by(|(one, _), (other, _)| one.total_cmp(other))?;
        Some(phrases.read_in(&best.book, &best.text))
    }
}

async fn meaning(questions: Option<&Questions>, text: &str) -> Option<Meaning> {
    let questions = questions?;
    let vector = questions.vector(text).await?;
    Some(Meaning {
        model: questions.model().to_owned(),
        vector,
    })
}

/// Memories about whoever asks, and about nobody. What is remembered of others stays with them.
async fn memories(
    store: &Store,
    npc: &Npc,
    question: &Question,
    meaning: Option<&Meaning>,
) -> Result<Vec<String>, StoreError> {
    let filter = MemoryFilter {
        template: npc.settings.template,
        npc: Some(npc.id),
        about: Some(subjects(question)),
        kind: None,
    };
    let asked = MemoryQuestion {
        text: &question.text,
        locale: npc.effective.settings.locale.as_deref(),
        meaning,
    };
    let owner = Owner::Org(npc.org);
    let found = store.search_memories(owner, &filter, asked, FOUND).await?;
    let texts = found
        .iter()
        .map(|found| clean_to(&found.memory.text, TOLD_BYTES));
    Ok(texts.collect())
}

/// What memories may call whoever asks: a device by its id alone, too. And nobody.
fn subjects(question: &Question) -> Vec<String> {
    let mut subjects = vec![String::new()];
    if let Some(subject) = question.subject() {
        subjects.extend(subject.strip_prefix("device:").map(str::to_owned));
        subjects.push(subject);
    }
    subjects
}

async fn passages(
    store: &Store,
    npc: &Npc,
    question: &str,
    (until, meaning): (Instant, Option<&Meaning>),
) -> Vec<Passage> {
    let among = npc.effective.settings.skills_book_ids.as_slice();
    if among.is_empty() {
        return Vec::new();
    }
    let filter = BookFilter {
        among: Some(among),
        begins: "",
    };
    let books = store.ready_skills_books(npc.org, filter, None, BOOKS);
    let books = in_time(until, books).await;
    let mut passages = Vec::new();
    for book in books {
        if Instant::now() >= until {
            break;
        }
        let owner = Owner::Org(npc.org);
        let chunks = store.search_skills_book(owner, book.id, question, meaning, FOUND);
        let chunks = in_time(until, chunks).await;
        passages.extend(chunks.into_iter().map(|chunk| Passage {
            book: book.name.clone(),
            heading: chunk.heading.unwrap_or_default(),
            text: clean_to(&chunk.text, TOLD_BYTES),
            score: chunk.score,
        }));
    }
    passages.sort_by(|one, other| other.score.total_cmp(&one.score));
    passages.truncate(PASSAGES);
    passages
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_one_search_finds_is_there_though_another_is_slow() {
        let until = Instant::now() + PATIENCE;
        let found = in_time(until, ready(Ok(vec!["tea"])));
        let (memories, slow): (_, Vec<&str>) = tokio::join!(found, in_time(until, pending()));
        assert_eq!((memories, slow), (vec!["tea"], vec![]));
        assert_eq!(Instant::now(), until);
    }
}
