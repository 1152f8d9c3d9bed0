//! Workers whose tasks are leased: one process works on a task at a time, and another one takes it
//! over when that process dies.
//!
//! Owners of tasks take turns, and one owner has at most its share of a process's workers.
//!
//! Invariant: a task has one worker at a time. Every write of a worker is conditional on its lease.

use std::{future::Future, time::Duration};

use switchboard_runtime::{backoff::Backoff, budget::Budget, shutdown::Shutdown};
use switchboard_store::{JobTurn, Owner, StoreError};
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

    /// Leases the task whose turn it is to `worker`, if there is one.
    fn claim(
        &self,
        worker: Uuid,
        turn: &mut JobTurn,
    ) -> impl Future<Output = Result<Option<Self::Task>, StoreError>> + Send;

    /// The owner of a task.
    fn owner(task: &Self::Task) -> Owner;

    /// Releases a task unchanged for other workers. If that fails, its lease expires.
    fn release(&self, worker: Uuid, task: &Self::Task) -> impl Future<Output = ()> + Send;

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
    /// One for each task of the workers of this process.
    budget: Budget,
    turn: JobTurn,
    /// The cause of the last failure. A log line is written when it changes.
    failure: Option<String>,
}

impl<J: LeasedJob> LeasedWorker<J> {
    pub(super) fn new(job: J, budget: Budget) -> Self {
        Self {
            job,
            budget,
            turn: JobTurn::default(),
            failure: None,
        }
    }

    /// Ends soon after draining begins.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        while !shutdown.is_draining() {
            // A new name for each claim: writes of an earlier claim do not match this lease.
            let worker = Uuid::now_v7();
            self.turn.pass_over_full_shares(&self.budget);
            match self.job.claim(worker, &mut self.turn).await {
                Ok(Some(task)) => {
                    let owner = J::owner(&task).into();
                    let Ok(_permit) = self.budget.try_acquire(owner, 1) else {
                        // Another worker has claimed a task of this owner at the same time.
                        self.job.release(worker, &task).await;
                        continue;
                    };
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use prometheus::Registry;
    use switchboard_protocol::id::OrgId;
    use switchboard_runtime::budget::{Budgets, Kind};
    use tokio::sync::{Notify, Semaphore};

    use super::*;

    const GREEDY: u128 = 1;
    const MODEST: u128 = 2;

    /// A queue that ignores turns. Each of its tasks lasts until it may end.
    #[derive(Clone)]
    struct Queue {
        waiting: Arc<Mutex<Vec<u128>>>,
        started: Arc<Mutex<Vec<u128>>>,
        may_end: Arc<Semaphore>,
        changed: Arc<Notify>,
    }

    impl Queue {
        async fn wait_for_started(&self, expected: &[u128]) {
            while *self.started.lock() != expected {
                self.changed.notified().await;
            }
        }
    }

    impl LeasedJob for Queue {
        type Task = u128;
        const NAME: &'static str = "tested";

        async fn claim(&self, _: Uuid, _: &mut JobTurn) -> Result<Option<u128>, StoreError> {
            Ok(self.waiting.lock().pop())
        }

        fn owner(task: &u128) -> Owner {
            Owner::Org(OrgId::from_uuid(Uuid::from_u128(*task)))
        }

        async fn release(&self, _: Uuid, task: &u128) {
            self.waiting.lock().insert(0, *task);
            tokio::task::yield_now().await;
        }

        async fn process(&self, _: Uuid, task: &u128, _: &Shutdown) -> Result<(), String> {
            self.started.lock().push(*task);
            self.changed.notify_one();
            self.may_end.acquire().await.unwrap().forget();
            Ok(())
        }

        async fn idle(&mut self) {}
    }

    #[tokio::test]
    async fn owner_has_its_share_of_the_workers() {
        let queue = Queue {
            waiting: Arc::new(Mutex::new(vec![MODEST, GREEDY, GREEDY, GREEDY])),
            started: Arc::default(),
            may_end: Arc::new(Semaphore::new(0)),
            changed: Arc::default(),
        };
        let budgets = Budgets::new(&Registry::new()).unwrap();
        let budget = budgets.slots("tested", 2, Kind::quarter_of(2));
        let shutdown = Shutdown::new();
        for _ in 0..2 {
            let worker = LeasedWorker::new(queue.clone(), budget.clone());
            shutdown.spawn(worker.run(shutdown.clone()));
        }
        queue.wait_for_started(&[GREEDY, MODEST]).await;
        queue.may_end.add_permits(2);
        queue.wait_for_started(&[GREEDY, MODEST, GREEDY]).await;
        queue.may_end.add_permits(1);
        queue
            .wait_for_started(&[GREEDY, MODEST, GREEDY, GREEDY])
            .await;
        queue.may_end.add_permits(1);
        shutdown.drain();
        assert!(shutdown.finished(Duration::from_secs(60)).await);
    }
}
