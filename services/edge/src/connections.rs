//! The live connections of this edge by device.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;
use papaya::{Compute, Equivalent, HashMap, Operation};
use parking_lot::Mutex;
use switchboard_bus::Epoch;
use switchboard_protocol::id::{DeviceKey, OrgId, TokenId};

use crate::handle::{ConnectionHandle, Eviction};

/// Concurrent maps from device to connection: the newest *entered* connection of each device, the
/// newest one that is *joining*, and the newest one that was *replaced*.
///
/// ```text
///  insert ──► joining ──── enter ────► entered ──────► remove
///      │         │                      ▲   │            ▲
///      │         │ a newer one joins    │   │ a newer    │
///      │         │                      │   ▼ one enters │
///      │         └──────────────────────┼► replaced ─────┘
///      └── the device had no registered ┘
///          connection on any node
/// ```
///
/// - The directory's entry points to the entered connection, unless that has left it
///   ([`ConnectionHandle::is_entered`]).
/// - A device that changes its connection is callable all the time: calls go to the entered one until
///   the joining one has registered, or has not registered for [`JOIN_TIMEOUT`].
/// - A replaced connection closes, or first completes its calls if it was asked to move.
///
/// Invariant: a connection is in one of the maps from its insertion until its guard removes it, unless
/// it was asked to close. So deadlines, revocations, cancellations and a drain reach it.
///
/// [`JOIN_TIMEOUT`]: crate::sweeper::JOIN_TIMEOUT
#[derive(Default)]
pub(crate) struct Connections {
    entered: Map,
    joining: Map,
    replaced: Map,
    /// All of them by token, so that a revocation is one lookup. Each is added and removed by its own
    /// task.
    by_token: Mutex<ByToken>,
}

/// A set: an entry is one pointer, because the connection itself has the key.
type Map = HashMap<ByDevice, ()>;

/// A connection that is compared and hashed by its device.
struct ByDevice(Arc<ConnectionHandle>);

/// Connections that are hashed by their token; several may have the same.
#[derive(Default)]
struct ByToken {
    connections: HashTable<Arc<ConnectionHandle>>,
    hasher: RandomState,
}

/// The result of [`Connections::join`] and [`Connections::enter`].
#[derive(Debug)]
pub(crate) enum Inserted {
    /// The device had no such connection here.
    New,
    /// This older connection was replaced; the caller has it taken over.
    Replaced(Arc<ConnectionHandle>),
    /// A newer connection is present; the caller closes the one it wanted to insert.
    Superseded,
}

/// A device key borrowed from a message, so that a lookup allocates nothing. Hashes like
/// [`DeviceKey`].
struct BorrowedKey<'a> {
    org: OrgId,
    device: &'a str,
}

impl Hash for BorrowedKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.org.hash(state);
        self.device.hash(state);
    }
}

impl Equivalent<ByDevice> for BorrowedKey<'_> {
    fn equivalent(&self, ByDevice(handle): &ByDevice) -> bool {
        self.org == handle.key.org && self.device == handle.key.device.as_str()
    }
}

impl Borrow<DeviceKey> for ByDevice {
    fn borrow(&self) -> &DeviceKey {
        &self.0.key
    }
}

impl Hash for ByDevice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for ByDevice {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByDevice {}

impl ByToken {
    fn insert(&mut self, handle: &Arc<ConnectionHandle>) {
        let hash = self.hasher.hash_one(handle.token().id);
        let is_same = |other: &Arc<ConnectionHandle>| Arc::ptr_eq(other, handle);
        let hasher = |other: &Arc<ConnectionHandle>| self.hasher.hash_one(other.token().id);
        // The entry of the same connection, or a new one.
        self.connections
            .entry(hash, is_same, hasher)
            .or_insert_with(|| Arc::clone(handle));
    }

    fn remove(&mut self, handle: &Arc<ConnectionHandle>) {
        let hash = self.hasher.hash_one(handle.token().id);
        let is_same = |other: &Arc<ConnectionHandle>| Arc::ptr_eq(other, handle);
        if let Ok(entry) = self.connections.find_entry(hash, is_same) {
            entry.remove();
        }
    }

    fn with_token(&self, token: TokenId) -> Vec<Arc<ConnectionHandle>> {
        let hash = self.hasher.hash_one(token);
        let same = self.connections.iter_hash(hash);
        same.filter(|handle| handle.token().id == token)
            .cloned()
            .collect()
    }
}

impl Connections {
    /// Adds a connection that does not have the directory's entry yet.
    pub(crate) fn join(&self, handle: &Arc<ConnectionHandle>) -> Inserted {
        self.replace(&self.joining, handle)
    }

    /// Adds a connection that has the directory's entry, joining until now or new.
    pub(crate) fn enter(&self, handle: &Arc<ConnectionHandle>) -> Inserted {
        let inserted = self.replace(&self.entered, handle);
        remove(&self.joining, handle);
        inserted
    }

