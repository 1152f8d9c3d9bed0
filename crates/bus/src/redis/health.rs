//! Whether this node is connected, and since when it is not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

use crate::{
    backend::{ConnectionStatus, Inbox},
    metrics::Metrics,
    node::NodeId,
};

/// The connection state of one node over Redis.
///
/// Invariant: a node does not count as connected before its inbox was verified.
pub(super) struct ConnectionHealth {
    node: NodeId,
    inbox: Arc<dyn Inbox>,
    metrics: Metrics,
    generation: AtomicU64,
    disconnected_since: Mutex<Option<Instant>>,
}

impl ConnectionHealth {
    pub(super) fn new(node: NodeId, inbox: Arc<dyn Inbox>, metrics: Metrics) -> Self {
        metrics.last_activity.start();
        Self {
            node,
            inbox,
            metrics,
            generation: AtomicU64::new(0),
            disconnected_since: Mutex::new(Some(Instant::now())),
        }
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        let disconnected_since = *self.disconnected_since.lock();
        ConnectionStatus {
            generation: self.generation.load(Ordering::Acquire),
            disconnected_for: disconnected_since.map(|since| since.elapsed()),
        }
    }

    /// The inbox is verified.
    pub(super) fn connected(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        *self.disconnected_since.lock() = None;
        self.metrics.last_activity.record(Instant::now());
        self.metrics.up.set(1);
        self.metrics.reconnects.inc();
        tracing::info!(node.id = %self.node, "connected to Redis, inbox verified");
        self.inbox.reconnected();
    }

    /// Something was received at the server that has the inbox.
    pub(super) fn activity(&self, at: Instant) {
        self.metrics.last_activity.record(at);
    }

    /// Disconnected since the last activity, which is earlier than its detection.
    pub(super) fn disconnected(&self, since: Instant) {
        self.disconnected_since.lock().get_or_insert(since);
        self.metrics.up.set(0);
    }

    /// A shard was unavailable and is back; the inbox was subscribed all the time.
    pub(super) fn shard_reconnected(&self) {
        if self.status().disconnected_for.is_some() {
            // `connected` notifies the inbox later.
            return;
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.inbox.reconnected();
    }

    /// The connection lasted, but the lease expired: other nodes took this node for dead and may
    /// have removed its entries. Recovery is the same as after a reconnect.
    pub(super) fn lease_expired(&self) {
        tracing::warn!(node.id = %self.node, "this node's lease had expired; resyncing");
        self.inbox.reconnected();
    }
}
