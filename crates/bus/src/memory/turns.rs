//! Turns inside one process.
//!
//! Invariant: a worker whose lease was taken over renews, marks and completes nothing.

use std::{collections::VecDeque, time::Duration};

use switchboard_protocol::id::OrgId;
use tokio::time::Instant;

use crate::{
    clock::unix_now_ms,
    error::BusError,
    node::NodeId,
    turns::{
        ClaimedTurn, Lease, MAX_ORG_TURNS, MAX_TURNS, NewTurn, Rooms, TURN_LEASE, TURN_TTL,
        TurnPosition,
    },
};

/// Interval in which a claim looks for room for turns that were passed over.
const ROOM_INTERVAL: Duration = Duration::from_millis(10);

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

    /// The turns that wait or are leased.
    pub(super) fn count(&self) -> usize {
        self.waiting.len() + self.leased.len()
    }

    pub(super) fn enqueue(&mut self, turn: NewTurn) -> Result<TurnPosition, BusError> {
        let org = turn.target.device.org;
        let is_full = |turns: &Self| {
            let pictures = turn.message.max_pictures();
            turns.is_full(org) || pictures.is_some_and(|max| turns.is_full_of_pictures(org, max))
        };
        if is_full(self) {
            self.waiting.retain(|waiting| !waiting.is_expired());
            if is_full(self) {
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

    /// Whether a turn of this organisation is refused.
    fn is_full(&self, org: OrgId) -> bool {
        let all = self.count();
        let leased = self.leased.iter().map(|leased| &leased.waiting);
        let turns = self.waiting.iter().chain(leased);
        let of_org = || turns.filter(|turn| turn.org() == org).count();
        // Below the share of one organisation, none has to be counted.
        all >= MAX_TURNS || (all >= MAX_ORG_TURNS && of_org() >= MAX_ORG_TURNS)
    }

    /// Whether a further picture of this organisation is refused, if there may be this many, in all and
    /// of the organisation.
    fn is_full_of_pictures(&self, org: OrgId, (max, max_of_org): (usize, usize)) -> bool {
        let leased = self.leased.iter().map(|leased| &leased.waiting);
        let turns = self.waiting.iter().chain(leased);
        let pictures = turns.filter(|turn| turn.turn.message.max_pictures().is_some());
        let of_org = pictures.clone().filter(|turn| turn.org() == org);
        of_org.count() >= max_of_org || pictures.count() >= max
    }

    /// Claims turns whose organisation has room. Returns the time until the next claim may find
    /// more, if no turn is enqueued and no lease is renewed.
    pub(super) fn claim(
        &mut self,
        worker: &NodeId,
        max: usize,
        mut rooms: Rooms<'_>,
    ) -> (Vec<ClaimedTurn>, Duration) {
        let now = Instant::now();
        let mut claimed = Vec::new();
        let mut has_postponed = false;
        let has_expired =
            |leased: &&mut LeasedTurn| now.duration_since(leased.renewed_at) >= TURN_LEASE;
        for leased in self.leased.iter_mut().filter(has_expired) {
            if claimed.len() >= max || !rooms.take(leased.waiting.org()) {
                has_postponed = true;
                continue;
            }
            (leased.worker, leased.renewed_at) = (worker.clone(), now);
            leased.attempts += 1;
            claimed.push(leased.to_claimed());
        }
        while self.waiting.front().is_some_and(WaitingTurn::is_expired) {
            self.waiting.pop_front();
        }
        let mut passed = 0;
        while claimed.len() < max
            && let Some(org) = self.waiting.get(passed).map(WaitingTurn::org)
        {
            if !rooms.take(org) {
                has_postponed = true;
                passed += 1;
                continue;
            }
            let Some(waiting) = self.waiting.remove(passed) else {
                break;
            };
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
        let next_claim = if has_postponed {
            ROOM_INTERVAL
        } else {
            self.next_lease_expiry()
        };
        (claimed, next_claim)
    }

    /// The time until the next lease expires, if none is renewed.
    fn next_lease_expiry(&self) -> Duration {
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
    const fn org(&self) -> OrgId {
        self.turn.target.device.org
    }

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
