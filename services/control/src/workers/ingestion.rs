//! Parses uploaded skills books in the background: claims a book, parses it in a
//! child process, and stores its chunks.
//!
//! Invariant: no document is parsed in this process.

mod chunks;
mod confined;
mod format;
mod markdown;
mod parser_process;
#[cfg(feature = "pdf")]
mod pdf;
mod text;

use std::time::{Duration, Instant};

use switchboard_bus::Bus;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{
    BookFault, BookJob, BookState, JobTurn, NewChunk, ObjectError, Owner, ReadyBook, Store,
    StoreError,
};
use uuid::Uuid;

use crate::{
    catalog_events, live_events,
    metrics::IngestionMetrics,
    workers::lease::{self, LeasedJob, MAX_ATTEMPTS, RETRY_BACKOFF, TASK_LEASE},
};
pub use confined::read_confined;
pub use format::Format;
use parser_process::{ParserError, ParserProcess};

/// How long an incomplete book waits for its next part.
const UPLOAD_TTL: Duration = Duration::from_secs(7 * 24 * 3600);
/// Between two sweeps for abandoned uploads.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// Number of chunks in a transaction.
const BATCH_SIZE: usize = 64;

/// The job that parses skills books.
pub(super) struct Ingestion {
    store: Store,
    bus: Bus,
    metrics: IngestionMetrics,
    /// When the next sweep for abandoned uploads is due.
    next_sweep: Instant,
}

/// Why a book was not parsed and stored completely.
#[derive(Debug, thiserror::Error)]
enum IngestionError {
    /// Another worker has the book, or it was cancelled or deleted.
    #[error("the lease of the book is lost")]
    LeaseLost,
    /// The document cannot be parsed; a retry fails, too.
    #[error("{}", .0.detail)]
    Fault(BookFault),
    /// Temporary.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// Temporary.
    #[error("the object store failed")]
    Objects(#[from] ObjectError),
    /// Temporary.
    #[error("{0}")]
    Parser(String),
    /// Temporary, unless every attempt ends like this.
    #[error("the parser process was killed")]
    Killed,
}

impl From<ParserError> for IngestionError {
    fn from(error: ParserError) -> Self {
        match error {
            ParserError::Fault(fault) => Self::Fault(fault),
            ParserError::Objects(error) => Self::Objects(error),
            ParserError::Interrupted(reason) => Self::Parser(reason),
            ParserError::Killed => Self::Killed,
        }
    }
}

impl Ingestion {
    pub(super) fn new(store: Store, bus: Bus, metrics: IngestionMetrics) -> Self {
        Self {
            store,
            bus,
            metrics,
            next_sweep: Instant::now(),
        }
    }

    async fn fail(&self, worker: Uuid, job: &BookJob, fault: &BookFault) -> Result<(), String> {
        self.metrics.skills_books_failed.inc();
        tracing::info!(
            owner = %job.owner, skills_book.id = %job.id, fault.kind = fault.kind, fault.detail = fault.detail,
            "skills book cannot be parsed"
        );
        let failed = self.store.fail_skills_book(worker, job.id, fault).await;
        failed.map_err(|error| error.report())?;
        live_events::book_changed(&self.bus, job.owner, job.id, Some(BookState::Failed));
        Ok(())
    }
}

impl LeasedJob for Ingestion {
    type Task = BookJob;
    const NAME: &'static str = "skills books";

    async fn claim(&self, worker: Uuid, turn: &mut JobTurn) -> Result<Option<BookJob>, StoreError> {
        self.store.claim_skills_book(worker, TASK_LEASE, turn).await
    }

    fn owner(job: &BookJob) -> Owner {
        job.owner
    }

    async fn release(&self, worker: Uuid, job: &BookJob) {
        let released = self
            .store
            .release_skills_book(worker, job.id, Duration::ZERO);
        let _ = released.await;
    }

