//! Requests that wait for their answer, by number, for the systems whose client does not keep them.
//! Never: a wait without an end.

use std::collections::HashMap;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::closed_loop::ANSWER_WITHIN;

/// Who waits for which answer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    senders: HashMap<u64, oneshot::Sender<()>>,
}

impl Pending {
    /// A new number, and what completes when its answer arrives.
    pub(super) fn enter(&self) -> (u64, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        waiting.next += 1;
        let number = waiting.next;
        waiting.senders.insert(number, sender);
        (number, receiver)
    }

    /// Wakes whoever waits for the answer that begins with this number.
    pub(super) fn complete(&self, answer: &[u8]) {
        let Some(number) = answer.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)) else {
            return;
        };
        let sender = self.waiting.lock().senders.remove(&number);
        // The waiter may have given up in between: then nobody is to be told.
        let _ = sender.map(|sender| sender.send(()));
    }

    /// Waits for the answer, but not for ever.
    pub(super) async fn wait(
        &self,
        number: u64,
        receiver: oneshot::Receiver<()>,
    ) -> anyhow::Result<()> {
        let answer = tokio::time::timeout(ANSWER_WITHIN, receiver).await;
        if answer.is_err() {
            self.waiting.lock().senders.remove(&number);
        }
        answer
            .context("no answer in time")?
            .context("the connection ended")
    }
}
