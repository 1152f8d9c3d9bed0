//! Receives what is published at one Redis server: batches, catalog events and probes.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::IntCounter;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::{cluster::Deduplicator, keys::Keys};
use crate::{backend::Inbox, directory::CatalogEvent};

/// The receiving side of one connection. Its methods must not block: they run on the task that
/// reads the socket.
pub(super) struct Subscriber {
    /// Counts what was received on the node's own channels.
    activity: AtomicU64,
    /// The probe in flight, and whether there is one.
    probe: Mutex<Bytes>,
    probe_pending: AtomicBool,
    probe_received: Notify,
    pub(super) disconnected: Notify,
    /// A command timed out: the connection is to be probed.
    pub(super) suspect: Notify,
    /// The node's inbox, and the channel of its probes. What is received there counts as activity.
    inbox_channel: String,
    probe_channel: String,
    /// Channels of the shard subscriber, as confirmed by Redis.
    subscribed: Mutex<HashSet<String>>,
    /// That set changed: for those who wait for a channel here, and for the cluster.
    confirmation: Notify,
    subscriptions_changed: Arc<Notify>,
    deduplicator: Arc<Deduplicator>,
    inbox: Arc<dyn Inbox>,
    malformed: IntCounter,
}

impl Subscriber {
    pub(super) fn new(
        inbox_channel: String,
        probe_channel: String,
        subscriptions_changed: Arc<Notify>,
        deduplicator: Arc<Deduplicator>,
        inbox: Arc<dyn Inbox>,
        malformed: IntCounter,
    ) -> Self {
        Self {
            activity: AtomicU64::new(0),
            probe: Mutex::default(),
            probe_pending: AtomicBool::new(false),
            probe_received: Notify::new(),
            disconnected: Notify::new(),
            suspect: Notify::new(),
            inbox_channel,
            probe_channel,
            subscribed: Mutex::default(),
            confirmation: Notify::new(),
            subscriptions_changed,
            deduplicator,
            inbox,
            malformed,
        }
    }

    /// How much was received so far on the node's own channels.
    pub(super) fn activity(&self) -> u64 {
        self.activity.load(Ordering::Acquire)
    }

    /// Sets the probe that [`Self::probe_returned`] waits for.
    pub(super) fn expect_probe(&self, probe: Bytes) {
        *self.probe.lock() = probe;
        self.probe_pending.store(true, Ordering::Release);
    }

    /// Waits until the expected probe is received.
    pub(super) async fn probe_returned(&self) {
        loop {
            let received = self.probe_received.notified();
            if !self.probe_pending.load(Ordering::Acquire) {
                return;
            }
            received.await;
        }
    }

    fn check_probe(&self, batch: &Bytes) {
        if self.probe_pending.load(Ordering::Acquire) && *self.probe.lock() == *batch {
            self.probe_pending.store(false, Ordering::Release);
            self.probe_received.notify_waiters();
        }
    }

    /// Handles a push of the driver.
    pub(super) fn handle_push(&self, info: PushInfo) {
        match info.kind {
            PushKind::Message => {
                let mut data = info.data.into_iter();
                if let (Some(Value::BulkString(channel)), Some(Value::BulkString(payload))) =
                    (data.next(), data.next())
                {
                    self.receive(&channel, payload.into());
                }
            }
            PushKind::Disconnection => self.disconnected.notify_one(),
            _ => {}
        }
    }

    /// Handles what was published on a channel.
    pub(super) fn receive(&self, channel: &[u8], payload: Bytes) {
        if Keys::is_catalog_channel(channel) {
            match CatalogEvent::parse(&payload) {
                Some(event) => self.inbox.catalog_changed(&event),
                None => self.malformed.inc(),
            }
            return;
        }
        let is_inbox = self.inbox_channel.as_bytes() == channel;
        if is_inbox || self.probe_channel.as_bytes() == channel {
            self.activity.fetch_add(1, Ordering::AcqRel);
            self.check_probe(&payload);
        }
        // Broadcasts are idempotent, and are not sent again.
        if !is_inbox || !self.deduplicator.is_duplicate(&payload) {
            self.inbox.receive(payload);
        }
    }

    /// Redis confirms that a channel is subscribed from now on, or is not.
    pub(super) fn confirm(&self, channel: &[u8], is_subscribed: bool) {
        let Ok(channel) = str::from_utf8(channel) else {
            return;
        };
        let mut subscribed = self.subscribed.lock();
        if is_subscribed {
            subscribed.insert(channel.to_owned());
        } else {
            subscribed.remove(channel);
        }
        drop(subscribed);
        self.confirmation.notify_waiters();
        self.subscriptions_changed.notify_one();
    }

    /// Waits until Redis has confirmed that a channel is subscribed, or is not.
    pub(super) async fn confirmed(&self, channel: &str, is_subscribed: bool) {
        loop {
            let confirmation = self.confirmation.notified();
            if self.is_subscribed(channel) == is_subscribed {
                return;
            }
            confirmation.await;
        }
    }

    pub(super) fn is_subscribed(&self, channel: &str) -> bool {
        self.subscribed.lock().contains(channel)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::backend::BatchInbox;

    type Batches = Arc<Mutex<Vec<Bytes>>>;

    fn subscriber(deduplicator: &Arc<Deduplicator>, received: &Batches) -> Subscriber {
        let received = Arc::clone(received);
        Subscriber::new(
            "sb:in:node".to_owned(),
            "sb:echo:node".to_owned(),
            Arc::default(),
            Arc::clone(deduplicator),
            Arc::new(BatchInbox(move |batch| received.lock().push(batch))),
            IntCounter::new("malformed", "Malformed").unwrap(),
        )
    }

    #[test]
    fn duplicates_are_dropped_at_the_inbox_only() {
        let deduplicator = Arc::new(Deduplicator::new());
        let batches = Batches::default();
        let subscriber = subscriber(&deduplicator, &batches);
        deduplicator.activate();
        let check = |channel: &[u8], received: usize| {
            for _ in 0..2 {
                subscriber.receive(channel, Bytes::from_static(b"batch"));
            }
            assert_eq!(batches.lock().drain(..).count(), received);
        };
        check(b"sb:all", 2);
        check(b"sb:in:node", 1);
        check(b"sb:all", 2);
    }

    #[tokio::test]
    async fn probe_returns_only_when_received_itself() {
        let subscriber = subscriber(&Arc::new(Deduplicator::new()), &Arc::default());
        let (probe, other) = (Bytes::from("probe 1"), Bytes::from("probe 2"));
        subscriber.expect_probe(probe.clone());
        subscriber.receive(b"sb:in:node", other);
        subscriber.receive(b"sb:all", probe.clone());
        let soon = Duration::from_millis(20);
        assert!(timeout(soon, subscriber.probe_returned()).await.is_err());
        assert_eq!(subscriber.activity(), 1, "the other batch is activity");
        subscriber.receive(b"sb:in:node", probe);
        assert!(timeout(soon, subscriber.probe_returned()).await.is_ok());
    }
}
