//! Responses that clients have not read yet.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;

use super::client::Client;
use crate::{
    budget::{Budget, Budgets, Crowds, Exhausted, Owner, Permit, Scope},
    response_budget::{self, CHUNK_BYTES, DEFAULT_CAPACITY_BYTES},
};

/// The memory of what waits for a client to read it: pieces of responses above
/// [`FREE_BYTES`](Self::FREE_BYTES), which a client keeps in memory for as long as it does not read.
///
/// A result cannot be refused once its device has done what was asked. So the budget refuses no
/// response: without room, the connection whose piece is the oldest is closed. It is one of the
/// same owner if that is at its share, otherwise one of the owner with most pieces.
///
/// ```text
///   written by the handler ──► charged ──► read by the client
///                                 │
///                                 └──► its connection is closed for another response
/// ```
pub(super) struct SlowReaders {
    budget: Budget,
    charged: Mutex<Crowds<Piece>>,
    next_number: AtomicU64,
}

/// A piece of a response.
struct Piece {
    reader: Arc<Client>,
    _permit: Permit,
}

/// The charge of a piece, until it is dropped.
pub(super) struct Charge {
    reader: Arc<Client>,
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
    /// [`Exhausted`] when pages of lists have used up the budget.
    pub(super) fn charge(
        &self,
        reader: &Arc<Client>,
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
            let same = (scope == Scope::Share).then_some(owner);
            let Some(oldest) = charged.pop_oldest(same) else {
                break self.budget.try_acquire(owner, amount)?;
            };
            oldest.reader.abort();
        };
        let number = self.next_number.fetch_add(1, Relaxed);
        let charge = Charge {
            reader: Arc::clone(reader),
            owner,
            number,
        };
        let reader = Arc::clone(reader);
        let piece = Piece {
            reader,
            _permit: permit,
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

impl Drop for Charge {
    fn drop(&mut self) {
        self.reader.slow_readers().release(self.owner, self.number);
    }
}
