//! Reads finished skills books in the background: claims one, has it read by a child process, stores its chunks.
//! Never: a document parsed in this process, or two workers on one book.

mod chunks;
mod confined;
mod format;
mod markdown;
mod reader;
mod text;

use std::time::{Duration, Instant};

use switchboard_bus::Bus;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{BookFault, BookJob, NewChunk, ObjectError, ReadyBook, Store, StoreError};
use uuid::Uuid;

use crate::{
    leases::{self, LEASE, Labour, MOST_ATTEMPTS, REST},
    metrics::IngestionMetrics,
    offers,
};
pub use confined::read_confined;
pub use format::Format;
use reader::{Reading, ReadingError};

/// How long a book may wait for its next part.
const ABANDONED: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often somebody looks for such books.
const SWEEP: Duration = Duration::from_secs(3600);
/// How many chunks are stored in one transaction.
const BATCH: usize = 64;

/// The reading of books.
pub(crate) struct Ingestion {
    store: Store,
    bus: Bus,
    metrics: IngestionMetrics,
    /// When abandoned books are looked for again.
    next_sweep: Instant,
}

/// Why the reading of a book ended before its last chunk was stored.
#[derive(Debug, thiserror::Error)]
enum Stop {
    /// Somebody else has it, or it was cancelled or removed.
    #[error("the book belongs to another")]
    Lost,
    /// It cannot be read, whoever tries.
    #[error("{}", .0.detail)]
    Fault(BookFault),
    /// It may be read another time.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// It may be read another time.
    #[error("the object store failed")]
    Objects(#[from] ObjectError),
    /// It may be read another time.
    #[error("{0}")]
    Reader(String),
    /// It may be read another time, if that does not happen each time.
    #[error("the process that reads was killed")]
    Killed,
}

impl From<ReadingError> for Stop {
    fn from(error: ReadingError) -> Self {
        match error {
            ReadingError::Fault(fault) => Self::Fault(fault),
            ReadingError::Objects(error) => Self::Objects(error),
            ReadingError::Interrupted(reason) => Self::Reader(reason),
            ReadingError::Killed => Self::Killed,
        }
    }
}

impl Ingestion {
    pub(crate) fn new(store: Store, bus: Bus, metrics: IngestionMetrics) -> Self {
        Self {
            store,
            bus,
            metrics,
            next_sweep: Instant::now(),
        }
    }

    async fn fail(&self, name: Uuid, job: &BookJob, fault: &BookFault) -> Result<(), String> {
        self.metrics.skills_books_failed.inc();
        tracing::info!(
            owner = %job.owner, skills_book.id = %job.id, fault.kind = fault.kind, fault.detail = fault.detail,
            "a skills book cannot be read"
        );
        let failed = self.store.fail_skills_book(name, job.id, fault).await;
        failed.map_err(|error| error.report())
    }
}

impl Labour for Ingestion {
    type Job = BookJob;
    const WHAT: &'static str = "skills books";

    async fn claim(&self, name: Uuid) -> Result<Option<BookJob>, StoreError> {
        self.store.claim_skills_book(name, LEASE).await
    }

    /// What is being read when draining begins goes on where it was elsewhere.
    async fn work(&self, name: Uuid, job: &BookJob, shutdown: &Shutdown) -> Result<(), String> {
        let (id, store) = (job.id, &self.store);
        let work = Work { store, name, job };
        let ended = tokio::select! {
            ended = work.read() => ended,
            () = leases::keep(|| store.renew_skills_book(name, id, LEASE)) => Err(Stop::Lost),
            () = shutdown.draining() => {
                let _ = store.release_skills_book(name, id, Duration::ZERO).await;
                return Ok(());
            }
        };
        match ended {
            Ok(chunks) => {
                self.metrics.skills_books_ready.inc();
                tracing::info!(owner = %job.owner, skills_book.id = %id, chunks, "a skills book is ready");
                let uri = ReadyBook::uri_of(id);
                offers::resources_changed(&self.bus, job.owner, Some(uri)).await;
            }
            Err(Stop::Lost) => {
                tracing::info!(skills_book.id = %id, "a skills book is read no further here");
            }
            Err(Stop::Fault(fault)) => return self.fail(name, job, &fault).await,
            // This attempt counts: the lease ends by itself.
            Err(stop @ Stop::Killed) => return Err(report(&stop)),
            Err(stop) => {
                // When this does not arrive either, the lease ends by itself.
                let _ = store.release_skills_book(name, id, REST).await;
                return Err(report(&stop));
            }
        }
        Ok(())
    }

    /// Gives up, now and then, what nobody will finish.
    async fn idle(&mut self) {
        if Instant::now() < self.next_sweep {
            return;
        }
        self.next_sweep = Instant::now() + SWEEP;
        match self.store.cancel_abandoned_skills_books(ABANDONED).await {
            Ok(0) => {}
            Ok(books) => tracing::info!(books, "skills books were given up that nobody finished"),
            Err(error) => tracing::warn!(%error, "skills books that nobody finished are kept"),
        }
    }
}

/// One book in one worker's hands.
struct Work<'a> {
    store: &'a Store,
    name: Uuid,
    job: &'a BookJob,
}

impl Work<'_> {
    /// Reads the book from where it was; says how many chunks it has.
    async fn read(&self) -> Result<i32, Stop> {
        let (id, job) = (self.job.id, self.job);
        if job.attempts > MOST_ATTEMPTS {
            let tried = job.attempts.saturating_sub(1);
            return Err(Stop::Fault(BookFault {
                kind: "given_up".to_owned(),
                detail: format!(
                    "Reading it was interrupted {tried} times without getting any further."
                ),
            }));
        }
        let objects = self.store.objects();
        let objects = objects.ok_or_else(|| Stop::Reader("there is no object store".to_owned()))?;
        let parts = self.store.skills_book_objects(job.owner, id).await?;
        let mut reading = Reading::begin(job, objects, &parts).await?;
        let total = reading.chunks();
        let begun = self
            .store
            .begin_indexing_skills_book(self.name, id, total, reading.sha256());
        let mut next = begun.await?.ok_or(Stop::Lost)?;
        // What was stored before is the same, by its hash.
        for _ in 0..next {
            reading.next().await?;
        }
        while next < total {
            let batch = self.batch(&mut reading, total.saturating_sub(next)).await?;
            let stored = self
                .store
                .add_skills_book_chunks(self.name, id, next, &batch);
            if !stored.await? {
                return Err(Stop::Lost);
            }
            next = next.saturating_add(i32::try_from(batch.len()).unwrap_or(i32::MAX));
        }
        if !self.store.complete_skills_book(self.name, id).await? {
            return Err(Stop::Lost);
        }
        Ok(total)
    }

    async fn batch(&self, reading: &mut Reading, left: i32) -> Result<Vec<NewChunk>, Stop> {
        let size = usize::try_from(left).unwrap_or(BATCH).min(BATCH);
        let mut batch = Vec::with_capacity(size);
        while batch.len() < size {
            batch.push(reading.next().await?);
        }
        Ok(batch)
    }
}

/// An error and its causes on one line.
fn report(stop: &Stop) -> String {
    match stop {
        Stop::Store(error) => error.report(),
        other => match std::error::Error::source(other) {
            Some(cause) => format!("{other}: {cause}"),
            None => other.to_string(),
        },
    }
}
