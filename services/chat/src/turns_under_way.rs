//! The turns that this node is answering, and what stops them.
//! Never: a turn that stays here after its answer.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus::IntGauge;
use switchboard_bus::{Bus, Stop, StopReason, Turn, TurnId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// They, shared by whoever begins, stops and keeps them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnsUnderWay(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turns: Mutex<HashMap<TurnId, Wanted>>,
    ended: Notify,
}

#[derive(Debug)]
struct Wanted {
    turn: Turn,
    stopped: Arc<Stopped>,
}

/// What a turn's answer is told.
#[derive(Debug, Default)]
struct Stopped {
    why: OnceLock<StopReason>,
    told: CancellationToken,
    /// Another has taken the turn over.
    lost: CancellationToken,
}

impl Stopped {
    fn tell(&self, why: StopReason) {
        // The first reason is the one that is acted on.
        let _ = self.why.set(why);
        self.told.cancel();
    }
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(crate) struct Begun {
    turns: TurnsUnderWay,
    id: TurnId,
    stopped: Arc<Stopped>,
}

/// Counted among the turns that are being answered, until this is dropped: also by a panic, or a drain would wait for nobody.
#[derive(Debug)]
pub(crate) struct Counted(IntGauge);

impl Counted {
    pub(crate) fn new(under_way: &IntGauge) -> Self {
        under_way.inc();
        Self(under_way.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl TurnsUnderWay {
    pub(crate) fn begin(&self, bus: &Bus, turn: &Turn) -> Begun {
        let stopped = Arc::new(Stopped::default());
        let wanted = Wanted {
            turn: turn.clone(),
            stopped: Arc::clone(&stopped),
        };
        self.0.turns.lock().insert(turn.id.clone(), wanted);
        // What was heard of before it stood here was heard of by nobody.
        if bus.turn_is_superseded(turn) {
            stopped.tell(StopReason::Superseded);
        }
        Begun {
            turns: self.clone(),
            id: turn.id.clone(),
            stopped,
        }
    }

    /// Stops those that are meant.
    pub(crate) fn stop(&self, stop: &Stop) {
        for wanted in self.0.turns.lock().values() {
            if stop.concerns(&wanted.turn) {
                wanted.stopped.tell(stop.why);
            }
        }
    }

    /// These have been taken over by others.
    pub(crate) fn lose(&self, lost: &[TurnId]) {
        let turns = self.0.turns.lock();
        for wanted in lost.iter().filter_map(|id| turns.get(id)) {
            wanted.stopped.lost.cancel();
        }
    }

    pub(crate) fn ids(&self) -> Vec<TurnId> {
        self.0.turns.lock().keys().cloned().collect()
    }

    /// Waits until there has been none for a moment, in which one that was just taken can begin.
    pub(crate) async fn idle(&self, moment: Duration) {
        loop {
            let ended = self.0.ended.notified();
            if self.0.turns.lock().is_empty() {
                tokio::time::sleep(moment * 2).await;
                if self.0.turns.lock().is_empty() {
                    return;
                }
            } else {
                ended.await;
            }
        }
    }
}

impl Begun {
    /// Waits until another has taken the turn over.
    pub(crate) async fn lost(&self) {
        self.stopped.lost.cancelled().await;
    }

    /// Waits until nobody wants the answer any more; says why.
    pub(crate) async fn stopped(&self) -> StopReason {
        self.stopped.told.cancelled().await;
        self.stopped
            .why
            .get()
            .copied()
            .unwrap_or(StopReason::Unwanted)
    }
}

impl Drop for Begun {
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
    fn an_answer_that_panics_is_not_under_way_for_ever() {
        let gauge = IntGauge::new("under_way", "turns").unwrap();
        let answer = || {
            let _counted = Counted::new(&gauge);
            assert_eq!(gauge.get(), 1);
            panic!("as it may happen");
        };
        catch_unwind(AssertUnwindSafe(answer)).unwrap_err();
        assert_eq!(gauge.get(), 0);
    }
}
