//! Requests that wait for calls to end, woken over one database connection.
//!
//! A waiter does not poll: it is woken by a notification and then reads the call.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use parking_lot::Mutex;
use switchboard_protocol::id::CallId;
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{CallEndListener, StoreError};
use tokio::sync::{Notify, futures::Notified};

use crate::Gateway;

/// The waiting requests by call. Bounded by the number of HTTP connections.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<CallId, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    ended: Arc<Notify>,
    waiters: usize,
}

/// One request that waits for a call.
pub(in crate::calls) struct Waiter<'a> {
    waiters: &'a Waiters,
    call: CallId,
    ended: Arc<Notify>,
}

impl Waiters {
    /// Registers a waiter, which receives every notification from now on.
    pub(in crate::calls) fn register(&self, call: CallId) -> Waiter<'_> {
        let mut entries = self.0.lock();
        let entry = entries.entry(call).or_default();
        entry.waiters += 1;
        Waiter {
            waiters: self,
            call,
            ended: Arc::clone(&entry.ended),
        }
    }

    fn wake(&self, call: CallId) {
        if let Some(entry) = self.0.lock().get(&call) {
            entry.ended.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for entry in self.0.lock().values() {
            entry.ended.notify_waiters();
        }
    }
}

impl Waiter<'_> {
    /// Completes when the call has ended, or may have. Enable it before reading the call, so that
    /// no notification is missed in between.
    pub(in crate::calls) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut entries = self.waiters.0.lock();
        if let Some(entry) = entries.get_mut(&self.call) {
            entry.waiters -= 1;
            if entry.waiters == 0 {
                entries.remove(&self.call);
            }
        }
    }
}

/// Listens for ended calls and wakes their waiters until `shutdown` drains. Reconnects with a
/// backoff.
pub(super) async fn listen(gateway: Arc<Gateway>, shutdown: Shutdown) {
    let mut backoff = Backoff::new();
    let mut failure = None;
    loop {
        let listening = async {
            let ends = gateway.store.listen_call_ends().await?;
            if failure.take().is_some() {
                tracing::info!("receiving the ends of calls again");
            }
            backoff.reset();
            Err::<Infallible, StoreError>(forward(&gateway, ends).await)
        };
        let error = tokio::select! {
            Err(error) = listening => error,
            () = shutdown.draining() => return,
        };
        if failure.replace(error.kind()).is_none() {
            tracing::warn!(
                error = error.report(),
                "cannot receive the ends of calls; reconnecting to the database"
            );
        }
        if !backoff.pause(&shutdown).await {
            return;
        }
    }
}

async fn forward(gateway: &Gateway, mut ends: CallEndListener) -> StoreError {
    let waiters = &gateway.async_calls.waiters;
    // Calls may have ended while there was no connection.
    waiters.wake_all();
    loop {
        match ends.next().await {
            Ok(call) => waiters.wake(call),
            Err(error) => return error,
        }
    }
}
