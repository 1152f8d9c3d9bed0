//! Editions of what nodes cache of organisations: what was read in an earlier edition may have changed.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;

use crate::bus::Bus;

/// The editions on one node. An organisation that did not change since the node started takes no memory.
#[derive(Default)]
pub(crate) struct Editions {
    /// All organisations changed, or messages may have been missed, so often.
    all: AtomicU64,
    orgs: Mutex<HashMap<OrgId, u64>>,
}

impl Editions {
    /// A change of one organisation, or of all.
    pub(crate) fn advance(&self, org: Option<OrgId>) {
        match org {
            Some(org) => *self.orgs.lock().entry(org).or_default() += 1,
            None => {
                self.all.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Grows with each change.
    fn of(&self, org: OrgId) -> u64 {
        let own = self.orgs.lock().get(&org).copied().unwrap_or_default();
        own + self.all.load(Ordering::Relaxed)
    }
}

impl Bus {
    /// The edition of an organisation's approvals, which increases when a change is published as
    /// [`CatalogEvent::Approvals`](crate::CatalogEvent::Approvals), and when one may have been missed.
    #[must_use]
    pub fn approvals_edition(&self, org: OrgId) -> u64 {
        self.0.approvals.of(org)
    }

    /// The edition of an organisation's NPCs, with the templates that they are based on and their
    /// devices. It increases when a change is published as
    /// [`CatalogEvent::Prompts`](crate::CatalogEvent::Prompts), and when one may have been missed.
    #[must_use]
    pub fn npcs_edition(&self, org: OrgId) -> u64 {
        self.0.npcs.of(org)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn edition_grows_with_changes_of_the_organisation() {
        let editions = Editions::default();
        let [one, other] = [1, 2].map(|id| OrgId::from_uuid(Uuid::from_u128(id)));
        let first = editions.of(one);
        editions.advance(Some(other));
        assert_eq!(editions.of(one), first);
        editions.advance(Some(one));
        assert!(editions.of(one) > first);
        let second = editions.of(one);
        editions.advance(None);
        assert!(editions.of(one) > second);
    }
}
