//! Graceful shutdown in two steps, and the tracker of all tasks.

use std::{future::Future, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFuture},
    task::TaskTracker,
};
use tracing::{Instrument, Span};

/// A handle to shutdown state; cheap to clone.
///
/// Shutdown has two steps: *drain* (report unready, stop accepting, finish work in progress) and
/// *stop* (abort now).
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Creates a handle whose shutdown has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a child that shuts down with its parent, and can also be shut down and awaited
    /// separately.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            drain: self.drain.child_token(),
            stop: self.stop.child_token(),
            tasks: TaskTracker::new(),
        }
    }

    /// Spawns a tracked task in the current span.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_in(Span::current(), task)
    }

    /// Spawns a tracked task in the given span. A task that outlives its parent gets a span of its
    /// own; an unrelated one gets [`Span::none`].
    pub fn spawn_in<F>(&self, span: Span, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_bare(task.instrument(span))
    }

    /// Spawns a tracked task without a span, which saves its memory in each of many tasks.
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that spawns tasks"
    )]
    pub fn spawn_bare<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Begins draining: tasks finish work in progress and accept no new work.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Begins stopping: tasks end now.
    pub fn stop(&self) {
        self.drain.cancel();
        self.stop.cancel();
    }

    /// Returns whether draining has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Returns whether stopping has begun.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Completes when draining begins.
    pub fn draining(&self) -> WaitForCancellationFuture<'_> {
        self.drain.cancelled()
    }

    /// Completes when stopping begins.
    pub fn stopping(&self) -> WaitForCancellationFuture<'_> {
        self.stop.cancelled()
    }

    /// Returns the number of tracked tasks that are running.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until all tracked tasks have ended. Returns false if `within` elapses first.
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
    async fn finished_reports_tasks_that_are_late() {
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
    async fn child_stops_alone_or_with_parent() {
        let parent = Shutdown::new();
        let child = parent.child();
        child.stop();
        assert!(!parent.is_draining());
        let other = parent.child();
        parent.stop();
        assert!(other.is_stopping());
    }
}
