//! The messages that wait for one peer: a batch that grows until it is flushed.

use std::{mem, time::Duration};

use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;
use tokio::time::Instant;

use super::{codec, message::Message};
use crate::{error::BusError, node::NodeId};

/// How long idempotent messages are sent again to a peer that does not receive them.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);
/// Failures with a longer interval between them are independent. Longer than a failure takes to
/// be detected.
const FAILURE_WINDOW: Duration = Duration::from_secs(3);
/// Smaller messages are not counted for their organisation: its rates bound them.
const SMALL_MESSAGE_BYTES: usize = 4 * 1024;
/// A queue that was not used for this long is removed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The queue for one peer.
///
/// | state | `scheduled` | `flushing` | `backing_off` |
/// |---|---|---|---|
/// | idle | – | – | – |
/// | a task will flush it | ✓ | – | – |
/// | a task publishes a batch | ✓ | ✓ | – |
/// | waits after a failure | ✓ | either | ✓ |
///
/// Invariant: at most one task at a time publishes for a peer, so messages arrive in order.
pub(super) struct PeerQueue {
    pub(super) to: NodeId,
    state: Mutex<State>,
}

struct State {
    batch: Vec<u8>,
    /// Undelivered messages, which are sent before `batch`.
    returned: Vec<u8>,
    /// The number of messages in both.
    messages: usize,
    /// The bytes of the large messages in `batch`, of each organisation that has any.
    large: Vec<(OrgId, usize)>,
    /// A task will flush the queue.
    scheduled: bool,
    /// A task publishes the former batch.
    flushing: bool,
    /// The queue is flushed after the backoff only.
    backing_off: bool,
    failures: Option<FailureStreak>,
    used_at: Instant,
}

/// While it exists, no other task flushes the queue.
pub(super) struct FlushGuard<'a> {
    peer: &'a PeerQueue,
    ended: bool,
}

/// Consecutive failures.
#[derive(Clone, Copy)]
struct FailureStreak {
    since: Instant,
    last: Instant,
}

impl PeerQueue {
    pub(super) fn new(to: NodeId) -> Self {
        let state = State {
            batch: Vec::new(),
            returned: Vec::new(),
            messages: 0,
            large: Vec::new(),
            scheduled: false,
            flushing: false,
            backing_off: false,
            failures: None,
            used_at: Instant::now(),
        };
        Self {
            to,
            state: Mutex::new(state),
        }
    }

    /// Adds a message. The large ones of one organisation take at most half of `max_bytes`.
    /// Returns true when the caller must flush or schedule the queue.
    pub(super) fn push(
        &self,
        sender: &NodeId,
        message: &Message,
        org: Option<OrgId>,
        max_bytes: usize,
    ) -> Result<bool, BusError> {
        let mut state = self.state.lock();
        if state.bytes() > max_bytes {
            return Err(BusError::Overloaded);
        }
        let bytes = message.content_bytes();
        if let Some(org) = org.filter(|_| bytes > SMALL_MESSAGE_BYTES) {
            state.count_large(org, bytes, max_bytes / 2)?;
        }
        state.push(sender, message);
        Ok(!mem::replace(&mut state.scheduled, true))
    }

    /// Adds undelivered messages. Returns true when the caller must flush the queue after a
    /// backoff.
    pub(super) fn requeue(&self, sender: &NodeId, messages: &[Message]) -> bool {
        let mut state = self.state.lock();
        for message in messages {
            state.push_returned(sender, message);
        }
        // A task that is flushing may be the one that failed, and must not retry immediately.
        let is_flushed_soon = state.scheduled && !state.flushing;
        state.scheduled = true;
        !is_flushed_soon && !mem::replace(&mut state.backing_off, true)
    }

    /// Takes the batch to publish. Only for the task that [`Self::push`] has chosen.
    pub(super) fn begin_flush(&self) -> (Option<Vec<u8>>, FlushGuard<'_>) {
        let mut state = self.state.lock();
        state.used_at = Instant::now();
        state.flushing = true;
        let batch = Some(state.take()).filter(|batch| !batch.is_empty());
        let guard = FlushGuard {
            peer: self,
            ended: false,
        };
        (batch, guard)
    }

    /// Whether no task will flush the queue.
    pub(super) fn is_idle(&self) -> bool {
        !self.state.lock().scheduled
    }

    /// The number of queued messages, and their bytes.
    pub(super) fn queued(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.messages, state.bytes())
    }

    pub(super) fn is_in_use(&self) -> bool {
        let state = self.state.lock();
        state.scheduled || state.used_at.elapsed() < IDLE_TIMEOUT
    }

    /// The backoff after [`Self::requeue`] has passed.
    pub(super) fn end_backoff(&self) {
        self.state.lock().backing_off = false;
    }

    /// Records a failure. Returns false when failures have continued for too long.
    pub(super) fn should_retry(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let continues = |streak: &FailureStreak| now.duration_since(streak.last) < FAILURE_WINDOW;
        let since = state
            .failures
            .filter(continues)
            .map_or(now, |streak| streak.since);
        state.failures = Some(FailureStreak { since, last: now });
        now.duration_since(since) <= RETRY_TIMEOUT
    }
}

impl FlushGuard<'_> {
    /// Ends the flush. Returns whether more was queued, and the caller must flush again. If not,
    /// the next task that adds a message flushes.
    pub(super) fn end(mut self) -> bool {
        self.ended = true;
        let mut state = self.peer.state.lock();
        state.flushing = false;
        if state.backing_off {
            return false;
        }
        state.scheduled = state.messages > 0;
        state.scheduled
    }
}