    /// When draining begins, the book is released; another worker continues after the
    /// last stored chunk.
    async fn process(
        &self,
        worker: Uuid,
        job: &BookJob,
        shutdown: &Shutdown,
    ) -> Result<(), String> {
        let (id, store) = (job.id, &self.store);
        let task = Task {
            store,
            bus: &self.bus,
            worker,
            job,
        };
        let result = tokio::select! {
            result = task.ingest() => result,
            () = lease::renew_until_lost(|| store.renew_skills_book(worker, id, TASK_LEASE)) => Err(IngestionError::LeaseLost),
            () = shutdown.draining() => {
                self.release(worker, job).await;
                return Ok(());
            }
        };
        match result {
            Ok(chunks) => {
                self.metrics.skills_books_ready.inc();
                tracing::info!(owner = %job.owner, skills_book.id = %id, chunks, "skills book is ready");
                let uri = ReadyBook::uri(id);
                catalog_events::resources_changed(&self.bus, job.owner, Some(uri)).await;
                live_events::book_changed(&self.bus, job.owner, id, Some(BookState::Ready));
            }
            Err(IngestionError::LeaseLost) => {
                tracing::info!(skills_book.id = %id, "lease of a skills book lost");
            }
            Err(IngestionError::Fault(fault)) => return self.fail(worker, job, &fault).await,
            // The lease is not released but expires, so that this attempt counts.
            Err(error @ IngestionError::Killed) => return Err(cause(&error)),
            Err(error) => {
                // If the release fails, the lease expires.
                let _ = store.release_skills_book(worker, id, RETRY_BACKOFF).await;
                return Err(cause(&error));
            }
        }
        Ok(())
    }

    /// Cancels abandoned uploads when a sweep is due.
    async fn idle(&mut self) {
        if Instant::now() < self.next_sweep {
            return;
        }
        self.next_sweep = Instant::now() + SWEEP_INTERVAL;
        match self.store.cancel_abandoned_skills_books(UPLOAD_TTL).await {
            Ok(cancelled) if cancelled.is_empty() => {}
            Ok(cancelled) => {
                let state = Some(BookState::Cancelled);
                for (owner, id) in &cancelled {
                    live_events::book_changed(&self.bus, *owner, *id, state);
                }
                let books = cancelled.len();
                tracing::info!(books, "abandoned skills books cancelled");
            }
            Err(error) => {
                tracing::warn!(%error, "abandoned skills books cannot be cancelled; retrying in an hour")
            }
        }
    }
}

/// One book that this worker has leased.
struct Task<'a> {
    store: &'a Store,
    bus: &'a Bus,
    worker: Uuid,
    job: &'a BookJob,
}

impl Task<'_> {
    /// Parses the book and stores the missing chunks. Returns the total number of chunks.
    async fn ingest(&self) -> Result<i32, IngestionError> {
        let (id, job) = (self.job.id, self.job);
        if job.attempts > MAX_ATTEMPTS {
            let attempts = job.attempts.saturating_sub(1);
            return Err(IngestionError::Fault(BookFault {
                kind: "given_up".to_owned(),
                detail: format!("Parsing was interrupted {attempts} times without progress."),
            }));
        }
        let objects = self.store.objects();
        let objects =
            objects.ok_or_else(|| IngestionError::Parser("there is no object store".to_owned()))?;
        let parts = self.store.skills_book_objects(job.owner, id).await?;
        let mut parser = ParserProcess::start(job, objects, &parts).await?;
        let total = parser.chunks();
        let stored = self
            .store
            .begin_indexing_skills_book(self.worker, id, total, parser.sha256());
        let mut next = stored.await?.ok_or(IngestionError::LeaseLost)?;
        live_events::book_changed(self.bus, job.owner, id, Some(BookState::Indexing));
        // The store has compared the hash: the stored chunks are the same.
        for _ in 0..next {
            parser.next().await?;
        }
        while next < total {
            let batch = self.batch(&mut parser, total.saturating_sub(next)).await?;
            let stored = self
                .store
                .add_skills_book_chunks(self.worker, id, next, &batch);
            if !stored.await? {
                return Err(IngestionError::LeaseLost);
            }
            next = next.saturating_add(i32::try_from(batch.len()).unwrap_or(i32::MAX));
        }
        if !self.store.complete_skills_book(self.worker, id).await? {
            return Err(IngestionError::LeaseLost);
        }
        Ok(total)
    }

    async fn batch(
        &self,
        parser: &mut ParserProcess,
        remaining: i32,
    ) -> Result<Vec<NewChunk>, IngestionError> {
        let size = usize::try_from(remaining)
            .unwrap_or(BATCH_SIZE)
            .min(BATCH_SIZE);
        let mut batch = Vec::with_capacity(size);
        while batch.len() < size {
            batch.push(parser.next().await?);
        }
        Ok(batch)
    }
}

/// An error and its cause on one line.
fn cause(error: &IngestionError) -> String {
    match error {
        IngestionError::Store(error) => error.report(),
        other => match std::error::Error::source(other) {
            Some(cause) => format!("{other}: {cause}"),
            None => other.to_string(),
        },
    }
}
