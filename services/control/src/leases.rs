//! Work that one process at a time does and another takes over when it dies: claimed, kept by a lease, given back when told to stop.
//! Never: what the work is, or two processes on one piece of it.

use std::{future::Future, time::Duration};

use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::StoreError;
use uuid::Uuid;

/// How long a piece of work belongs to a worker that gives no sign of life.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// How often it gives one.
const RENEWAL: Duration = Duration::from_secs(5);
/// How often a worker without work looks for some.
const LOOK: Duration = Duration::from_secs(1);
/// How long work rests that cannot be done at the moment.
pub(crate) const REST: Duration = Duration::from_secs(5);
/// How often a piece of work may take its worker down before it is given up.
pub(crate) const MOST_ATTEMPTS: i32 = 5;

/// A kind of work.
pub(crate) trait Labour: Send + Sync {
    /// A piece of it.
    type Job: Send + Sync;
    /// What it is done to, for the log.
    const WHAT: &'static str;

    /// Takes a piece over, if there is one.
    fn claim(
        &self,
        name: Uuid,
    ) -> impl Future<Output = Result<Option<Self::Job>, StoreError>> + Send;

    /// Does it, or gives it back soon after draining begins. An error says why it has to be tried another time.
    fn work(
        &self,
        name: Uuid,
        job: &Self::Job,
        shutdown: &Shutdown,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// What is done when there is nothing to do: a little at a time. It is dropped when draining begins.
    fn idle(&mut self) -> impl Future<Output = ()> + Send;
}

/// Does one kind of work until it is told to stop.
pub(crate) struct Worker<L> {
    labour: L,
    /// The cause of the last failure; a log line is written when it changes.
    trouble: Option<String>,
}

impl<L: Labour> Worker<L> {
    pub(crate) const fn new(labour: L) -> Self {
        Self {
            labour,
            trouble: None,
        }
    }

    /// Ends soon after draining begins.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        while !shutdown.is_draining() {
            // A name for each claim: what an earlier one left behind cannot speak for this one.
            let name = Uuid::now_v7();
            match self.labour.claim(name).await {
                Ok(Some(job)) => {
                    let trouble = self.labour.work(name, &job, &shutdown).await.err();
                    let is_done = trouble.is_none();
                    self.note(trouble);
                    if is_done {
                        backoff.reset();
                    } else {
                        backoff.pause(&shutdown).await;
                    }
                }
                Ok(None) => {
                    backoff.reset();
                    let rest = async {
                        self.labour.idle().await;
                        tokio::time::sleep(LOOK).await;
                    };
                    tokio::select! {
                        () = rest => {}
                        () = shutdown.draining() => {}
                    }
                }
                Err(error) => {
                    self.note(Some(error.report()));
                    backoff.pause(&shutdown).await;
                }
            }
        }
    }

    /// Logs when something changed, not at each attempt.
    fn note(&mut self, trouble: Option<String>) {
        match &trouble {
            Some(cause) if trouble != self.trouble => {
                tracing::warn!(
                    cause,
                    work = L::WHAT,
                    "work in the background cannot be done at the moment; trying again"
                );
            }
            None if self.trouble.is_some() => {
                tracing::info!(work = L::WHAT, "work in the background is done again");
            }
            _ => {}
        }
        self.trouble = trouble;
    }
}

/// Renews a lease until that is not possible any more. Without an answer, whatever is written still asks whose work it is.
pub(crate) async fn keep<R>(renew: impl Fn() -> R)
where
    R: Future<Output = Result<bool, StoreError>>,
{
    loop {
        tokio::time::sleep(RENEWAL).await;
        if matches!(renew().await, Ok(false)) {
            return;
        }
    }
}
