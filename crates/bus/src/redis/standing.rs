//! Whether this node is heard, and since when it is not.
//! Never: a node that says it hears before its inbox was verified.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

use crate::{
    backend::{Condition, Inbox},
    metrics::Metrics,
    node::NodeId,
};

pub(super) struct Standing {
    node: NodeId,
    inbox: Arc<dyn Inbox>,
    metrics: Metrics,
    generation: AtomicU64,
    deaf_since: Mutex<Option<Instant>>,
}

impl Standing {
    pub(super) fn new(node: NodeId, inbox: Arc<dyn Inbox>, metrics: Metrics) -> Self {
        metrics.heard.expect();
        Self {
            node,
            inbox,
            metrics,
            generation: AtomicU64::new(0),
            deaf_since: Mutex::new(Some(Instant::now())),
        }
    }

    pub(super) fn condition(&self) -> Condition {
        let deaf_since = *self.deaf_since.lock();
        Condition {
            generation: self.generation.load(Ordering::Acquire),
            deaf_for: deaf_since.map(|since| since.elapsed()),
        }
    }

    /// The inbox is verified.
    pub(super) fn hears(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        *self.deaf_since.lock() = None;
        self.metrics.heard.note(Instant::now());
        self.metrics.up.set(1);
        self.metrics.reconnects.inc();
        tracing::info!(node.id = %self.node, "connected to Redis, inbox verified");
        self.inbox.healed();
    }

    /// There was a sign of life where the inbox is.
    pub(super) fn heard(&self, at: Instant) {
        self.metrics.heard.note(at);
    }

    /// Deaf since nothing was heard any more, which is before that was noticed.
    pub(super) fn deaf(&self, since: Instant) {
        self.deaf_since.lock().get_or_insert(since);
        self.metrics.up.set(0);
    }

    /// A part of what is shared was away and is back; the inbox was heard all the while.
    pub(super) fn disturbed(&self) {
        if self.condition().deaf_for.is_some() {
            // It is told when the inbox is heard again.
            return;
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.inbox.healed();
    }

    /// The connection held, and yet others took this node for dead: to it, that is as if the bus had been away.
    pub(super) fn lease_lapsed(&self) {
        tracing::warn!(node.id = %self.node, "this node's lease had ended");
        self.inbox.healed();
    }
}
