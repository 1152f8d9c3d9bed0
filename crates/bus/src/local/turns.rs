//! Turns inside one process: those that wait, and those that are being answered.
//! Never: a turn kept, noted or struck out for a taker that has lost it to another.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use switchboard_runtime::clock::unix_now_ms;

use crate::{
    error::BusError,
    node::NodeId,
    turns::{Held, MAX_TURNS, NewTurn, TURN_LEASE, TURN_PATIENCE, TakenTurn, TurnAt},
};

/// The order of turns, and where each is.
#[derive(Default)]
pub(super) struct Turns {
    last: TurnAt,
    waiting: VecDeque<Waiting>,
    taken: Vec<Taken>,
}

#[derive(Clone)]
struct Waiting {
    at: TurnAt,
    turn: NewTurn,
    since: Instant,
}

struct Taken {
    waiting: Waiting,
    by: NodeId,
    attempts: u32,
    acted: bool,
    renewed: Instant,
}

impl Turns {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn begin(&mut self, turn: NewTurn) -> Result<TurnAt, BusError> {
        if self.waiting.len() + self.taken.len() >= MAX_TURNS {
            self.waiting.retain(|waiting| !waiting.is_stale());
            if self.waiting.len() + self.taken.len() >= MAX_TURNS {
                return Err(BusError::Overloaded);
            }
        }
        let (ms, last) = (unix_now_ms(), self.last);
        let at = if last.ms < ms {
            TurnAt { ms, number: 0 }
        } else {
            let number = last.number + 1;
            TurnAt { number, ..last }
        };
        self.last = at;
        let since = Instant::now();
        self.waiting.push_back(Waiting { at, turn, since });
        Ok(at)
    }

    pub(super) fn withdraw(&mut self, turns: &[TurnAt]) {
        self.waiting.retain(|waiting| !turns.contains(&waiting.at));
        self.taken
            .retain(|taken| !turns.contains(&taken.waiting.at));
    }

    pub(super) fn take(&mut self, by: &NodeId, most: usize) -> Vec<TakenTurn> {
        let now = Instant::now();
        let mut batch = Vec::new();
        let abandoned = |taken: &&mut Taken| now.duration_since(taken.renewed) >= TURN_LEASE;
        for taken in self.taken.iter_mut().filter(abandoned).take(most) {
            (taken.by, taken.renewed) = (by.clone(), now);
            taken.attempts += 1;
            batch.push(taken.given());
        }
        while batch.len() < most
            && let Some(waiting) = self.waiting.pop_front()
        {
            if waiting.is_stale() {
                continue;
            }
            let taken = Taken {
                waiting,
                by: by.clone(),
                attempts: 1,
                acted: false,
                renewed: now,
            };
            batch.push(taken.given());
            self.taken.push(taken);
        }
        batch
    }

    /// When the next lease ends, if none is renewed.
    pub(super) fn next_lease(&self) -> Duration {
        let ages = self.taken.iter().map(|taken| taken.renewed.elapsed());
        TURN_LEASE.saturating_sub(ages.max().unwrap_or_default())
    }

    pub(super) fn keep(&mut self, by: &NodeId, turns: &[Held]) -> Vec<Held> {
        let mut kept = Vec::new();
        for held in turns {
            if let Some(taken) = self.find(by, *held) {
                taken.renewed = Instant::now();
                kept.push(*held);
            }
        }
        kept
    }

    pub(super) fn acted(&mut self, by: &NodeId, turn: Held) -> bool {
        let taken = self.find(by, turn);
        taken.map(|taken| taken.acted = true).is_some()
    }

    pub(super) fn end(&mut self, by: &NodeId, turn: Held) {
        if self.find(by, turn).is_some() {
            self.withdraw(&[turn.0]);
        }
    }

    fn find(&mut self, by: &NodeId, (at, attempt): Held) -> Option<&mut Taken> {
        let mut taken = self.taken.iter_mut();
        taken.find(|taken| taken.waiting.at == at && taken.attempts == attempt && taken.by == *by)
    }
}

impl Waiting {
    fn is_stale(&self) -> bool {
        self.since.elapsed() >= TURN_PATIENCE
    }
}

impl Taken {
    fn given(&self) -> TakenTurn {
        TakenTurn {
            at: self.waiting.at,
            turn: self.waiting.turn.clone(),
            attempts: self.attempts,
            acted: self.acted,
            waited: self.waiting.since.elapsed(),
        }
    }
}
