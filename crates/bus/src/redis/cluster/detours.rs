//! Packs that came back because their slot is elsewhere now, or was given to another shard a moment ago.
//! Never: one that may have been read from a server that counts; one that waits for longer than its sender could.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};

use super::table::moved;
use crate::{
    backend::{Inbox, Undelivered},
    node::NodeId,
    redis::{
        keys::Keys,
        publisher::{Attempt, Returned, Returns},
        slot,
    },
};

/// For so long after a slot was given away its listeners may not have followed it, so that nobody there does not
/// mean that nobody is anywhere. It is also how long a pack goes after them.
const YOUNG: Duration = Duration::from_secs(2);
/// Between two tries.
const PACE: Duration = Duration::from_millis(10);
/// What may wait here. Protects memory while many slots move.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Packs that may wait for their server to say what it is. Protects memory while it says nothing.
const MAX_ABSENCES: usize = 10_000;

pub(crate) struct Detours {
    keys: Keys,
    inbox: Arc<dyn Inbox>,
    state: Mutex<State>,
    came: Notify,
    absent: Notify,
    /// A shard refused a pack because it does not know who owns its slot.
    pub(super) down: Notify,
}

/// A pack, for whom, and what was tried with it.
pub(super) struct Held {
    pub(super) to: NodeId,
    pub(super) pack: Bytes,
    pub(super) attempt: Attempt,
}

#[derive(Default)]
struct State {
    /// Slots that changed hands, and when.
    changed: HashMap<u16, Instant>,
    /// What was said about where slots are.
    news: Vec<(u16, String)>,
    packs: Vec<Held>,
    /// Packs that nobody heard, which may be because their server was none to be asked; and that server.
    absences: Vec<(Held, Arc<str>)>,
    /// Whether some of those are being looked into.
    is_looking: bool,
    bytes: usize,
    /// Those for whom packs wait here or are about to be sent again: later ones wait behind them.
    awaiting: HashSet<NodeId>,
}

impl Detours {
    pub(in crate::redis) fn new(keys: Keys, inbox: Arc<dyn Inbox>) -> Self {
        Self {
            keys,
            inbox,
            state: Mutex::default(),
            came: Notify::new(),
            absent: Notify::new(),
            down: Notify::new(),
        }
    }

    /// Notes that slots changed hands.
    pub(super) fn changed(&self, slots: impl IntoIterator<Item = u16>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.changed.retain(|_, at| at.elapsed() < YOUNG);
        state
            .changed
            .extend(slots.into_iter().map(|slot| (slot, now)));
    }

    /// Whether a slot changed hands a moment ago.
    pub(super) fn is_young(&self, slot: u16) -> bool {
        let state = self.state.lock();
        let changed = state.changed.get(&slot);
        changed.is_some_and(|at| at.elapsed() < YOUNG)
    }

    /// Whether a slot changed hands within this time.
    pub(super) fn is_younger(&self, slot: u16, than: Duration) -> bool {
        let state = self.state.lock();
        let changed = state.changed.get(&slot);
        changed.is_some_and(|at| at.elapsed() < than)
    }

    /// Keeps a pack behind others for the same node; gives it back when there are none.
    pub(super) fn hold_behind(&self, to: &NodeId, pack: Bytes, attempt: Attempt) -> Option<Bytes> {
        let mut state = self.state.lock();
        if !state.awaiting.contains(to) {
            return Some(pack);
        }
        let refused = state.hold(to, pack, attempt);
        drop(state);
        if let Some(pack) = refused {
            self.give_up(to, pack, Undelivered::Unsent);
        }
        None
    }

    /// What is to be sent again, a moment after it came back; and what was learnt.
    pub(super) async fn take(&self) -> (Vec<(u16, String)>, Vec<Held>) {
        loop {
            let waits = {
                let state = self.state.lock();
                !state.packs.is_empty() || !state.news.is_empty()
            };
            if waits {
                sleep(PACE).await;
                let mut state = self.state.lock();
                let packs = std::mem::take(&mut state.packs);
                state.bytes = 0;
                return (std::mem::take(&mut state.news), packs);
            }
            self.came.notified().await;
        }
    }

    /// What nobody heard, where that is not explained by a slot that changed hands.
    pub(super) async fn absences(&self) -> Vec<(Held, Arc<str>)> {
        loop {
            {
                let mut state = self.state.lock();
                let absences = std::mem::take(&mut state.absences);
                state.is_looking = !absences.is_empty();
                if state.is_looking {
                    return absences;
                }
            }
            self.absent.notified().await;
        }
    }

    /// Each of those that were taken has gone on, or was given up.
    pub(super) fn looked_into(&self) {
        self.state.lock().is_looking = false;
    }

    /// Whether no pack is here.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.awaiting.is_empty() && state.absences.is_empty() && !state.is_looking
    }

    pub(super) fn give_up(&self, to: &NodeId, pack: Bytes, why: Undelivered) {
        self.inbox.undelivered(to, pack, why);
    }

    /// Keeps a pack to be sent again soon.
    pub(super) fn again(&self, to: &NodeId, pack: Bytes, attempt: Attempt) {
        let refused = self.state.lock().hold(to, pack, attempt);
        match refused {
            Some(pack) if attempt.doubted => self.give_up(to, pack, Undelivered::Unknown),
            Some(pack) => self.give_up(to, pack, Undelivered::Unsent),
            None => self.came.notify_one(),
        }
    }

    /// What was taken is on its way: later packs need not wait any more.
    pub(super) fn taken(&self) {
        let mut state = self.state.lock();
        let held = state.packs.iter().map(|held| held.to.clone());
        state.awaiting = held.collect();
    }
}

impl State {
    /// Gives back what there is no room for.
    fn hold(&mut self, to: &NodeId, pack: Bytes, attempt: Attempt) -> Option<Bytes> {
        if self.bytes + pack.len() > MAX_BYTES {
            return Some(pack);
        }
        self.bytes += pack.len();
        self.awaiting.insert(to.clone());
        let to = to.clone();
        self.packs.push(Held { to, pack, attempt });
        None
    }
}

impl Returns for Detours {
    fn returned(&self, parcel: Returned) {
        let Returned {
            to,
            pack,
            why,
            refusal,
            attempt,
            server,
        } = parcel;
        let young = self.is_young(slot::of(&self.keys.inbox(&to)));
        let news = refusal.as_deref().and_then(moved);
        let news = news.map(|(slot, address)| (slot, address.to_owned()));
        let moved = news.is_some();
        if refusal.is_some_and(|why| why.starts_with("CLUSTERDOWN")) {
            self.down.notify_one();
        }
        if let Some(news) = news {
            self.state.lock().news.push(news);
            self.came.notify_one();
        }
        let timely = attempt.since.elapsed() < YOUNG;
        match why {
            Undelivered::NobodyThere | Undelivered::Unsent if timely && (young || moved) => {
                self.again(&to, pack, attempt);
            }
            Undelivered::NobodyThere => {
                let mut state = self.state.lock();
                match server {
                    Some(server) if state.absences.len() < MAX_ABSENCES => {
                        state.absences.push((Held { to, pack, attempt }, server));
                        self.absent.notify_one();
                    }
                    _ => {
                        drop(state);
                        self.give_up(&to, pack, Undelivered::Unknown);
                    }
                }
            }
            Undelivered::Unsent if attempt.doubted => {
                self.give_up(&to, pack, Undelivered::Unknown);
            }
            Undelivered::Unsent | Undelivered::Unknown => self.give_up(&to, pack, why),
        }
    }
}
