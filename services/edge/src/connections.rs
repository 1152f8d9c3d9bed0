//! The live connections of this edge by device; the newest one of each device.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use papaya::{Compute, Equivalent, HashMap, Operation};
use switchboard_protocol::id::{DeviceKey, OrgId};

use crate::handle::ConnectionHandle;

/// A concurrent map from device to connection.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    handles: HashMap<DeviceKey, Arc<ConnectionHandle>>,
}

/// The result of [`Connections::insert`].
#[derive(Debug)]
pub(crate) enum Inserted {
    /// The device had no connection here.
    New,
    /// This older connection was replaced; the caller closes it.
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
    /// Inserts a connection. When two race, the one with the greater epoch stays.
    pub(crate) fn insert(&self, handle: &Arc<ConnectionHandle>) -> Inserted {
        let handles = self.handles.pin();
        let computed = handles.compute(handle.key.clone(), |current| match current {
            Some((_, current)) if current.epoch > handle.epoch => Operation::Abort(()),
            _ => Operation::Insert(Arc::clone(handle)),
        });
        match computed {
            Compute::Updated { old: (_, old), .. } => Inserted::Replaced(Arc::clone(old)),
            Compute::Aborted(()) => Inserted::Superseded,
            Compute::Inserted(..) | Compute::Removed(..) => Inserted::New,
        }
    }

    /// Removes exactly this connection; a newer one of the same device stays.
    pub(crate) fn remove(&self, handle: &Arc<ConnectionHandle>) {
        // The error case is another connection in its place, which must stay.
        let _ = self
            .handles
            .pin()
            .remove_if(&handle.key, |_, current| Arc::ptr_eq(current, handle));
    }

    /// Calls `f` with the device's connection, if there is one.
    pub(crate) fn with<T>(
        &self,
        org: OrgId,
        device: &str,
        f: impl FnOnce(&Arc<ConnectionHandle>) -> T,
    ) -> Option<T> {
        self.handles.pin().get(&BorrowedKey { org, device }).map(f)
    }

    pub(crate) fn for_each(&self, f: impl FnMut(&Arc<ConnectionHandle>)) {
        self.handles.pin().values().for_each(f);
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }
}

#[cfg(test)]
mod tests {
    use switchboard_bus::TokenCheck;
    use switchboard_protocol::id::TokenId;
    use uuid::Uuid;

    use super::*;
    use crate::handle::Identity;

    fn handle(device: &str, epoch: u64) -> Arc<ConnectionHandle> {
        let key = DeviceKey {
            org: org(),
            device: device.parse().unwrap(),
        };
        let token = TokenCheck {
            id: TokenId::from_uuid(Uuid::nil()),
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

    fn epoch_of(connections: &Connections, device: &str) -> Option<u64> {
        connections.with(org(), device, |handle| handle.epoch.0)
    }

    #[test]
    fn insert_in_any_order_keeps_the_newest_connection() {
        let connections = Connections::default();
        let (old, new) = (handle("toy", 1), handle("toy", 2));
        assert!(matches!(connections.insert(&old), Inserted::New));
        assert!(matches!(
            connections.insert(&new),
            Inserted::Replaced(replaced) if Arc::ptr_eq(&replaced, &old)
        ));
        assert!(matches!(connections.insert(&old), Inserted::Superseded));
        assert_eq!(epoch_of(&connections, "toy"), Some(2));
    }

    #[test]
    fn remove_of_a_replaced_connection_keeps_the_new_one() {
        let connections = Connections::default();
        let (old, new) = (handle("toy", 1), handle("toy", 2));
        connections.insert(&old);
        connections.insert(&new);
        connections.remove(&old);
        assert_eq!(epoch_of(&connections, "toy"), Some(2));
        connections.remove(&new);
        assert_eq!(epoch_of(&connections, "toy"), None);
        assert_eq!(connections.len(), 0);
    }

    #[test]
    fn lookup_from_another_org_finds_nothing() {
        let connections = Connections::default();
        connections.insert(&handle("toy", 1));
        let other = OrgId::from_uuid(Uuid::from_u128(8));
        assert!(connections.with(other, "toy", |_| ()).is_none());
    }
}
