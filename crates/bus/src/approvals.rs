//! Editions of the approvals of organisations: what was read in an earlier edition may have changed.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;

use crate::bus::Bus;

/// The editions on one node. An organisation whose approvals did not change since the node started takes no memory.
#[derive(Default)]
pub(crate) struct ApprovalEditions {
    /// Messages may have been missed so often.
    all: AtomicU64,
    orgs: Mutex<HashMap<OrgId, u64>>,
}

impl ApprovalEditions {
    pub(crate) fn advance(&self, org: OrgId) {
        *self.orgs.lock().entry(org).or_default() += 1;
    }

    /// Messages may have been missed.
    pub(crate) fn advance_all(&self) {
        self.all.fetch_add(1, Ordering::Relaxed);
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
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn edition_grows_with_changes_of_the_organisation() {
        let editions = ApprovalEditions::default();
        let [one, other] = [1, 2].map(|id| OrgId::from_uuid(Uuid::from_u128(id)));
        let first = editions.of(one);
        editions.advance(other);
        assert_eq!(editions.of(one), first);
        editions.advance(one);
        assert!(editions.of(one) > first);
        let second = editions.of(one);
        editions.advance_all();
        assert!(editions.of(one) > second);
    }
}
