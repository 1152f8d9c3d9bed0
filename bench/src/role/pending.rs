//! Requests in flight by number, for client libraries that do not match responses to requests.

use std::collections::HashMap;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::closed_loop::RESPONSE_TIMEOUT;

/// The requests in flight.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<PendingState>,
}

#[derive(Debug, Default)]
struct PendingState {
    next: u64,
    senders: HashMap<u64, oneshot::Sender<()>>,
}

impl Pending {
    /// Registers a request. Returns its number and a receiver for the arrival of its response.
    pub(super) fn register(&self) -> (u64, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.senders.insert(number, sender);
        (number, receiver)
    }

    /// Completes the request whose number is in the first eight bytes of the response.
    pub(super) fn complete(&self, response: &[u8]) {
        let Some(number) = response
            .first_chunk()
            .map(|bytes| u64::from_be_bytes(*bytes))
        else {
            return;
        };
        let sender = self.state.lock().senders.remove(&number);
        // The send fails only if the request has timed out; then there is no receiver.
        let _ = sender.map(|sender| sender.send(()));
    }

    /// Waits for the response until [`RESPONSE_TIMEOUT`].
    pub(super) async fn wait(
        &self,
        number: u64,
        receiver: oneshot::Receiver<()>,
    ) -> anyhow::Result<()> {
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, receiver).await;
        if response.is_err() {
            self.state.lock().senders.remove(&number);
        }
        response
            .context("the request timed out")?
            .context("the connection was closed")
    }
}
