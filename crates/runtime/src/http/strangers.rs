//! The connections of a port that have not authenticated, by network and in the order of their
//! arrival. When there is no room for a new one, the oldest of a crowd is closed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;

use super::client::Client;
use crate::budget::Owner;

/// Connections that have not authenticated.
#[derive(Default)]
pub(super) struct Strangers(Mutex<Crowds>);

#[derive(Default)]
struct Crowds {
    /// The connections of each network by their numbers, which ascend.
    networks: HashMap<Owner, BTreeMap<u64, Arc<Client>>>,
    /// The networks by their number of connections; of equal ones, that with the oldest is last.
    sizes: BTreeSet<Rank>,
}

/// The size of a crowd, the number of its oldest connection, and its network.
type Rank = (usize, Reverse<u64>, Owner);

impl Strangers {
    pub(super) fn insert(&self, network: Owner, number: u64, client: Arc<Client>) {
        let mut crowds = self.0.lock();
        let crowd = crowds.networks.entry(network).or_default();
        let before = rank(network, crowd);
        crowd.insert(number, client);
        let after = rank(network, crowd);
        crowds.replace(before, after);
    }

    /// Removes a connection; does nothing if it was removed before.
    pub(super) fn remove(&self, network: Owner, number: u64) {
        let removed = self.0.lock().take(network, |crowd| crowd.remove(&number));
        drop(removed);
    }

    /// Removes the oldest connection of a network, or of the network that has most.
    pub(super) fn pop_oldest(&self, network: Option<Owner>) -> Option<Arc<Client>> {
        let mut crowds = self.0.lock();
        let network = network.or_else(|| crowds.sizes.last().map(|(_, _, largest)| *largest))?;
        crowds.take(network, |crowd| crowd.pop_first().map(|(_, oldest)| oldest))
    }
}

impl Crowds {
    fn take(
        &mut self,
        network: Owner,
        take: impl FnOnce(&mut BTreeMap<u64, Arc<Client>>) -> Option<Arc<Client>>,
    ) -> Option<Arc<Client>> {
        let Entry::Occupied(mut crowd) = self.networks.entry(network) else {
            return None;
        };
        let before = rank(network, crowd.get());
        let taken = take(crowd.get_mut());
        let after = rank(network, crowd.get());
        if after.is_none() {
            crowd.remove();
        }
        self.replace(before, after);
        taken
    }

    fn replace(&mut self, before: Option<Rank>, after: Option<Rank>) {
        if let Some(before) = before {
            self.sizes.remove(&before);
        }
        self.sizes.extend(after);
    }
}

/// The rank of a crowd; `None` if it is empty.
fn rank(network: Owner, crowd: &BTreeMap<u64, Arc<Client>>) -> Option<Rank> {
    let (oldest, _) = crowd.first_key_value()?;
    Some((crowd.len(), Reverse(*oldest), network))
}