    /// Removes exactly this connection; a newer one of the same device stays.
    pub(crate) fn remove(&self, handle: &Arc<ConnectionHandle>) {
        for map in self.maps() {
            remove(map, handle);
        }
        self.by_token.lock().remove(handle);
    }

    /// Whether the device is connected here.
    pub(crate) fn has(&self, key: &DeviceKey) -> bool {
        self.maps().iter().any(|map| map.pin().contains_key(key))
    }

    /// Calls `f` with exactly this connection of the device, if it is here.
    pub(crate) fn with<T>(
        &self,
        org: OrgId,
        device: &str,
        epoch: Epoch,
        f: impl FnOnce(&Arc<ConnectionHandle>) -> T,
    ) -> Option<T> {
        let key = BorrowedKey { org, device };
        for map in self.maps() {
            let map = map.pin();
            if let Some((ByDevice(handle), ())) = map.get_key_value(&key)
                && handle.epoch == epoch
            {
                return Some(f(handle));
            }
        }
        None
    }

    /// Calls `f` with the connections of the device.
    pub(crate) fn for_each_of(
        &self,
        org: OrgId,
        device: &str,
        mut f: impl FnMut(&Arc<ConnectionHandle>),
    ) {
        let key = BorrowedKey { org, device };
        for map in self.maps() {
            let map = map.pin();
            if let Some((ByDevice(handle), ())) = map.get_key_value(&key) {
                f(handle);
            }
        }
    }

    /// Calls `f` with the connections that authenticated with this token.
    pub(crate) fn for_each_with_token(
        &self,
        token: TokenId,
        f: impl FnMut(&Arc<ConnectionHandle>),
    ) {
        // Not under the lock: `f` may take others.
        let same = self.by_token.lock().with_token(token);
        same.iter().for_each(f);
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<ConnectionHandle>)) {
        for map in self.maps() {
            map.pin().keys().for_each(|ByDevice(handle)| f(handle));
        }
    }

    pub(crate) fn for_each_entered(&self, mut f: impl FnMut(&Arc<ConnectionHandle>)) {
        let entered = self.entered.pin();
        entered.keys().for_each(|ByDevice(handle)| f(handle));
    }

    pub(crate) fn for_each_joining(&self, mut f: impl FnMut(&Arc<ConnectionHandle>)) {
        let joining = self.joining.pin();
        joining.keys().for_each(|ByDevice(handle)| f(handle));
    }

    pub(crate) fn len(&self) -> usize {
        self.maps().iter().map(|map| map.len()).sum()
    }

    const fn maps(&self) -> [&Map; 3] {
        [&self.entered, &self.joining, &self.replaced]
    }

    /// Inserts a connection in place of an older one, which is kept among the replaced ones.
    fn replace(&self, map: &Map, handle: &Arc<ConnectionHandle>) -> Inserted {
        // First: at any moment it is in one of the maps.
        if let Some((ByDevice(older), ())) = map.pin().get_key_value(&handle.key)
            && older.epoch < handle.epoch
        {
            self.keep_replaced(older);
        }
        let inserted = insert(map, handle);
        if !matches!(inserted, Inserted::Superseded) {
            self.by_token.lock().insert(handle);
        }
        inserted
    }

    /// Adds a connection to the replaced ones. Of two of a device, the older one closes.
    fn keep_replaced(&self, handle: &Arc<ConnectionHandle>) {
        match insert(&self.replaced, handle) {
            Inserted::Replaced(older) if !Arc::ptr_eq(&older, handle) => {
                older.evict(Eviction::Takeover);
            }
            Inserted::Superseded => handle.evict(Eviction::Takeover),
            Inserted::New | Inserted::Replaced(_) => {}
        }
        // Its guard may have removed it before.
        if handle.is_closed() {
            remove(&self.replaced, handle);
        }
    }
}

/// Inserts a connection. When two race, the one with the greater epoch stays.
fn insert(map: &Map, handle: &Arc<ConnectionHandle>) -> Inserted {
    let map = map.pin();
    // An update replaces the key as well.
    let key = ByDevice(Arc::clone(handle));
    let computed = map.compute(key, |current| match current {
        Some((ByDevice(current), ())) if current.epoch > handle.epoch => Operation::Abort(()),
        _ => Operation::Insert(()),
    });
    match computed {
        Compute::Updated { old: (old, ()), .. } => Inserted::Replaced(Arc::clone(&old.0)),
        Compute::Aborted(()) => Inserted::Superseded,
        Compute::Inserted(..) | Compute::Removed(..) => Inserted::New,
    }
}

fn remove(map: &Map, handle: &Arc<ConnectionHandle>) {
    // The error case is another connection in its place, which must stay.
    let is_same = |ByDevice(current): &ByDevice, (): &()| Arc::ptr_eq(current, handle);
    let _ = map.pin().remove_if(&handle.key, is_same);
}

