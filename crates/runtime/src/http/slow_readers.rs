//! Responses that clients have not read yet.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::active_request::ActiveRequest;
use crate::{
    budget::{Budget, Budgets, Exhausted, Owner, Permit, Scope},
    response_budget::{self, CHUNK_BYTES, DEFAULT_CAPACITY_BYTES},
};

/// A client that has read nothing for this time is slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// The memory of what waits for a client to read it: pieces of responses above
/// [`FREE_BYTES`](Self::FREE_BYTES), which a client keeps in memory for as long as it does not read.
///
/// A result cannot be refused once its device has done what was asked. So the budget refuses no
/// response as long as another one can be ended for it, which closes its connection over HTTP/1.1, and
/// resets its stream over HTTP/2:
///
/// ```text
///   written by the handler ──► charged ──► read by the client
///                                 │
///                                 └──► its connection is closed for another response
/// ```
///
/// It is one of the same owner if that is at its share, otherwise one of the owners that hold an
/// equal part or more, all pieces divided by their owners. Among these, a slow reader is closed
/// first, and the one that holds the most bytes for the longest time. An owner below its part loses
/// slow readers only, and those when there is no other.
pub(super) struct SlowReaders {
    budget: Budget,
    charged: Mutex<Pieces>,
    next_number: AtomicU64,
}

/// What is charged, by owner.
#[derive(Default)]
struct Pieces {
    by_number: BTreeMap<(Owner, u64), Piece>,
    bytes: HashMap<Owner, usize>,
}

/// A piece of a response.
struct Piece {
    reader: Arc<ActiveRequest>,
    since: Instant,
    permit: Permit,
}

/// How urgently a connection is closed: the greatest one is first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Urgency {
    is_slow: bool,
    /// Bytes, multiplied by the time without progress; of a client that reads, by the time since it
    /// has the piece.
    byte_micros: u128,
}

/// The charge of a piece, until it is dropped.
pub(super) struct Charge {
    reader: Arc<ActiveRequest>,
    owner: Owner,
    number: u64,
}

impl SlowReaders {
    /// Smaller pieces are not charged: the connections bound their number. The chunks of a response
    /// that holds a permit are not charged again.
    pub(super) const FREE_BYTES: usize = CHUNK_BYTES;

    pub(super) fn new(budgets: &Budgets) -> Self {
        Self {
            budget: response_budget::budget(budgets, DEFAULT_CAPACITY_BYTES),
            charged: Mutex::default(),
            next_number: AtomicU64::default(),
        }
    }

    /// Charges a piece of `bytes`.
    ///
    /// # Errors
    /// [`Exhausted`] when pages of lists have used up the budget, or only clients that read hold
    /// pieces, and their owners less than this one.
    pub(super) fn charge(
        &self,
        reader: &Arc<ActiveRequest>,
        owner: Owner,
        bytes: usize,
    ) -> Result<Charge, Exhausted> {
        let amount = bytes.min(self.budget.share());
        // Locked until the piece is entered: another response finds it when it needs its room.
        let mut charged = self.charged.lock();
        let permit = loop {
            let scope = match self.budget.acquire_if_free(owner, amount) {
                Ok(permit) => break permit,
                Err(scope) => scope,
            };
            let Some(closed) = charged.pop_for(owner, amount, scope) else {
                break self.budget.try_acquire(owner, amount)?;
            };
            closed.reader.abort();
        };
        let number = self.next_number.fetch_add(1, Relaxed);
        let charge = Charge {
            reader: Arc::clone(reader),
            owner,
            number,
        };
        let piece = Piece {
            reader: Arc::clone(reader),
            since: Instant::now(),
            permit,
        };
        charged.insert(owner, number, piece);
        drop(charged);
        Ok(charge)
    }

    /// Returns the charge of a piece, unless its connection was closed for another response.
    fn release(&self, owner: Owner, number: u64) {
        // It is dropped after the lock.
        let _piece = self.charged.lock().remove(owner, number);
    }
}

impl Pieces {
    fn insert(&mut self, owner: Owner, number: u64, piece: Piece) {
        *self.bytes.entry(owner).or_default() += piece.permit.amount();
        self.by_number.insert((owner, number), piece);
    }

    fn remove(&mut self, owner: Owner, number: u64) -> Option<Piece> {
        let piece = self.by_number.remove(&(owner, number))?;
        if let Some(bytes) = self.bytes.get_mut(&owner) {
            *bytes = bytes.saturating_sub(piece.permit.amount());
            if *bytes == 0 {
                self.bytes.remove(&owner);
            }
        }
        Some(piece)
    }

    /// Removes the piece whose connection is closed for `amount` of an owner. Visits all pieces
    /// that can be closed.
    fn pop_for(&mut self, owner: Owner, amount: usize, scope: Scope) -> Option<Piece> {
        let now = Instant::now();
        let urgency = |piece: &Piece| piece.urgency(now);
        let most_urgent = match scope {
            Scope::Share => {
                let own = self.by_number.range((owner, 0)..=(owner, u64::MAX));
                own.max_by_key(|(_, piece)| urgency(piece))
            }
            Scope::Total => {
                let held = |of: Owner| {
                    let bytes = self.bytes.get(&of).copied().unwrap_or_default();
                    bytes + if of == owner { amount } else { 0 }
                };
                let owners = self.bytes.len() + usize::from(!self.bytes.contains_key(&owner));
                let part = (self.bytes.values().sum::<usize>() + amount) / owners.max(1);
                let above = self
                    .by_number
                    .iter()
                    .filter(|((of, _), _)| held(*of) >= part);
                let slow = self
                    .by_number
                    .iter()
                    .filter(|(_, piece)| urgency(piece).is_slow);
                above
                    .max_by_key(|(_, piece)| urgency(piece))
                    .or_else(|| slow.max_by_key(|(_, piece)| urgency(piece)))
            }
        };
        let (owner, number) = *most_urgent?.0;
        self.remove(owner, number)
    }
}

impl Piece {
    fn urgency(&self, now: Instant) -> Urgency {
        let idle = now.saturating_duration_since(self.reader.written_at().max(self.since));
        let is_slow = idle >= SLOW_AFTER;
        let time = if is_slow {
            idle
        } else {
            now.saturating_duration_since(self.since)
        };
        Urgency {
            is_slow,
            byte_micros: self.permit.amount() as u128 * time.as_micros(),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.reader.slow_readers().release(self.owner, self.number);
    }
}
