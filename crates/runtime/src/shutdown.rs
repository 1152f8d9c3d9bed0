//! Draining and stopping, in that order, and the tracker that every task lives in.
//! Never: a task nobody waits for.

use std::{future::Future, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFuture},
    task::TaskTracker,
};
use tracing::{Instrument, Span};

/// Handed to everything that runs; cheap to clone.
///
/// Two steps: *drain* (unready, stop accepting, finish what is under way) and *stop* (close now).
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// A shutdown that nobody has asked for yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A part that stops with the whole, and can be stopped and waited for on its own.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            drain: self.drain.child_token(),
            stop: self.stop.child_token(),
            tasks: TaskTracker::new(),
        }
    }

    /// Starts a tracked task under the current span.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_in(Span::current(), task)
    }

    /// Starts a tracked task under a span of its own: one that outlives what started it is no part of that, and one
    /// that has nothing to do with it has [`Span::none`].
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where tasks are born"
    )]
    pub fn spawn_in<F>(&self, span: Span, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task.instrument(span))
    }

    /// Asks everything to finish what is under way and to take nothing new.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Asks everything to end now.
    pub fn stop(&self) {
        self.drain.cancel();
        self.stop.cancel();
    }

    /// Whether draining has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Whether everything is to end now.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Completes when draining begins.
    pub fn draining(&self) -> WaitForCancellationFuture<'_> {
        self.drain.cancelled()
    }

    /// Completes when everything is to end now.
    pub fn stopping(&self) -> WaitForCancellationFuture<'_> {
        self.stop.cancelled()
    }

    /// How many tracked tasks are alive.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until every tracked task has ended; false when `within` runs out first.
    pub async fn finished(&self, within: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(within, self.tasks.wait())
            .await
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_its_tasks_and_says_when_they_are_late() {
        let shutdown = Shutdown::new();
        let task = shutdown.clone();
        shutdown.spawn(async move { task.stopping().await });
        shutdown.drain();
        assert!(shutdown.is_draining() && !shutdown.is_stopping());
        assert!(!shutdown.finished(Duration::from_millis(10)).await);
        shutdown.stop();
        assert!(shutdown.finished(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_child_stops_alone_or_with_its_parent() {
        let parent = Shutdown::new();
        let child = parent.child();
        child.stop();
        assert!(!parent.is_draining());
        let other = parent.child();
        parent.stop();
        assert!(other.is_stopping());
    }
}
