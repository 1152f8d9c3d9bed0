//! The live connections of this edge by device.

use std::{
    collections,
    hash::{Hash, Hasher},
    sync::Arc,
};

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
#[derive(Debug, Default)]
pub(crate) struct Connections {
    entered: Map,
    joining: Map,
    replaced: Map,
    /// All of them by token, so that a revocation is one lookup. Each is added and removed by its own
    /// task.
    by_token: Mutex<collections::HashMap<TokenId, Vec<Arc<ConnectionHandle>>>>,
}

type Map = HashMap<DeviceKey, Arc<ConnectionHandle>>;

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

impl Equivalent<DeviceKey> for BorrowedKey<'_> {
    fn equivalent(&self, key: &DeviceKey) -> bool {
        self.org == key.org && self.device == key.device.as_str()
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
        let mut by_token = self.by_token.lock();
        if let Some(same) = by_token.get_mut(&handle.token.id) {
            same.retain(|other| !Arc::ptr_eq(other, handle));
            if same.is_empty() {
                by_token.remove(&handle.token.id);
            }
        }
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
            if let Some(handle) = map.get(&key).filter(|handle| handle.epoch == epoch) {
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
            map.pin().get(&key).into_iter().for_each(&mut f);
        }
    }

    /// Calls `f` with the connections that authenticated with this token.
    pub(crate) fn for_each_with_token(
        &self,
        token: TokenId,
        f: impl FnMut(&Arc<ConnectionHandle>),
    ) {
        // Not under the lock: `f` may take others.
        let same = self.by_token.lock().get(&token).cloned();
        same.iter().flatten().for_each(f);
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<ConnectionHandle>)) {
        for map in self.maps() {
            map.pin().values().for_each(&mut f);
        }
    }

    pub(crate) fn for_each_entered(&self, f: impl FnMut(&Arc<ConnectionHandle>)) {
        self.entered.pin().values().for_each(f);
    }

    pub(crate) fn for_each_joining(&self, f: impl FnMut(&Arc<ConnectionHandle>)) {
        self.joining.pin().values().for_each(f);
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
        if let Some(older) = map.pin().get(&handle.key)
            && older.epoch < handle.epoch
        {
            self.keep_replaced(older);
        }
        let inserted = insert(map, handle);
        if !matches!(inserted, Inserted::Superseded) {
            let mut by_token = self.by_token.lock();
            let same = by_token.entry(handle.token.id).or_default();
            if !same.iter().any(|other| Arc::ptr_eq(other, handle)) {
                same.push(Arc::clone(handle));
            }
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
    let computed = map.compute(handle.key.clone(), |current| match current {
        Some((_, current)) if current.epoch > handle.epoch => Operation::Abort(()),
        _ => Operation::Insert(Arc::clone(handle)),
    });
    match computed {
        Compute::Updated { old: (_, old), .. } => Inserted::Replaced(Arc::clone(old)),
        Compute::Aborted(()) => Inserted::Superseded,
        Compute::Inserted(..) | Compute::Removed(..) => Inserted::New,
    }
}

fn remove(map: &Map, handle: &Arc<ConnectionHandle>) {
    // The error case is another connection in its place, which must stay.
    let _ = map
        .pin()
        .remove_if(&handle.key, |_, current| Arc::ptr_eq(current, handle));
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
            [vec![2, 1], vec![3], vec![]]
        );
        connections.remove(old);
        assert_eq!(found(0), [2]);
        handles.iter().for_each(|handle| connections.remove(handle));
        assert!(connections.by_token.lock().is_empty());
    }

    #[test]
    fn lookup_from_another_org_finds_nothing() {
        let connections = Connections::default();
        connections.enter(&handle("toy", 1));
        let other = OrgId::from_uuid(Uuid::from_u128(8));
        assert!(connections.with(other, "toy", Epoch(1), |_| ()).is_none());
    }
}
