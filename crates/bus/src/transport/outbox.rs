//! Sends messages to other nodes, in batches under load.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{codec, message::Message, peer_queue::PeerQueue};
use crate::{
    backend::{Backend, DeliveryFailure},
    background::spawn_task,
    error::BusError,
    metrics::{BusBudget, Metrics},
    node::NodeId,
    rpc::{CallEnd, PendingCalls},
};

/// What may wait for one peer; half of it for the large calls and answers of one organisation, so
/// that others find room. Protects memory while the peer or Redis is slow.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;
/// What may wait for one peer before droppable messages are dropped, so that the notifications of
/// one device do not fill the queue.
const MAX_DROPPABLE_BYTES: usize = 1024 * 1024;
/// Between two attempts to send an answer.
const RETRY_BACKOFF: Duration = Duration::from_millis(100);

/// The outgoing messages of one node.
///
/// There is one [`PeerQueue`] for each receiving node. A single message is sent immediately, by
/// the task that sends it. While a batch is in flight, further messages are queued, and leave as
/// one batch when the former is acknowledged. No timer delays a message.
///
/// ```text
///   send ─► peer queue ─┬─ route idle ──► flush ─► Transport::publish, ::flush
///                       │                              │
///                       └─ route busy ─► flush cycle   ├─ acknowledged ─► next flush cycle
///                                        of the route  └─ undelivered ─► handle_undelivered
/// ```
///
/// Each route of the backend has a flush cycle of its own ([`Self::run_flush_loop`]): it waits
/// until the route is idle, lets ready tasks add their messages, and flushes the queues that are
/// due. A batch that did not arrive is decoded again:
///
/// - A call ends as not connected, not sent, or lost. It is never sent again.
/// - An answer, a refusal, a cancellation, a takeover and a reply chunk are idempotent: they are
///   sent again after 100 ms, before newer messages, for up to 5 s.
/// - Any other message is dropped.
///
/// Invariant: messages for one peer arrive in the order in which they were sent.
pub(crate) struct Outbox {
    sender: NodeId,
    backend: Arc<dyn Backend>,
    pending: Arc<PendingCalls>,
    metrics: Metrics,
    shutdown: Shutdown,
    /// This node has left: nothing more is sent.
    pub(crate) closed: CancellationToken,
    peers: papaya::HashMap<NodeId, Arc<PeerQueue>>,
    /// One for each route.
    flush_cycles: Vec<FlushCycle>,
}

/// The queues that are flushed when a route is idle.
#[derive(Default)]
struct FlushCycle {
    due: Mutex<Vec<Arc<PeerQueue>>>,
    scheduled: Notify,
}

