//! Queues that no slot was free for: which organisations have some, and how far they were read
//! again.
//!
//! The queues themselves are read from the database, so memory is bounded by the number of
//! organisations.

use std::collections::{HashMap, hash_map::Entry};

use parking_lot::Mutex;
use switchboard_protocol::id::{DeviceId, OrgId};
use switchboard_runtime::budget::{Budget, Owner};
use tokio::sync::Notify;

use super::dispatch::WakeMode;

/// The organisations with queues that were not woken for lack of a slot.
#[derive(Debug, Default)]
pub(crate) struct RefusedQueues {
    orgs: Mutex<HashMap<OrgId, Walk>>,
    changed: Notify,
}

/// A walk through the queues of an organisation, a page at a time as slots become free.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    pub(super) mode: WakeMode,
    /// The last queue that was read.
    pub(super) after: Option<DeviceId>,
    /// Another queue was refused in the meantime, perhaps one before `after`.
    is_outdated: bool,
}

impl RefusedQueues {
    /// A queue of an organisation was not woken.
    pub(super) fn add(&self, org: OrgId, mode: WakeMode) {
        match self.orgs.lock().entry(org) {
            Entry::Occupied(mut walk) => {
                let walk = walk.get_mut();
                walk.mode = walk.mode.max(mode);
                walk.is_outdated = true;
            }
            Entry::Vacant(none) => drop(none.insert(Walk {
                mode,
                after: None,
                is_outdated: false,
            })),
        }
        // A slot may have become free since.
        self.changed.notify_one();
    }

    /// A slot became free.
    pub(super) fn slot_freed(&self) {
        if !self.orgs.lock().is_empty() {
            self.changed.notify_one();
        }
    }

    /// Waits until a queue was refused, or a slot became free while there are refused ones.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The walks to continue, that of the organisation with the fewest slots first: it gets what
    /// others have returned.
    pub(super) fn walks(&self, slots: &Budget) -> Vec<(OrgId, Walk)> {
        let held: HashMap<_, _> = slots.holders().into_iter().collect();
        let orgs = self.orgs.lock();
        let walks = orgs.iter().map(|(org, walk)| (*org, walk.clone()));
        let mut walks: Vec<_> = walks.collect();
        drop(orgs);
        walks.sort_by_key(|(org, _)| held.get(&Owner::Org(org.uuid())).copied());
        walks
    }

    /// Records that a walk has read the queues up to this one, or all of them.
    pub(super) fn advance(&self, org: OrgId, after: Option<DeviceId>) {
        let mut orgs = self.orgs.lock();
        let Entry::Occupied(mut walk) = orgs.entry(org) else {
            return;
        };
        let has_ended = after.is_none();
        walk.get_mut().after = after;
        if has_ended && !std::mem::take(&mut walk.get_mut().is_outdated) {
            walk.remove();
        } else {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_runtime::budget::{Budgets, Kind};
    use uuid::Uuid;

    use super::*;

    fn slots(count: usize) -> Budget {
        let budgets = Budgets::new(&Registry::new()).unwrap();
        budgets.slots("queued_calls", count, Kind::quarter_of(count))
    }

    #[test]
    fn organisation_with_the_fewest_slots_is_first() {
        let (queues, slots) = (RefusedQueues::default(), slots(64));
        let mut permits = Vec::new();
        for number in [3, 1, 4, 0, 5, 2, 7, 6] {
            let org = OrgId::from_uuid(Uuid::from_u128(number as u128));
            permits.push(slots.try_acquire(Owner::Org(org.uuid()), number).unwrap());
            queues.add(org, WakeMode::IfDue);
        }
        let walks = queues.walks(&slots).into_iter();
        let numbers: Vec<_> = walks.map(|(org, _)| org.uuid().as_u128()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn walk_begins_again_for_a_queue_that_was_refused_in_the_meantime() {
        let (queues, slots) = (RefusedQueues::default(), slots(1));
        let org = OrgId::from_uuid(Uuid::nil());
        let after: DeviceId = "toy".parse().unwrap();
        let walk = || {
            let walks = queues.walks(&slots);
            let walk = walks.first().map(|(_, walk)| walk);
            walk.map(|walk| (walk.mode, walk.after.clone()))
        };
        queues.add(org, WakeMode::IfDue);
        assert_eq!(walk(), Some((WakeMode::IfDue, None)));
        queues.advance(org, Some(after.clone()));
        queues.add(org, WakeMode::Immediate);
        queues.add(org, WakeMode::IfDue);
        assert_eq!(walk(), Some((WakeMode::Immediate, Some(after))));
        queues.advance(org, None);
        assert_eq!(walk(), Some((WakeMode::Immediate, None)));
        queues.advance(org, None);
        assert_eq!(walk(), None);
        queues.advance(org, None);
    }
}
