//! Which devices this edge holds: one live connection per device, the newest.
//! Never: an allocation to look one up.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use papaya::{Compute, Equivalent, HashMap, Operation};
use switchboard_protocol::id::{DeviceKey, OrgId};

use crate::link::Link;

/// The live connections by device.
#[derive(Debug, Default)]
pub(crate) struct Table {
    links: HashMap<DeviceKey, Arc<Link>>,
}

/// What became of a connection that asked to be entered.
#[derive(Debug)]
pub(crate) enum Entered {
    /// The device had no connection here.
    Alone,
    /// This older one made room and must be closed.
    Replacing(Arc<Link>),
    /// A newer one is here already: the one asking must close.
    Superseded,
}

/// A device key whose parts are borrowed from a message. Hashes like [`DeviceKey`].
struct Borrowed<'a> {
    org: OrgId,
    device: &'a str,
}

impl Hash for Borrowed<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.org.hash(state);
        self.device.hash(state);
    }
}

impl Equivalent<DeviceKey> for Borrowed<'_> {
    fn equivalent(&self, key: &DeviceKey) -> bool {
        self.org == key.org && self.device == key.device.as_str()
    }
}

impl Table {
    /// Enters a connection; of two that race the one with the greater epoch stays.
    pub(crate) fn enter(&self, link: &Arc<Link>) -> Entered {
        let links = self.links.pin();
        let computed = links.compute(link.key.clone(), |held| match held {
            Some((_, held)) if held.epoch > link.epoch => Operation::Abort(()),
            _ => Operation::Insert(Arc::clone(link)),
        });
        match computed {
            Compute::Updated {
                old: (_, older), ..
            } => Entered::Replacing(Arc::clone(older)),
            Compute::Aborted(()) => Entered::Superseded,
            Compute::Inserted(..) | Compute::Removed(..) => Entered::Alone,
        }
    }

    /// Takes out exactly this connection; a newer one of the same device stays.
    pub(crate) fn leave(&self, link: &Arc<Link>) {
        // The error only says that another connection is there, which is what was asked for.
        let _ = self
            .links
            .pin()
            .remove_if(&link.key, |_, held| Arc::ptr_eq(held, link));
    }

    /// What `look` makes of the device's connection, if there is one.
    pub(crate) fn with<T>(
        &self,
        org: OrgId,
        device: &str,
        look: impl FnOnce(&Arc<Link>) -> T,
    ) -> Option<T> {
        self.links.pin().get(&Borrowed { org, device }).map(look)
    }

    /// Visits every connection.
    pub(crate) fn each(&self, mut visit: impl FnMut(&Arc<Link>)) {
        self.links.pin().values().for_each(&mut visit);
    }

    /// How many devices are held.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::TokenId;
    use uuid::Uuid;

    use super::*;
    use crate::link::Identity;

    fn link(device: &str, epoch: u64) -> Arc<Link> {
        let key = DeviceKey {
            org: org(),
            device: device.parse().unwrap(),
        };
        let token = TokenId::from_uuid(Uuid::nil());
        let identity = Identity {
            key,
            token,
            token_expires_at_s: u64::MAX,
        };
        Arc::new(Link::new(identity, switchboard_bus::Epoch(epoch), 0))
    }

    fn org() -> OrgId {
        OrgId::from_uuid(Uuid::from_u128(7))
    }

    fn epoch_of(table: &Table, device: &str) -> Option<u64> {
        table.with(org(), device, |link| link.epoch.0)
    }

    #[test]
    fn the_newest_connection_stays_whoever_comes_first() {
        let table = Table::default();
        let (old, new) = (link("toy", 1), link("toy", 2));
        assert!(matches!(table.enter(&old), Entered::Alone));
        assert!(
            matches!(table.enter(&new), Entered::Replacing(older) if Arc::ptr_eq(&older, &old))
        );
        assert!(matches!(table.enter(&old), Entered::Superseded));
        assert_eq!(epoch_of(&table, "toy"), Some(2));
    }

    #[test]
    fn a_connection_takes_out_only_itself() {
        let table = Table::default();
        let (old, new) = (link("toy", 1), link("toy", 2));
        table.enter(&old);
        table.enter(&new);
        table.leave(&old);
        assert_eq!(epoch_of(&table, "toy"), Some(2));
        table.leave(&new);
        assert_eq!(epoch_of(&table, "toy"), None);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn orgs_are_walls() {
        let table = Table::default();
        table.enter(&link("toy", 1));
        let other = OrgId::from_uuid(Uuid::from_u128(8));
        assert!(table.with(other, "toy", |_| ()).is_none());
    }
}
