//! Requests that wait for calls to end, and the one connection that tells them when they did.
//! Never: a question to the database for each waiter and moment; a waiter is woken, and reads then.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use switchboard_protocol::id::CallId;
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{CallEnds, StoreError};
use tokio::sync::Notify;

use crate::Gateway;

/// Who waits for which call. As many as there are HTTP connections at most.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<CallId, Waited>>);

#[derive(Debug, Default)]
struct Waited {
    ended: Arc<Notify>,
    waiters: usize,
}

/// One request that waits for a call.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    call: CallId,
    ended: Arc<Notify>,
}

impl Waiters {
    /// Begins to wait for a call; what is told from now on is heard.
    pub(super) fn wait_for(&self, call: CallId) -> Waiter<'_> {
        let mut all = self.0.lock();
        let waited = all.entry(call).or_default();
        waited.waiters += 1;
        Waiter {
            waiters: self,
            call,
            ended: Arc::clone(&waited.ended),
        }
    }

    fn wake(&self, call: CallId) {
        if let Some(waited) = self.0.lock().get(&call) {
            waited.ended.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for waited in self.0.lock().values() {
            waited.ended.notify_waiters();
        }
    }
}

impl Waiter<'_> {
    /// Told when the call has ended, or may have. Whoever wants to miss nothing enables it before reading.
    pub(super) fn ended(&self) -> tokio::sync::futures::Notified<'_> {
        self.ended.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut all = self.waiters.0.lock();
        if let Some(waited) = all.get_mut(&self.call) {
            waited.waiters -= 1;
            if waited.waiters == 0 {
                all.remove(&self.call);
            }
        }
    }
}

/// Listens until draining begins, on a connection that is made anew whenever it breaks.
pub(crate) async fn listen(gateway: Arc<Gateway>, shutdown: Shutdown) {
    let mut backoff = Backoff::new();
    let mut trouble = None;
    loop {
        let listening = async {
            let ends = gateway.store.call_ends().await?;
            if trouble.take().is_some() {
                tracing::info!("ends of calls are heard of again");
            }
            backoff.reset();
            Err::<std::convert::Infallible, StoreError>(hear(&gateway, ends).await)
        };
        let broken = tokio::select! {
            Err(broken) = listening => broken,
            () = shutdown.draining() => return,
        };
        if trouble.replace(broken.kind()).is_none() {
            tracing::warn!(
                error = broken.report(),
                "ends of calls are not heard of; listening again when the database is there"
            );
        }
        if !backoff.pause(&shutdown).await {
            return;
        }
    }
}

async fn hear(gateway: &Gateway, mut ends: CallEnds) -> StoreError {
    let waiters = &gateway.kept.waiters;
    // What ended while nobody listened.
    waiters.wake_all();
    loop {
        match ends.next().await {
            Ok(call) => waiters.wake(call),
            Err(error) => return error,
        }
    }
}