impl Outbox {
    pub(crate) fn new(
        sender: NodeId,
        backend: Arc<dyn Backend>,
        pending: Arc<PendingCalls>,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> Self {
        let flush_cycles = (0..backend.route_count()).map(|_| FlushCycle::default());
        Self {
            flush_cycles: flush_cycles.collect(),
            sender,
            backend,
            pending,
            metrics,
            shutdown,
            closed: CancellationToken::new(),
            peers: papaya::HashMap::new(),
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// [`BusError::Overloaded`] when too much waits for that node.
    pub(crate) fn send(&self, to: &NodeId, message: &Message) -> Result<(), BusError> {
        let sent = self.send_within(to, message, None, MAX_QUEUED_BYTES);
        self.count_refused(sent)
    }

    /// Sends one message of an organisation, which may be large.
    ///
    /// # Errors
    /// [`BusError::Overloaded`] when too much waits for that node, of the organisation or in all.
    pub(crate) fn send_of(
        &self,
        org: OrgId,
        to: &NodeId,
        message: &Message,
    ) -> Result<(), BusError> {
        let sent = self.send_within(to, message, Some(org), MAX_QUEUED_BYTES);
        self.count_refused(sent)
    }

    fn count_refused(&self, sent: Result<(), BusError>) -> Result<(), BusError> {
        sent.inspect_err(|_| self.metrics.refused.inc(BusBudget::QueuedMessages))
    }

    /// Sends a message that may be lost: it leaves most of the queue to other messages.
    ///
    /// # Errors
    /// [`BusError::Overloaded`] when more waits for that node than droppable messages may add to.
    pub(crate) fn send_droppable(&self, to: &NodeId, message: &Message) -> Result<(), BusError> {
        self.send_within(to, message, None, MAX_DROPPABLE_BYTES)
    }

    /// Sends one message. A message that cannot be queued is dropped and counted: its receiver
    /// has a deadline.
    pub(crate) fn send_or_drop(&self, to: &NodeId, message: &Message) {
        if self.send(to, message).is_err() {
            self.metrics.dropped.inc();
        }
    }

    /// The same for a message of an organisation, which may be large.
    pub(crate) fn send_of_or_drop(&self, org: OrgId, to: &NodeId, message: &Message) {
        if self.send_of(org, to, message).is_err() {
            self.metrics.dropped.inc();
        }
    }

    fn send_within(
        &self,
        to: &NodeId,
        message: &Message,
        org: Option<OrgId>,
        max: usize,
    ) -> Result<(), BusError> {
        let peers = self.peers.pin();
        let peer = match peers.get(to) {
            Some(peer) => peer,
            None => &self.peer(to),
        };
        if peer.push(&self.sender, message, org, max)? {
            self.flush_or_schedule(peer);
        }
        Ok(())
    }

    fn peer(&self, to: &NodeId) -> Arc<PeerQueue> {
        let peer = || Arc::new(PeerQueue::new(to.clone()));
        Arc::clone(self.peers.pin().get_or_insert_with(to.clone(), peer))
    }

    /// Flushes now when the route is idle, else in the next flush cycle.
    fn flush_or_schedule(&self, peer: &Arc<PeerQueue>) {
        let route = self.backend.route(&peer.to);
        if self.backend.is_idle(route) {
            let has_more = self.flush(peer);
            self.backend.flush(route);
            if !has_more {
                return;
            }
        }
        self.schedule(Arc::clone(peer), route);
    }

    fn schedule(&self, peer: Arc<PeerQueue>, route: usize) {
        // There is a flush cycle for each route.
        let Some(cycle) = self.flush_cycles.get(route) else {
            return;
        };
        let mut due = cycle.due.lock();
        due.push(peer);
        let is_first = due.len() == 1;
        drop(due);
        if is_first {
            cycle.scheduled.notify_one();
        }
    }

    pub(crate) fn route_count(&self) -> usize {
        self.flush_cycles.len()
    }

    /// Runs the flush cycles of one route for ever.
    pub(crate) async fn run_flush_loop(&self, route: usize) {
        let Some(FlushCycle { due, scheduled }) = self.flush_cycles.get(route) else {
            return;
        };
        let mut peers = Vec::new();
        loop {
            scheduled.notified().await;
            self.backend.wait_idle(route).await;
            // Tasks that are ready to run add to this cycle first.
            tokio::task::yield_now().await;
            std::mem::swap(&mut peers, &mut *due.lock());
            for peer in peers.drain(..) {
                let current = self.backend.route(&peer.to);
                if current != route {
                    // The peer has moved to another route; what is in flight there goes first.
                    self.schedule(peer, current);
                } else if self.flush(&peer) {
                    self.schedule(peer, route);
                }
            }
            self.backend.flush(route);
        }
    }

    /// Publishes what waits for a peer. Returns whether more was queued in the meantime. Until
    /// that is known no other task flushes this queue, so a later batch cannot overtake this one.
    fn flush(&self, peer: &PeerQueue) -> bool {
        let (batch, guard) = peer.begin_flush();
        if let Some(batch) = batch {
            self.metrics.batches.inc();
            self.backend.publish(&peer.to, batch.into());
        }
        guard.end()
    }

    /// Whether nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let peers = self.peers.pin();
        peers.values().all(|peer| peer.is_idle())
            && !self.backend.is_redelivering()
            && (0..self.route_count()).all(|route| self.backend.is_idle(route))
    }

    /// The number of queued messages, and their bytes.
    pub(crate) fn queued(&self) -> (usize, usize) {
        let peers = self.peers.pin();
        let queued = peers.values().map(|peer| peer.queued());
        queued.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Removes queues that have not been used for a while.
    pub(crate) fn remove_unused(&self) {
        self.peers.pin().retain(|_, peer| peer.is_in_use());
    }

    /// Ends the calls of a batch that did not arrive, and sends idempotent messages again.
    pub(crate) fn handle_undelivered(
        self: &Arc<Self>,
        to: &NodeId,
        batch: Bytes,
        reason: DeliveryFailure,
    ) {
        let retryable = self.fail_calls(batch, reason);
        if retryable.is_empty() {
            return;
        }
        let peer = self.peer(to);
        if self.closed.is_cancelled() || !peer.should_retry() {
            self.metrics.dropped.inc_by(retryable.len() as u64);
            return;
        }
        if peer.requeue(&self.sender, &retryable) {
            let outbox = Arc::clone(self);
            spawn_task(&self.shutdown, async move {
                tokio::time::sleep(RETRY_BACKOFF).await;
                peer.end_backoff();
                outbox.flush_or_schedule(&peer);
            });
        }
    }

    /// Ends the calls of a batch. Returns the messages that may be sent again.
    fn fail_calls(&self, batch: Bytes, reason: DeliveryFailure) -> Vec<Message> {
        let Ok(messages) = codec::decode_batch(batch) else {
            return Vec::new();
        };
        let mut retryable = Vec::new();
        for message in messages.flatten() {
            match message {
                Message::Call(call) => {
                    let end = match reason {
                        DeliveryFailure::NoSubscriber => CallEnd::NotConnected,
                        DeliveryFailure::NotSent => CallEnd::NotSent,
                        DeliveryFailure::Unknown => {
                            CallEnd::Lost("the bus failed while the call was sent")
                        }
                    };
                    self.pending.complete(call.token, end);
                }
                Message::Answer { .. }
                | Message::NotConnected { .. }
                | Message::Takeover(_)
                | Message::Cancel { .. }
                | Message::Chunk(_) => retryable.push(message),
                Message::Notification { .. }
                | Message::CancelTurns { .. }
                | Message::CancelByKey { .. }
                | Message::Disconnect(_)
                | Message::Probe { .. }
                | Message::TokenRevoked { .. }
                | Message::KeysChanged
                | Message::Watched { .. }
                | Message::PromptsChanged { .. }
                | Message::ResourcesChanged { .. }
                | Message::ApprovalsChanged { .. } => {}
            }
        }
        retryable
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use switchboard_protocol::outcome::{Delivered, Outcome};
    use tokio::{sync::mpsc, task::JoinSet};

    use super::*;
    use crate::{
        backend::{BatchInbox, Inbox},
        memory,
    };

    #[tokio::test]
    async fn refused_messages_are_counted() {
        let hub = memory::LocalHub::default();
        let [sender, to] = ["sender~1", "receiver~1"].map(NodeId::from);
        let large = || Message::Answer {
            token: 1,
            outcome: Outcome::Succeeded,
            delivered: Delivered::Yes,
            body: vec![b' '; MAX_QUEUED_BYTES / 2].into(),
            result_valid: true,
        };
        let (outbox, peer) = (Arc::new(Mutex::new(None::<Arc<Outbox>>)), to.clone());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (next, results) = (Arc::clone(&outbox), Arc::clone(&sent));
        // While the first batch is in flight, further messages wait.
        let inbox: Arc<dyn Inbox> = Arc::new(BatchInbox(move |_| {
            if let Some(outbox) = next.lock().take() {
                let mut results = results.lock();
                results.extend((0..4).map(|_| outbox.send(&peer, &large()).is_ok()));
                results.push(outbox.queued().1 > MAX_QUEUED_BYTES);
            }
        }));
        let _receiver = memory::join(&hub, to.clone(), Arc::clone(&inbox));
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let new = Arc::new(Outbox::new(
            sender.clone(),
            memory::join(&hub, sender, inbox),
            Arc::new(PendingCalls::new()),
            metrics.clone(),
            Shutdown::new(),
        ));
        *outbox.lock() = Some(Arc::clone(&new));
        new.send(&to, &large()).unwrap();
        assert_eq!(*sent.lock(), [true, true, false, false, true]);
        assert_eq!(metrics.refused.get(BusBudget::QueuedMessages), 2);
        assert_eq!(new.queued().0, 2);
    }

    #[tokio::test]
    async fn later_batch_does_not_overtake_one_in_flush() {
        let (hub, (sent, mut received)) = (memory::LocalHub::default(), mpsc::channel(4));
        let [sender, to] = ["sender~1", "receiver~1"].map(NodeId::from);
        // The first batch makes the sender send another, before the first is handled.
        let echo = Arc::new(Mutex::new(None::<Weak<Outbox>>));
        let (next_echo, peer) = (Arc::clone(&echo), to.clone());
        let inbox: Arc<dyn Inbox> = Arc::new(BatchInbox(move |batch| {
            let outbox = next_echo.lock().take();
            if let Some(outbox) = outbox.and_then(|outbox| outbox.upgrade()) {
                let second = Message::NotConnected { token: 2 };
                outbox.send(&peer, &second).unwrap();
            }
            for message in codec::decode_batch(batch).unwrap() {
                sent.try_send(message.unwrap()).unwrap();
            }
        }));
        let _receiver = memory::join(&hub, to.clone(), Arc::clone(&inbox));
        let outbox = Arc::new(Outbox::new(
            sender.clone(),
            memory::join(&hub, sender, inbox),
            Arc::new(PendingCalls::new()),
            Metrics::new(&prometheus::Registry::new()).unwrap(),
            Shutdown::new(),
        ));
        *echo.lock() = Some(Arc::downgrade(&outbox));
        let mut tasks = JoinSet::new();
        let flushing = Arc::clone(&outbox);
        tasks.spawn(async move { flushing.run_flush_loop(0).await });
        let first = Message::NotConnected { token: 1 };
        outbox.send(&to, &first).unwrap();
        for token in [1, 2] {
            let next = tokio::time::timeout(Duration::from_secs(5), received.recv()).await;
            assert_eq!(next, Ok(Some(Message::NotConnected { token })));
        }
    }
}
