//! The amounts and waiting requests of a budget, under its lock.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use tokio::sync::oneshot;

use super::{Owner, Permit, Scope, Shared};

/// What is held, by whom, and who waits.
#[derive(Default)]
pub(super) struct State {
    used: usize,
    held: HashMap<Owner, usize>,
    /// Owners with waiting requests, in the order of their turns.
    turns: VecDeque<Owner>,
    /// The requests of each owner, with ascending ids.
    waiting: HashMap<Owner, VecDeque<Request>>,
    /// Ids of requests at the end of a queue ascend from 0, those at the front descend from -1.
    next_id: i64,
    next_front_id: i64,
}

struct Request {
    id: i64,
    amount: usize,
    sender: oneshot::Sender<Permit>,
}

/// An amount that was taken for a waiting request.
pub(super) struct Grant {
    pub(super) owner: Owner,
    pub(super) amount: usize,
    pub(super) sender: oneshot::Sender<Permit>,
}

impl State {
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// The amount that the owner can take.
    pub(super) fn room(&self, owner: Owner, of: &Shared) -> usize {
        let share = of.share_of(owner).saturating_sub(self.held_by(owner));
        share.min(of.capacity.saturating_sub(self.used))
    }

    /// Whether a request waits for the total. Later ones must not overtake it.
    pub(super) fn is_contended(&self, of: &Shared) -> bool {
        self.turns.iter().any(|owner| {
            let room = of.share_of(*owner).saturating_sub(self.held_by(*owner));
            self.waiting[owner][0].amount <= room
        })
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Iterates over the owners and what they hold.
    pub(super) fn owners(&self) -> impl Iterator<Item = (Owner, usize)> {
        self.held.iter().map(|(owner, held)| (*owner, *held))
    }

    /// The bound that leaves no room for an amount of an owner.
    pub(super) fn exhausted(&self, owner: Owner, amount: usize, of: &Shared) -> Option<Scope> {
        if amount > of.share_of(owner).saturating_sub(self.held_by(owner)) {
            Some(Scope::Share)
        } else if amount > of.capacity.saturating_sub(self.used) {
            Some(Scope::Total)
        } else {
            None
        }
    }

    /// The bound that the requests of an owner wait for: that of the first one, which the others
    /// wait for.
    pub(super) fn awaited(&self, owner: Owner, of: &Shared) -> Scope {
        let first = self.waiting.get(&owner).and_then(VecDeque::front);
        let scope = first.and_then(|first| self.exhausted(owner, first.amount, of));
        // A request that would fit waits for the turns of other owners.
        scope.unwrap_or(Scope::Total)
    }

    /// Takes an amount for an owner, or nothing.
    pub(super) fn take(&mut self, owner: Owner, amount: usize, of: &Shared) -> Result<(), Scope> {
        if let Some(scope) = self.exhausted(owner, amount, of) {
            return Err(scope);
        }
        if amount > 0 {
            let held = self.held_by(owner);
            self.held.insert(owner, held + amount);
            self.used += amount;
            of.metrics.set_used(self.used);
        }
        Ok(())
    }

    pub(super) fn give_back(&mut self, owner: Owner, amount: usize, of: &Shared) {
        self.charge_off(owner, amount);
        self.used -= amount;
        of.metrics.set_used(self.used);
    }

    /// Moves an amount from one owner to another, if its share has room. The sum does not change.
    pub(super) fn transfer(&mut self, from: Owner, to: Owner, amount: usize, of: &Shared) -> bool {
        if from == to || amount == 0 {
            return true;
        }
        let held = self.held_by(to);
        let has_room = amount <= of.share_of(to).saturating_sub(held);
        if has_room {
            self.held.insert(to, held + amount);
            self.charge_off(from, amount);
        }
        has_room
    }

    /// Adds a request at the end of the queue of its owner. Returns its id.
    pub(super) fn enqueue(
        &mut self,
        owner: Owner,
        amount: usize,
        sender: oneshot::Sender<Permit>,
    ) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.queue(owner).push_back(Request { id, amount, sender });
        id
    }

    /// Adds a request at the front of the queue of its owner, whose turn comes after those of the
    /// other owners. Returns its id.
    pub(super) fn enqueue_first(
        &mut self,
        owner: Owner,
        amount: usize,
        sender: oneshot::Sender<Permit>,
    ) -> i64 {
        self.next_front_id -= 1;
        let id = self.next_front_id;
        self.queue(owner).push_front(Request { id, amount, sender });
        self.turns.retain(|turn| *turn != owner);
        self.turns.push_back(owner);
        id
    }

    /// The queue of an owner, which is in `turns`.
    fn queue(&mut self, owner: Owner) -> &mut VecDeque<Request> {
        let requests = self.waiting.entry(owner).or_default();
        if requests.is_empty() {
            self.turns.push_back(owner);
        }
        requests
    }

    /// Whether another owner than this one waits.
    pub(super) fn is_awaited_beside(&self, owner: Owner) -> bool {
        self.turns.iter().any(|turn| *turn != owner)
    }

    /// Takes what fits for waiting requests: one for each owner in turn. Ends at the first request
    /// that the total has no room for; passes over owners at their share.
    pub(super) fn grant(&mut self, of: &Shared) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut passed = 0;
        while passed < self.turns.len() {
            let Some(owner) = self.turns.pop_front() else {
                break;
            };
            let amount = self.waiting[&owner][0].amount;
            match self.take(owner, amount, of) {
                Ok(()) => {
                    let request = self.pop(owner);
                    grants.extend(request.map(|request| Grant {
                        owner,
                        amount: request.amount,
                        sender: request.sender,
                    }));
                    passed = 0;
                }
                Err(Scope::Share) => {
                    self.turns.push_back(owner);
                    passed += 1;
                }
                Err(Scope::Total) => {
                    self.turns.push_front(owner);
                    break;
                }
            }
        }
        grants
    }

    /// Removes a request, if it still waits. Searches by id: thousands of requests may wait.
    pub(super) fn forget(&mut self, owner: Owner, id: i64) {
        if let Entry::Occupied(mut entry) = self.waiting.entry(owner) {
            let requests = entry.get_mut();
            if let Ok(index) = requests.binary_search_by_key(&id, |request| request.id) {
                requests.remove(index);
            }
            if requests.is_empty() {
                entry.remove();
                self.turns.retain(|turn| *turn != owner);
            }
        }
    }

    /// Removes the first request of an owner that has left the front of the turns, and puts the
    /// owner at the end if it has further ones.
    fn pop(&mut self, owner: Owner) -> Option<Request> {
        let requests = self.waiting.get_mut(&owner)?;
        let request = requests.pop_front();
        if requests.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        request
    }

    fn held_by(&self, owner: Owner) -> usize {
        self.held.get(&owner).copied().unwrap_or_default()
    }

    fn charge_off(&mut self, owner: Owner, amount: usize) {
        if let Entry::Occupied(mut held) = self.held.entry(owner) {
            *held.get_mut() -= amount;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}
