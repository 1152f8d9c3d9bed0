//! The connections of a port that have not authenticated, by network and in the order of their
//! arrival. When there is no room for a new one, the oldest of a crowd is closed.

use std::{
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
    /// The networks by their number of connections.
    sizes: BTreeSet<(usize, Owner)>,
}

impl Strangers {
    pub(super) fn insert(&self, network: Owner, number: u64, client: Arc<Client>) {
        let mut crowds = self.0.lock();
        let crowd = crowds.networks.entry(network).or_default();
        let before = crowd.len();
        crowd.insert(number, client);
        let after = crowd.len();
        crowds.resize(network, before, after);
    }

    /// Removes a connection; does nothing if it was removed before.
    pub(super) fn remove(&self, network: Owner, number: u64) {
        let removed = self.0.lock().take(network, |crowd| crowd.remove(&number));
        drop(removed);
    }

    /// Removes the oldest connection of a network, or of the network that has most.
    pub(super) fn pop_oldest(&self, network: Option<Owner>) -> Option<Arc<Client>> {
        let mut crowds = self.0.lock();
        let network = network.or_else(|| crowds.sizes.last().map(|(_, largest)| *largest))?;
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
        let before = crowd.get().len();
        let taken = take(crowd.get_mut());
        let after = crowd.get().len();
        if after == 0 {
            crowd.remove();
        }
        self.resize(network, before, after);
        taken
    }

    fn resize(&mut self, network: Owner, before: usize, after: usize) {
        self.sizes.remove(&(before, network));
        if after > 0 {
            self.sizes.insert((after, network));
        }
    }
}
