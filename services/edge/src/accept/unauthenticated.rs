//! The slots of connections that have not authenticated, and which connection is evicted when all
//! are taken.

use std::sync::Arc;

use parking_lot::Mutex;
use switchboard_runtime::budget::{Budget, Budgets, Crowds, Kind, Owner, Permit};
use tokio::{sync::Notify, time::Instant};

use super::tls_sessions::TlsSession;

/// The connections that have not authenticated, by network.
///
/// One network may have all slots while there is room. When all are taken, each new connection
/// evicts the oldest connection of the largest crowd. Silent connections of one network therefore
/// evict each other, and a device that authenticates soon after it connects is accepted, from any
/// network. A crowd is a network, or one connection of a balancer whose device is unknown yet: all
/// devices share the balancer's address.
///
/// Cost: per connection the steps of [`Crowds`], and one allocation besides its nodes; all are freed
/// with the slot.
pub(super) struct Unauthenticated {
    /// Counts and shows what the members hold. It never refuses: a member is evicted before.
    budget: Budget,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_number: u64,
    crowds: Crowds<Member>,
}

struct Member {
    evicted: Arc<Notify>,
    permit: Permit,
}

/// The slot of one connection, and what it holds until it has authenticated.
pub(super) struct Slot {
    crowd: Owner,
    number: u64,
    pub(super) evicted: Arc<Notify>,
    /// The connection must authenticate before.
    pub(super) deadline: Instant,
    /// The memory of its TLS session.
    pub(super) tls: Option<TlsSession>,
}

impl Unauthenticated {
    pub(super) fn new(budgets: &Budgets, capacity: usize) -> Self {
        let kind = Kind::Held { share: capacity };
        Self {
            budget: budgets.slots("device_unauthenticated", capacity, kind),
            state: Mutex::default(),
        }
    }

    /// Takes a slot for a connection of `network`, or of a device that is unknown yet. Returns it
    /// and whether another connection was evicted for it; `None` when there are no slots at all.
    pub(super) fn enter(
        &self,
        network: Option<Owner>,
        deadline: Instant,
    ) -> Option<(Box<Slot>, bool)> {
        let mut state = self.state.lock();
        let evicted = self.budget.free() == 0 && state.evict_one();
        let number = state.next_number;
        let crowd = network.unwrap_or(Owner::Proxied(number));
        let permit = self.budget.try_acquire(crowd, 1).ok()?;
        state.next_number += 1;
        let slot = Slot {
            crowd,
            number,
            evicted: Arc::default(),
            deadline,
            tls: None,
        };
        let member = Member {
            evicted: Arc::clone(&slot.evicted),
            permit,
        };
        state.crowds.insert(crowd, number, member);
        Some((Box::new(slot), evicted))
    }

    /// Counts a connection to the network of its device, which the PROXY header names. It keeps
    /// its age.
    pub(super) fn set_network(&self, slot: &mut Slot, network: Owner) {
        let mut state = self.state.lock();
        // An evicted connection is in no crowd.
        if let Some(mut member) = state.crowds.remove(slot.crowd, slot.number) {
            // One owner may hold the whole capacity, so there is room.
            let _ = member.permit.transfer(network);
            slot.crowd = network;
            state.crowds.insert(slot.crowd, slot.number, member);
        }
    }

    /// Frees a slot.
    pub(super) fn leave(&self, slot: &Slot) {
        self.state.lock().crowds.remove(slot.crowd, slot.number);
    }

    /// Evicts the oldest connection of the largest crowd. Returns false when there is none.
    pub(super) fn evict_one(&self) -> bool {
        self.state.lock().evict_one()
    }
}

impl State {
    fn evict_one(&mut self) -> bool {
        let oldest = self.crowds.pop_oldest(None);
        oldest
            .inspect(|member| member.evicted.notify_one())
            .is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
        time::Duration,
    };

    use prometheus::Registry;

    use super::*;

    struct Slots {
        registry: Unauthenticated,
        slots: Vec<Slot>,
    }

    impl Slots {
        fn new(capacity: usize) -> Self {
            let budgets = Budgets::new(&Registry::new()).unwrap();
            Self {
                registry: Unauthenticated::new(&budgets, capacity),
                slots: Vec::new(),
            }
        }

        /// Takes a slot for an address, or for a connection of a balancer. Returns whether another
        /// one was evicted.
        fn enter(&mut self, address: Option<&str>) -> bool {
            let network = address.map(|address| Owner::network(address.parse().unwrap()));
            let deadline = Instant::now() + Duration::from_secs(10);
            let (slot, evicted) = self.registry.enter(network, deadline).unwrap();
            self.slots.push(*slot);
            evicted
        }

        /// The slots that were evicted, by their order of arrival.
        fn evicted(&self) -> Vec<usize> {
            let is_evicted = |index: &usize| {
                let evicted = &self.slots[*index].evicted;
                let mut context = Context::from_waker(Waker::noop());
                let notified = pin!(evicted.notified()).poll(&mut context).is_ready();
                if notified {
                    evicted.notify_one();
                }
                notified
            };
            (0..self.slots.len()).filter(is_evicted).collect()
        }
    }

    #[test]
    fn crowd_of_greatest_size_loses_its_oldest_connection() {
        let mut slots = Slots::new(4);
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "2001:db8::1"] {
            assert!(!slots.enter(Some(address)));
        }
        assert!(slots.enter(Some("10.0.0.3")));
        assert_eq!(slots.evicted(), [1]);
        // Of four crowds with one member each, the oldest one.
        assert!(slots.enter(Some("2001:db8::2")));
        assert_eq!(slots.evicted(), [0, 1]);
        // One /64 is one network.
        assert!(slots.enter(Some("10.0.0.4")));
        assert_eq!(slots.evicted(), [0, 1, 3]);
        assert_eq!(slots.registry.budget.used(), 4);
    }

    #[test]
    fn connections_of_a_balancer_are_no_crowd_until_their_header() {
        let mut slots = Slots::new(4);
        slots.enter(None);
        slots.enter(None);
        slots.enter(Some("10.0.0.1"));
        slots.enter(Some("10.0.0.1"));
        assert!(slots.enter(None));
        assert_eq!(slots.evicted(), [2]);
        // Two headers name one network, which now has three members; they keep their age.
        let network = Owner::network("10.0.0.1".parse().unwrap());
        for index in [1, 0] {
            slots.registry.set_network(&mut slots.slots[index], network);
        }
        assert!(slots.enter(None));
        assert_eq!(slots.evicted(), [0, 2]);
        // An evicted connection whose header arrives stays evicted.
        slots.registry.set_network(&mut slots.slots[2], network);
        assert!(slots.enter(None));
        assert_eq!(slots.evicted(), [0, 1, 2]);
    }

    #[test]
    fn freed_slots_leave_nothing() {
        let mut slots = Slots::new(2);
        slots.enter(Some("10.0.0.1"));
        slots.enter(Some("10.0.0.1"));
        slots.enter(Some("10.0.0.1"));
        for slot in &slots.slots {
            slots.registry.leave(slot);
        }
        let state = slots.registry.state.lock();
        assert!(state.crowds.is_empty());
        assert_eq!(slots.registry.budget.used(), 0);
    }

    #[test]
    fn without_slots_there_is_no_connection() {
        let slots = Slots::new(0);
        assert!(slots.registry.enter(None, Instant::now()).is_none());
        assert!(!slots.registry.evict_one());
    }
}
