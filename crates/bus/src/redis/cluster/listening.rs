//! Keeps this node's channels heard at whichever shards own them, and says whether its inbox is.
//! Never: taken for heard what Redis has not confirmed, or what a server heard that is not the master.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{ASK_LIMIT, Cluster};
use crate::{
    error::BusError,
    redis::{directory, live::Live, shard::Shard, slot},
};

/// Between two looks, when nothing is missing and when something is.
const LOOK: Duration = Duration::from_millis(250);
const SHORT_LOOK: Duration = Duration::from_millis(20);
/// An inbox on its way from one shard to another is not deaf, for so long.
const MOVING: Duration = Duration::from_secs(1);
/// Before a channel is asked for again where it was asked for.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// A node whose inbox is heard waits so long for what else it needs.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was found at the last look.
#[derive(Default)]
struct Attention {
    /// Where each channel was heard.
    at: HashMap<String, Weak<Live>>,
    /// Where each that is not was asked for a moment ago, and when.
    asked: HashMap<String, Vec<(Weak<Live>, Instant)>>,
    /// Where the inbox was heard by a master.
    verified: Weak<Live>,
    verified_since: Option<Instant>,
    lost_since: Option<Instant>,
}

/// One look.
struct Look {
    /// Where the inbox is heard.
    inbox: Option<Arc<Live>>,
    /// Whether its shard is connected, or about to be because it is another.
    reachable: bool,
    /// Whether every channel is heard.
    all: bool,
    /// Whether a channel that others hear as well was not heard for a while: nobody says it again.
    missed: bool,
}

impl Attention {
    /// Whether a channel is to be asked for there now; if so, it is noted.
    fn is_to_ask(&mut self, channel: &str, live: &Arc<Live>) -> bool {
        let asked = self.asked.entry(channel.to_owned()).or_default();
        asked.retain(|(_, when)| when.elapsed() < ASK_AGAIN);
        if asked.iter().any(|(at, _)| is(at, live)) {
            return false;
        }
        asked.push((Arc::downgrade(live), Instant::now()));
        true
    }
}

impl Cluster {
    pub(super) async fn listen(self: &Arc<Self>) {
        let mut attention = Attention::default();
        loop {
            let look = self.look(&mut attention).await;
            let whole = look.all && look.inbox.is_some();
            if look.missed {
                self.house.inbox.missed();
            }
            self.judge(look, &mut attention).await;
            let deaf = self.standing.condition().deaf_for.is_some();
            let pause = if whole && !deaf { LOOK } else { SHORT_LOOK };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.house.hearing.notified() => {}
            }
        }
    }

    /// Asks for every channel that is not heard where it belongs.
    async fn look(&self, attention: &mut Attention) -> Look {
        let mut look = Look {
            inbox: None,
            reachable: false,
            all: true,
            missed: false,
        };
        for channel in &self.channels {
            let slot = slot::of(channel);
            let is_inbox = *channel == self.house.inbox_channel;
            let Some(live) = self.live_at(slot) else {
                look.all = false;
                look.reachable |= is_inbox && self.detours.is_young(slot);
                continue;
            };
            look.reachable |= is_inbox;
            let before = attention.at.get(channel);
            let same = before.is_some_and(|before| is(before, &live));
            if live.ears.hears(channel) {
                if !same {
                    look.missed |= !is_inbox && before.is_some();
                    attention.asked.remove(channel);
                    let here = Arc::downgrade(&live);
                    attention.at.insert(channel.clone(), here);
                }
                if is_inbox {
                    look.inbox = Some(live);
                }
                continue;
            }
            look.all = false;
            if same {
                // The server ended it: it has the slot no more.
                if is_inbox {
                    self.house.doubles.watch();
                }
                attention.at.insert(channel.clone(), Weak::new());
                self.forget(slot);
            } else if attention.is_to_ask(channel, &live) {
                ask(&live, "SSUBSCRIBE", channel).await;
            }
        }
        look
    }

    /// Has the inbox heard nowhere, and takes what came there until then.
    pub(in crate::redis) async fn close_inbox(&self) -> Result<(), BusError> {
        let inbox = &self.house.inbox_channel;
        let table = self.table.load_full();
        // Where it belongs it may have been asked for a moment ago.
        let owner = self.live_at(slot::of(inbox));
        let belongs =
            |live: &Arc<Live>| owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, live));
        let lives = table.shards().filter_map(Shard::live);
        for live in lives.filter(|live| live.ears.hears(inbox) || belongs(live)) {
            let ear = live.ear.as_ref().ok_or(BusError::Unavailable)?;
            // What was asked before is confirmed before, so that the last word is the end.
            live.ears.confirm(inbox.as_bytes(), true);
            ask(&live, "SUNSUBSCRIBE", inbox).await;
            let refused = Notify::new();
            tokio::select! {
                () = live.ears.confirmed(inbox, false) => {}
                // The slot is another's: nothing is heard of it here.
                () = refused.notified() => {}
                why = ear.listen(&live.ears, |_| refused.notify_one()) => return Err(BusError::Unexpected(why)),
            }
        }
        Ok(())
    }

    /// Says whether this node is heard.
    async fn judge(self: &Arc<Self>, look: Look, attention: &mut Attention) {
        let inbox = match look.inbox {
            Some(live) if is(&attention.verified, &live) => Some(live),
            Some(live) => self.verify(&live).await.then_some(live),
            None => None,
        };
        let Some(live) = inbox else {
            attention.verified = Weak::new();
            attention.verified_since = None;
            let since = *attention.lost_since.get_or_insert_with(Instant::now);
            if !look.reachable || since.elapsed() > MOVING {
                self.go_deaf(since);
            }
            return;
        };
        attention.verified = Arc::downgrade(&live);
        attention.lost_since = None;
        let since = *attention.verified_since.get_or_insert_with(Instant::now);
        if self.standing.condition().deaf_for.is_none() {
            return;
        }
        let complete = look.all && self.table.load().is_whole();
        if complete || since.elapsed() > PATIENCE {
            // The lease stands before the first device is entered under it, unless its shard is away.
            let house = &self.house;
            let beat = directory::beat(&self.keys, &house.node, &house.scripts);
            let _ = self.query_all(beat).await;
            self.standing.hears();
        }
    }

    /// A replica confirms a channel of its master's as well, and hears nothing there.
    async fn verify(&self, live: &Live) -> bool {
        let master = matches!(timeout(ASK_LIMIT, live.is_master()).await, Ok(Ok(true)));
        if !master {
            let inbox = &self.house.inbox_channel;
            self.house.doubles.watch();
            self.forget(slot::of(inbox));
            ask(live, "SUNSUBSCRIBE", inbox).await;
        }
        master
    }

    fn go_deaf(&self, since: Instant) {
        if self.standing.condition().deaf_for.is_none() {
            tracing::warn!("the inbox is not heard at any shard of Redis");
            self.standing.deaf(since);
        }
    }
}

/// Asks for something about a channel. If that fails, so will the connection; one that takes nothing is given up.
async fn ask(live: &Live, what: &str, channel: &str) {
    let Some(ear) = &live.ear else { return };
    tokio::select! {
        asked = timeout(ASK_LIMIT, ear.ask(what, channel)) => {
            if asked.is_err() {
                live.ears.gone.notify_one();
            }
        }
        () = live.given_up.cancelled() => {}
    }
}

fn is(known: &Weak<Live>, live: &Arc<Live>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(live))
}
