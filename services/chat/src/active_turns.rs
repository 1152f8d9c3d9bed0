//! The turns that this node is answering, and their cancellation.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use prometheus::IntGauge;
use switchboard_bus::{Bus, CancelReason, Turn, TurnCancellation, TurnId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// All active turns. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActiveTurns(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turns: Mutex<HashMap<TurnId, Entry>>,
    ended: Notify,
    /// Cancelled when no turn is inserted any more.
    closed: CancellationToken,
}

#[derive(Debug)]
struct Entry {
    turn: Turn,
    cancellation: Arc<Cancellation>,
}

#[derive(Debug, Default)]
struct Cancellation {
    reason: OnceLock<CancelReason>,
    stopped: CancellationToken,
    /// Cancelled when another replica has taken the turn over.
    lease_lost: CancellationToken,
}

impl Cancellation {
    fn stop(&self, reason: CancelReason) {
        // The first reason wins.
        let _ = self.reason.set(reason);
        self.stopped.cancel();
    }
}

/// An active turn. Dropping it removes the turn.
#[derive(Debug)]
pub(crate) struct ActiveTurn {
    turns: ActiveTurns,
    id: TurnId,
    cancellation: Arc<Cancellation>,
}

/// Counts a turn in the gauge until it is dropped. A drain waits for the gauge, so a panic must
/// decrement it, too.
#[derive(Debug)]
pub(crate) struct InFlightGuard(IntGauge);

impl InFlightGuard {
    pub(crate) fn new(in_flight: &IntGauge) -> Self {
        in_flight.inc();
        Self(in_flight.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ActiveTurns {
    pub(crate) fn insert(&self, bus: &Bus, turn: &Turn) -> ActiveTurn {
        let cancellation = Arc::new(Cancellation::default());
        let entry = Entry {
            turn: turn.clone(),
            cancellation: Arc::clone(&cancellation),
        };
        self.0.turns.lock().insert(turn.id.clone(), entry);
        // A notification that arrived before the insertion was lost.
        if bus.is_turn_superseded(turn) {
            cancellation.stop(CancelReason::Superseded);
        }
        ActiveTurn {
            turns: self.clone(),
            id: turn.id.clone(),
            cancellation,
        }
    }

    /// Cancels the turns that the notification concerns.
    pub(crate) fn cancel(&self, cancellation: &TurnCancellation) {
        for entry in self.0.turns.lock().values() {
            if cancellation.applies_to(&entry.turn) {
                entry.cancellation.stop(cancellation.reason);
            }
        }
    }

    /// Stops turns whose leases were lost to other replicas.
    pub(crate) fn release(&self, lost: &[TurnId]) {
        let turns = self.0.turns.lock();
        for entry in lost.iter().filter_map(|id| turns.get(id)) {
            entry.cancellation.lease_lost.cancel();
        }
    }

    pub(crate) fn ids(&self) -> Vec<TurnId> {
        self.0.turns.lock().keys().cloned().collect()
    }

    /// No turn is claimed any more, so none is inserted.
    pub(crate) fn close(&self) {
        self.0.closed.cancel();
    }

    /// Waits until all turns have ended, and no other one is claimed.
    pub(crate) async fn wait_until_idle(&self) {
        self.0.closed.cancelled().await;
        loop {
            let ended = self.0.ended.notified();
            if self.0.turns.lock().is_empty() {
                return;
            }
            ended.await;
        }
    }
}

impl ActiveTurn {
    /// Waits until another replica has taken the turn over.
    pub(crate) async fn lease_lost(&self) {
        self.cancellation.lease_lost.cancelled().await;
    }

    /// Waits until the answer is no longer wanted.
    pub(crate) async fn stopped(&self) -> CancelReason {
        self.cancellation.stopped.cancelled().await;
        let reason = self.cancellation.reason.get().copied();
        reason.unwrap_or(CancelReason::Unwanted)
    }
}

impl Drop for ActiveTurn {
    fn drop(&mut self) {
        self.turns.0.turns.lock().remove(&self.id);
        self.turns.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn panicking_turn_leaves_the_gauge_balanced() {
        let gauge = IntGauge::new("under_way", "turns").unwrap();
        let answer = || {
            let _in_flight = InFlightGuard::new(&gauge);
            assert_eq!(gauge.get(), 1);
            panic!("expected by this test");
        };
        catch_unwind(AssertUnwindSafe(answer)).unwrap_err();
        assert_eq!(gauge.get(), 0);
    }
}
