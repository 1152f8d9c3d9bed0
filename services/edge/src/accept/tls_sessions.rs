//! The memory of TLS sessions whose connections have not authenticated, and which of them is closed
//! when there is none left for another network.

use std::{pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use switchboard_runtime::budget::{Budget, Budgets, Crowds, Exhausted, Kind, Owner, Permit, Scope};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

/// What a TLS session holds at most before AUTH: buffers for the bytes of its handshake, afterwards
/// for one record, and its keys.
const SESSION_BYTES: usize = 24 * 1024;

/// A younger session is not closed: a device needs this time for its handshake and AUTH.
const MIN_AGE: Duration = Duration::from_secs(1);

/// Until a waiting connection closes the next session: the memory of the last one may have gone to
/// a network that waits longer.
const EVICTION_INTERVAL: Duration = Duration::from_millis(20);

/// The TLS sessions of connections that have not authenticated, by network.
///
/// A connection without room for its session waits, and networks take turns. While it waits, it
/// closes the oldest session of its own network if that is at its share, and otherwise the oldest
/// one of the network that has most, if that network keeps at least as many as the network of the
/// waiting connection gets. A session is closed only when it is older than [`MIN_AGE`]. Networks
/// that have equally many do not close the sessions of each other: when many devices reconnect at
/// the same time, none would complete its handshake.
pub(super) struct TlsSessions {
    budget: Budget,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next_number: u64,
    crowds: Crowds<Member>,
}

struct Member {
    since: Instant,
    evicted: Arc<Notify>,
}

/// The memory of one session, returned when it is dropped.
pub(crate) struct TlsSession {
    state: Arc<Mutex<State>>,
    network: Owner,
    number: u64,
    _memory: Permit,
}

impl TlsSessions {
    pub(super) fn new(budgets: &Budgets, bytes: usize) -> Self {
        let share = (bytes / 4).max(SESSION_BYTES);
        Self {
            budget: budgets.bytes("tls_handshakes", bytes, Kind::Held { share }),
            state: Arc::default(),
        }
    }

    /// Waits until there is memory for a session. `evicted` is notified when its connection must
    /// close for another one; `on_eviction` is called when this one closes another one.
    ///
    /// # Errors
    /// When there is no memory until the deadline.
    pub(super) async fn acquire(
        &self,
        network: Owner,
        evicted: &Arc<Notify>,
        deadline: Instant,
        on_eviction: impl Fn(),
    ) -> Result<TlsSession, Exhausted> {
        let mut acquired = pin!(self.budget.acquire(network, SESSION_BYTES, deadline));
        let mut pause = Duration::ZERO;
        let memory = loop {
            // The permit is polled first.
            match timeout(pause, &mut acquired).await {
                Ok(memory) => break memory?,
                Err(_) => {
                    let scope = self.budget.exhausted(network, SESSION_BYTES);
                    let is_at_share = scope == Some(Scope::Share);
                    let mut state = self.state.lock();
                    pause = state.evict_for(network, is_at_share, &on_eviction);
                }
            }
        };
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        let member = Member {
            since: Instant::now(),
            evicted: Arc::clone(evicted),
        };
        state.crowds.insert(network, number, member);
        drop(state);
        Ok(TlsSession {
            state: Arc::clone(&self.state),
            network,
            number,
            _memory: memory,
        })
    }
}

impl State {
    /// Closes a session for a network that waits, if one may be closed. Returns the time until the
    /// next attempt.
    fn evict_for(
        &mut self,
        network: Owner,
        is_at_share: bool,
        on_eviction: &impl Fn(),
    ) -> Duration {
        let wanted = self.crowds.size(network) + 1;
        let oldest = if is_at_share {
            self.crowds.oldest(network)
        } else {
            let largest = self.crowds.peek();
            largest.and_then(|(size, oldest)| (size > wanted).then_some(oldest))
        };
        let Some(oldest) = oldest else {
            return MIN_AGE;
        };
        let age = oldest.since.elapsed();
        if age < MIN_AGE {
            return MIN_AGE.saturating_sub(age);
        }
        if let Some(member) = self.crowds.pop_oldest(is_at_share.then_some(network)) {
            member.evicted.notify_one();
            on_eviction();
        }
        EVICTION_INTERVAL
    }
}

impl Drop for TlsSession {
    fn drop(&mut self) {
        // An evicted one is in no crowd.
        let mut state = self.state.lock();
        state.crowds.remove(self.network, self.number);
    }
}
