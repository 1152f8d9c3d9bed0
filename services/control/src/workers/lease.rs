//! Workers whose tasks are leased: one process works on a task at a time, and another one takes it
//! over when that process dies.
//!
//! Invariant: a task has one worker at a time. Every write of a worker is conditional on its lease.

use std::{future::Future, time::Duration};

use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::StoreError;
use uuid::Uuid;

/// How long a task belongs to a worker that does not renew its lease.
pub(super) const TASK_LEASE: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How often an idle worker looks for a task.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a task is postponed that failed for a temporary reason.
pub(super) const RETRY_BACKOFF: Duration = Duration::from_secs(5);
/// How many workers may die on a task before it fails.
pub(super) const MAX_ATTEMPTS: i32 = 5;

/// A kind of background work.
pub(super) trait LeasedJob: Send + Sync {
    /// What one lease is for.
    type Task: Send + Sync;
    /// The name of the job in log lines.
    const NAME: &'static str;

    /// Leases a task to `worker`, if there is one.
    fn claim(
        &self,
        worker: Uuid,
    ) -> impl Future<Output = Result<Option<Self::Task>, StoreError>> + Send;

    /// Processes a task, or releases it soon after draining begins. An error is the
    /// reason why the task has to be retried.
    fn process(
        &self,
        worker: Uuid,
        task: &Self::Task,
        shutdown: &Shutdown,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Runs while there is no task, a little at a time. It is dropped when draining begins.
    fn idle(&mut self) -> impl Future<Output = ()> + Send;
}

/// Runs one job until the process drains.
pub(super) struct LeasedWorker<J> {
    job: J,
    /// The cause of the last failure. A log line is written when it changes.
    failure: Option<String>,
}

impl<J: LeasedJob> LeasedWorker<J> {
    pub(super) const fn new(job: J) -> Self {
        Self { job, failure: None }
    }

    /// Ends soon after draining begins.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        while !shutdown.is_draining() {
            // A new name for each claim: writes of an earlier claim do not match this lease.
            let worker = Uuid::now_v7();
            match self.job.claim(worker).await {
                Ok(Some(task)) => {
                    let failure = self.job.process(worker, &task, &shutdown).await.err();
                    let is_done = failure.is_none();
                    self.report(failure);
                    if is_done {
                        backoff.reset();
                    } else {
                        backoff.pause(&shutdown).await;
                    }
                }
                Ok(None) => {
                    backoff.reset();
                    let idle = async {
                        self.job.idle().await;
                        tokio::time::sleep(POLL_INTERVAL).await;
                    };
                    tokio::select! {
                        () = idle => {}
                        () = shutdown.draining() => {}
                    }
                }
                Err(error) => {
                    self.report(Some(error.report()));
                    backoff.pause(&shutdown).await;
                }
            }
        }
    }

    /// Logs changes of the failure, not every attempt.
    fn report(&mut self, failure: Option<String>) {
        match &failure {
            Some(cause) if failure != self.failure => {
                tracing::warn!(cause, job = J::NAME, "background job failed; retrying");
            }
            None if self.failure.is_some() => {
                tracing::info!(job = J::NAME, "background job recovered");
            }
            _ => {}
        }
        self.failure = failure;
    }
}

/// Renews a lease until it is lost. A renewal without a response does not end it: every write of
/// the worker is conditional on the lease anyway.
pub(super) async fn renew_until_lost<R>(renew: impl Fn() -> R)
where
    R: Future<Output = Result<bool, StoreError>>,
{
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        if matches!(renew().await, Ok(false)) {
            return;
        }
    }
}