#[cfg(test)]
mod tests {
    use switchboard_bus::TokenCheck;
    use uuid::Uuid;

    use super::*;
    use crate::handle::Identity;

    fn handle(device: &str, epoch: u64) -> Arc<ConnectionHandle> {
        handle_with_token(device, epoch, 0)
    }

    fn handle_with_token(device: &str, epoch: u64, token: u128) -> Arc<ConnectionHandle> {
        let key = DeviceKey {
            org: org(),
            device: device.parse().unwrap(),
        };
        let token = TokenCheck {
            id: TokenId::from_uuid(Uuid::from_u128(token)),
            org: org(),
            key: "0123456789abcdef".parse().unwrap(),
            expires_at: u64::MAX,
        };
        let identity = Identity { key, token };
        let epoch = switchboard_bus::Epoch(epoch);
        Arc::new(ConnectionHandle::new(identity, epoch, 0))
    }

    fn org() -> OrgId {
        OrgId::from_uuid(Uuid::from_u128(7))
    }

    fn entered(connections: &Connections) -> Option<u64> {
        let mut entered = None;
        connections.for_each_entered(|handle| entered = Some(handle.epoch.0));
        entered
    }

    #[test]
    fn newest_connection_is_entered_in_any_order() {
        let connections = Connections::default();
        let (old, new) = (handle("toy", 1), handle("toy", 2));
        assert!(matches!(connections.enter(&old), Inserted::New));
        assert!(matches!(
            connections.enter(&new),
            Inserted::Replaced(replaced) if Arc::ptr_eq(&replaced, &old)
        ));
        assert!(matches!(connections.enter(&old), Inserted::Superseded));
        assert_eq!(entered(&connections), Some(2));
    }

    #[test]
    fn remove_of_a_replaced_connection_keeps_the_new_one() {
        let connections = Connections::default();
        let (old, new) = (handle("toy", 1), handle("toy", 2));
        connections.enter(&old);
        connections.enter(&new);
        assert_eq!(connections.len(), 2);
        connections.remove(&old);
        assert_eq!(entered(&connections), Some(2));
        connections.remove(&new);
        assert_eq!(entered(&connections), None);
        assert_eq!(connections.len(), 0);
    }

    #[test]
    fn joining_connection_is_found_by_its_epoch_only() {
        let connections = Connections::default();
        let (old, new) = (handle("toy", 1), handle("toy", 2));
        connections.enter(&old);
        assert!(matches!(connections.join(&new), Inserted::New));
        assert_eq!(entered(&connections), Some(1));
        let found = |epoch| connections.with(org(), "toy", Epoch(epoch), |handle| handle.epoch.0);
        assert_eq!([1, 2, 3].map(found), [Some(1), Some(2), None]);
        connections.enter(&new);
        assert_eq!(entered(&connections), Some(2));
        assert_eq!([1, 2].map(found), [Some(1), Some(2)]);
        assert_eq!(connections.len(), 2);
    }

    #[test]
    fn connection_that_closed_before_it_is_replaced_is_not_kept() {
        let connections = Connections::default();
        let (old, new) = (handle("toy", 1), handle("toy", 2));
        connections.enter(&old);
        old.close_calls();
        connections.enter(&new);
        connections.remove(&new);
        assert_eq!(connections.len(), 0);
    }

    #[test]
    fn token_finds_its_connections_until_they_are_removed() {
        let connections = Connections::default();
        let handles = [("toy", 1), ("toy", 2), ("lamp", 3)]
            .map(|(device, epoch)| handle_with_token(device, epoch, u128::from(epoch == 3)));
        let [old, new, _] = &handles;
        let found = |token| {
            let mut found = Vec::new();
            let token = TokenId::from_uuid(Uuid::from_u128(token));
            connections.for_each_with_token(token, |handle| found.push(handle.epoch.0));
            found.sort_unstable();
            found
        };
        connections.join(new);
        // It is not added: the caller closes it without a guard.
        assert!(matches!(connections.join(old), Inserted::Superseded));
        assert_eq!(found(0), [2]);
        connections.enter(old);
        // The same connection, entered now.
        connections.enter(new);
        connections.enter(&handles[2]);
        assert_eq!(
            [found(0), found(1), found(2)],
            [vec![1, 2], vec![3], vec![]]
        );
        connections.remove(old);
        assert_eq!(found(0), [2]);
        handles.iter().for_each(|handle| connections.remove(handle));
        assert!(connections.by_token.lock().connections.is_empty());
    }

    #[test]
    fn lookup_from_another_org_finds_nothing() {
        let connections = Connections::default();
        connections.enter(&handle("toy", 1));
        let other = OrgId::from_uuid(Uuid::from_u128(8));
        assert!(connections.with(other, "toy", Epoch(1), |_| ()).is_none());
    }
}
