//! Turns inside one process.
//!
//! Invariant: a worker whose lease was taken over renews, marks and completes nothing.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use switchboard_runtime::clock::unix_now_ms;

use crate::{
    error::BusError,
    node::NodeId,
    turns::{ClaimedTurn, Lease, MAX_TURNS, NewTurn, TURN_LEASE, TURN_TTL, TurnPosition},
};

#[derive(Default)]
pub(super) struct Turns {
    last: TurnPosition,
    waiting: VecDeque<WaitingTurn>,
    leased: Vec<LeasedTurn>,
}

#[derive(Clone)]
struct WaitingTurn {
    position: TurnPosition,
    turn: NewTurn,
    since: Instant,
}

struct LeasedTurn {
    waiting: WaitingTurn,
    worker: NodeId,
    attempts: u32,
    has_side_effects: bool,
    renewed_at: Instant,
}

impl Turns {
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn enqueue(&mut self, turn: NewTurn) -> Result<TurnPosition, BusError> {
        if self.waiting.len() + self.leased.len() >= MAX_TURNS {
            self.waiting.retain(|waiting| !waiting.is_expired());
            if self.waiting.len() + self.leased.len() >= MAX_TURNS {
                return Err(BusError::Overloaded);
            }
        }
        let (ms, last) = (unix_now_ms(), self.last);
        let position = if last.ms < ms {
            TurnPosition { ms, number: 0 }
        } else {
            let number = last.number + 1;
            TurnPosition { number, ..last }
        };
        self.last = position;
        self.waiting.push_back(WaitingTurn {
            position,
            turn,
            since: Instant::now(),
        });
        Ok(position)
    }

    pub(super) fn delete(&mut self, turns: &[TurnPosition]) {
        self.waiting
            .retain(|waiting| !turns.contains(&waiting.position));
        self.leased
            .retain(|leased| !turns.contains(&leased.waiting.position));
    }

    pub(super) fn claim(&mut self, worker: &NodeId, max: usize) -> Vec<ClaimedTurn> {
        let now = Instant::now();
        let mut claimed = Vec::new();
        let has_expired =
            |leased: &&mut LeasedTurn| now.duration_since(leased.renewed_at) >= TURN_LEASE;
        for leased in self.leased.iter_mut().filter(has_expired).take(max) {
            (leased.worker, leased.renewed_at) = (worker.clone(), now);
            leased.attempts += 1;
            claimed.push(leased.to_claimed());
        }
        while claimed.len() < max
            && let Some(waiting) = self.waiting.pop_front()
        {
            if waiting.is_expired() {
                continue;
            }
            let leased = LeasedTurn {
                waiting,
                worker: worker.clone(),
                attempts: 1,
                has_side_effects: false,
                renewed_at: now,
            };
            claimed.push(leased.to_claimed());
            self.leased.push(leased);
        }
        claimed
    }

    /// The time until the next lease expires, if none is renewed.
    pub(super) fn next_lease_expiry(&self) -> Duration {
        let ages = self.leased.iter().map(|leased| leased.renewed_at.elapsed());
        TURN_LEASE.saturating_sub(ages.max().unwrap_or_default())
    }

    pub(super) fn renew(&mut self, worker: &NodeId, leases: &[Lease]) -> Vec<Lease> {
        let mut renewed = Vec::new();
        for lease in leases {
            if let Some(leased) = self.find(worker, *lease) {
                leased.renewed_at = Instant::now();
                renewed.push(*lease);
            }
        }
        renewed
    }

    pub(super) fn mark_side_effects(&mut self, worker: &NodeId, lease: Lease) -> bool {
        let leased = self.find(worker, lease);
        leased
            .map(|leased| leased.has_side_effects = true)
            .is_some()
    }

    pub(super) fn complete(&mut self, worker: &NodeId, lease: Lease) {
        if self.find(worker, lease).is_some() {
            self.delete(&[lease.0]);
        }
    }

    fn find(&mut self, worker: &NodeId, (position, attempt): Lease) -> Option<&mut LeasedTurn> {
        self.leased.iter_mut().find(|leased| {
            leased.waiting.position == position
                && leased.attempts == attempt
                && leased.worker == *worker
        })
    }
}

impl WaitingTurn {
    fn is_expired(&self) -> bool {
        self.since.elapsed() >= TURN_TTL
    }
}

impl LeasedTurn {
    fn to_claimed(&self) -> ClaimedTurn {
        ClaimedTurn {
            position: self.waiting.position,
            turn: self.waiting.turn.clone(),
            attempts: self.attempts,
            has_side_effects: self.has_side_effects,
            waited: self.waiting.since.elapsed(),
        }
    }
}