impl Drop for FlushGuard<'_> {
    /// After a panic the next task that adds a message flushes.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.peer.state.lock();
        state.flushing = false;
        state.scheduled = state.backing_off;
    }
}

impl State {
    fn bytes(&self) -> usize {
        self.returned.len() + self.batch.len()
    }

    fn push(&mut self, sender: &NodeId, message: &Message) {
        if self.batch.is_empty() {
            codec::begin_batch(&mut self.batch, sender);
        }
        codec::encode(&mut self.batch, message);
        self.messages += 1;
    }

    /// Counts a large message of an organisation, up to its share. One larger than the share fits
    /// while the organisation has no other.
    fn count_large(&mut self, org: OrgId, bytes: usize, share: usize) -> Result<(), BusError> {
        match self.large.iter_mut().find(|(owner, _)| *owner == org) {
            Some((_, held)) if *held + bytes > share => return Err(BusError::Overloaded),
            Some((_, held)) => *held += bytes,
            None => self.large.push((org, bytes)),
        }
        Ok(())
    }

    /// Adds a message behind those that were returned earlier, and before all others.
    fn push_returned(&mut self, sender: &NodeId, message: &Message) {
        if self.returned.is_empty() {
            codec::begin_batch(&mut self.returned, sender);
        }
        codec::encode(&mut self.returned, message);
        self.messages += 1;
    }

    /// All messages as one batch.
    fn take(&mut self) -> Vec<u8> {
        self.messages = 0;
        self.large.clear();
        let (mut returned, batch) = (mem::take(&mut self.returned), mem::take(&mut self.batch));
        if returned.is_empty() {
            return batch;
        }
        returned.extend_from_slice(codec::encoded_messages(&batch));
        returned
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::outcome::{Delivered, Outcome};
    use uuid::Uuid;

    use super::*;

    fn message() -> Message {
        Message::NotConnected { token: 1 }
    }

    fn sender_and_queue() -> (NodeId, PeerQueue) {
        (NodeId::from("a~1"), PeerQueue::new(NodeId::from("b~1")))
    }

    #[test]
    fn push_beyond_the_limit_is_refused() {
        let (sender, peer) = sender_and_queue();
        assert!(matches!(peer.push(&sender, &message(), None, 20), Ok(true)));
        assert!(matches!(
            peer.push(&sender, &message(), None, 4),
            Err(BusError::Overloaded)
        ));
        assert!(matches!(
            peer.push(&sender, &message(), None, 40),
            Ok(false)
        ));
    }

    #[test]
    fn large_messages_of_an_organisation_leave_room_for_others() {
        const MAX_BYTES: usize = 64 * 1024;
        let (sender, peer) = sender_and_queue();
        let [noisy, quiet] = [1, 2].map(|number| OrgId::from_uuid(Uuid::from_u128(number)));
        let answer = |bytes| Message::Answer {
            token: 1,
            outcome: Outcome::Succeeded,
            delivered: Delivered::Yes,
            body: vec![b' '; bytes].into(),
            result_valid: true,
        };
        let push = |org, bytes| peer.push(&sender, &answer(bytes), Some(org), MAX_BYTES);
        let fill = || {
            let count = (0..20).take_while(|_| push(noisy, 10_000).is_ok()).count();
            assert_eq!(count, 3, "half of the queue");
        };
        fill();
        assert!(push(noisy, SMALL_MESSAGE_BYTES).is_ok());
        assert!(push(quiet, 10_000).is_ok());
        let (batch, guard) = peer.begin_flush();
        assert!(batch.is_some());
        drop(guard);
        fill();
    }

    #[test]
    fn one_task_flushes_and_a_failure_backs_off() {
        let (sender, peer) = sender_and_queue();
        let push = || peer.push(&sender, &message(), None, 1000).unwrap();
        assert!(push());
        let (batch, guard) = peer.begin_flush();
        assert!(batch.is_some());
        assert_eq!(peer.queued().0, 0);
        assert!(!push(), "another task flushes");
        assert_eq!(peer.queued().0, 1);
        assert!(guard.end(), "it flushes the new message, too");
        let (batch, guard) = peer.begin_flush();
        assert!(batch.is_some());
        assert!(peer.requeue(&sender, &[message()]));
        assert!(
            !peer.requeue(&sender, &[message()]),
            "one backoff is enough"
        );
        assert!(!guard.end(), "not before the end of the backoff");
        assert!(!push() && !peer.is_idle());
        peer.end_backoff();
        let (batch, guard) = peer.begin_flush();
        assert!(batch.is_some());
        assert!(!guard.end() && peer.is_idle());
    }

    #[test]
    fn returned_messages_go_first_in_order() {
        let (sender, peer) = sender_and_queue();
        let message = |token| Message::NotConnected { token };
        peer.push(&sender, &message(4), None, 1000).unwrap();
        peer.requeue(&sender, &[message(1), message(2)]);
        peer.requeue(&sender, &[message(3)]);
        peer.push(&sender, &message(5), None, 1000).unwrap();
        assert_eq!(peer.queued().0, 5);
        let (batch, _guard) = peer.begin_flush();
        let messages = codec::decode_batch(batch.unwrap().into()).unwrap();
        assert_eq!(messages.sender, sender);
        let tokens = messages.map(|message| match message {
            Ok(Message::NotConnected { token }) => token,
            other => panic!("{other:?}"),
        });
        assert_eq!(tokens.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn panic_during_flush_releases_the_queue() {
        let (sender, peer) = sender_and_queue();
        assert!(peer.push(&sender, &message(), None, 1000).unwrap());
        drop(peer.begin_flush());
        assert!(peer.push(&sender, &message(), None, 1000).unwrap());
    }
}
