//! The directory entries that a node has read, each for as long as the lease of its node lasts.

use std::time::Duration;

use quick_cache::sync::Cache;
use switchboard_protocol::id::DeviceKey;
use tokio::time::Instant;

use crate::{
    backend::Presence,
    node::{Epoch, NodeId},
};

/// How long a lease counts after a lookup has found an entry of its node, until its end is read.
/// Longer than two checks take.
const UNREAD_LEASE: Duration = Duration::from_millis(1_500);
/// An entry with its key, and its share of the tables.
const ENTRY_BYTES: usize = 200;

/// Which node owns the connection of which device, as far as this node has read it.
///
/// The directory does not return entries of a node whose lease has ended. A cached entry must not
/// outlive the lease either: a node whose host stands still does not answer, and nothing else shows
/// that its devices have gone.
///
/// ```text
///             insert            get, while the lease lasts
///   unknown ──────────► cached ────────────────────────────► used for a call
///      ▲                  │
///      ├── remove, remove_… ────── not connected, timed out, device left, moved or registered
///      └── end_leases ──────────── the lease of its node has ended
/// ```
///
/// `background::monitor_peers` reads the leases of [`Self::nodes`] twice a second.
///
/// Invariant: [`Self::get`] returns no entry of a node whose lease has ended, by at most the time
/// between two checks.
pub(crate) struct PresenceCache {
    capacity: usize,
    entries: Cache<DeviceKey, Presence>,
    /// Until when the lease of a node lasts at least.
    leases: papaya::HashMap<NodeId, Instant>,
}

impl PresenceCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: Cache::new(capacity),
            leases: papaya::HashMap::new(),
        }
    }

    pub(crate) fn get(&self, device: &DeviceKey) -> Option<Presence> {
        let presence = self.entries.get(device)?;
        let leases = self.leases.pin();
        let lasts = leases
            .get(&presence.node)
            .is_some_and(|end| Instant::now() < *end);
        lasts.then_some(presence)
    }

    /// Stores an entry that the directory has just returned: the lease of its node lasts.
    pub(crate) fn insert(&self, device: DeviceKey, presence: Presence) {
        let unread = Instant::now() + UNREAD_LEASE;
        let leases = self.leases.pin();
        leases.update_or_insert(presence.node.clone(), |end| unread.max(*end), unread);
        self.entries.insert(device, presence);
    }

    pub(crate) fn remove(&self, device: &DeviceKey) {
        self.entries.remove(device);
    }

    /// Removes the entry of a connection that is older than this one.
    pub(crate) fn remove_older(&self, device: &DeviceKey, epoch: Epoch) {
        self.entries
            .remove_if(device, |presence| presence.epoch < epoch);
    }

    /// Removes an entry that differs from the one that the directory has just returned, unless it is
    /// newer than that. If the directory returned none, it removes any: a fresh one is read again.
    pub(crate) fn remove_outdated(&self, device: &DeviceKey, found: Option<&Presence>) {
        self.entries.remove_if(device, |cached| {
            found.is_none_or(|found| cached.epoch <= found.epoch && cached != found)
        });
    }

    /// The nodes whose leases are to be read, in order.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.leases.pin().keys().cloned().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Records how long leases last from `at`, in the order of the nodes; zero for a node without
    /// one. Returns the nodes whose lease has ended.
    ///
    /// A node whose lease is missing, as in a Redis that restarted empty, keeps the time that was
    /// read before: it enters its lease again.
    pub(crate) fn end_leases(&self, leases: &[(NodeId, Duration)], at: Instant) -> Vec<NodeId> {
        let known = self.leases.pin();
        let mut ended = Vec::new();
        for (node, left) in leases {
            if !left.is_zero() {
                known.update(node.clone(), |end| (at + *left).max(*end));
            } else if known.get(node).is_some_and(|end| *end <= at) {
                known.remove(node);
                ended.push(node.clone());
            }
        }
        ended
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The most that the entries take in memory.
    pub(crate) const fn max_bytes(&self) -> usize {
        self.capacity * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;

    fn cache(node: &NodeId) -> (PresenceCache, DeviceKey) {
        let device = DeviceKey {
            org: OrgId::from_uuid(Uuid::nil()),
            device: "toy-1".parse().unwrap(),
        };
        let presence = Presence {
            node: node.clone(),
            epoch: Epoch(7),
            digest: None,
        };
        let cache = PresenceCache::new(1_000);
        cache.insert(device.clone(), presence);
        (cache, device)
    }

    #[tokio::test(start_paused = true)]
    async fn entry_ends_with_the_lease_of_its_node() {
        let node = NodeId::from("edge~1");
        let (cache, device) = cache(&node);
        let leases = |left| [(node.clone(), Duration::from_secs(left))];
        assert_eq!(cache.end_leases(&leases(6), Instant::now()), []);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(cache.get(&device).is_some());
        // The lease is missing: its node enters it again, or it ends when it would have ended.
        assert_eq!(cache.end_leases(&leases(0), Instant::now()), []);
        assert!(cache.get(&device).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get(&device).is_none());
        assert_eq!(cache.end_leases(&leases(0), Instant::now()), [node]);
        assert_eq!(cache.nodes(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn entry_is_used_briefly_before_its_lease_is_read() {
        let (cache, device) = cache(&NodeId::from("edge~1"));
        assert!(cache.get(&device).is_some());
        tokio::time::advance(UNREAD_LEASE).await;
        assert!(cache.get(&device).is_none());
    }

    #[test]
    fn newer_connection_removes_an_older_entry_only() {
        let (cache, device) = cache(&NodeId::from("edge~1"));
        cache.remove_older(&device, Epoch(7));
        assert_eq!(cache.len(), 1);
        cache.remove_older(&device, Epoch(8));
        assert_eq!(cache.len(), 0);
    }
}
