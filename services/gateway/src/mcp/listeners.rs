//! Who listens, how many at a time, and until when.
//! Never: a listener whose credential is no longer good, or a query for each of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use switchboard_identity::{Caller, CallerId, Standing};
use switchboard_runtime::{problem::Problem, shutdown::Shutdown};
use tokio::{sync::broadcast::error::RecvError, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{Gateway, metrics::Shed};

/// How often credentials are asked for. With the 3 s that an API key is taken as good, a listener ends within 5 s.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// API keys that are asked for at a time: a slow database must not make the last of many wait.
const KEYS_AT_ONCE: usize = 8;
/// Nobody knows when a listener will leave; soon enough for one that takes turns, and no flood.
pub(super) const RETRY_AFTER_S: u64 = 5;

/// Those who listen to one gateway, by whose limit they count.
pub(super) struct Listeners {
    limit: usize,
    seats: Mutex<HashMap<CallerId, Vec<Arc<Seat>>>>,
}

/// One listener, as long as this lives.
pub(super) struct Listening {
    listeners: Arc<Listeners>,
    caller: CallerId,
    seat: Arc<Seat>,
}

struct Seat {
    standing: Standing,
    over: CancellationToken,
}

/// Why somebody may not listen.
pub(super) enum Denied {
    /// The credential is not good any more.
    Credential(Problem),
    /// The caller has as many listeners as it may have.
    TooMany { limit: usize },
}

impl Listeners {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            seats: Mutex::default(),
        })
    }

    fn admit(self: &Arc<Self>, caller: CallerId, standing: Standing) -> Result<Listening, Denied> {
        let mut seats = self.seats.lock();
        let taken = seats.get(&caller).map_or(0, Vec::len);
        if taken >= self.limit {
            return Err(Denied::TooMany { limit: self.limit });
        }
        let seat = Arc::new(Seat {
            standing,
            over: CancellationToken::new(),
        });
        let own = seats.entry(caller.clone()).or_default();
        own.push(Arc::clone(&seat));
        Ok(Listening {
            listeners: Arc::clone(self),
            caller,
            seat,
        })
    }

    fn those_on_store(&self, on_store: bool) -> Vec<Arc<Seat>> {
        let seats = self.seats.lock();
        let all = seats.values().flatten();
        all.filter(|seat| seat.standing.rests_on_store() == on_store)
            .cloned()
            .collect()
    }
}

impl Listening {
    /// Completes when the credential is no longer good.
    pub(super) async fn over(&self) {
        self.seat.over.cancelled().await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut seats = self.listeners.seats.lock();
        if let Some(own) = seats.get_mut(&self.caller) {
            own.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
            if own.is_empty() {
                seats.remove(&self.caller);
            }
        }
    }
}

impl Denied {
    pub(super) fn too_many(limit: usize) -> String {
        format!("This caller has {limit} listeners, which is the limit; end one first.")
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Credential(problem) => problem,
            Denied::TooMany { limit } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_listeners",
                "Too many listeners",
                Denied::too_many(limit),
            )
            .with("limit", limit)
            .header(header::RETRY_AFTER, RETRY_AFTER_S),
        }
    }
}

/// Lets a caller listen for as long as the credential in these headers is good.
///
/// # Errors
/// When it is refused by now, and when the caller listens often enough already.
pub(super) fn enter(
    gateway: &Gateway,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Listening, Denied> {
    let standing = gateway.authenticator.standing(headers);
    let standing = standing.map_err(Denied::Credential)?;
    let listeners = &gateway.mcp.listeners;
    let admitted = listeners.admit(caller.id(), standing);
    if let Err(Denied::TooMany { .. }) = &admitted {
        gateway.metrics.shed.inc(Shed::Listeners);
    }
    admitted
}

/// Ends those whose credential is no longer good, until draining ends all of them.
pub(crate) async fn watch(gateway: Arc<Gateway>, shutdown: Shutdown) {
    let watched = async { tokio::join!(watch_tokens(&gateway), watch_keys(&gateway)) };
    tokio::select! {
        _ = watched => {}
        () = shutdown.draining() => {}
    }
}

async fn watch_tokens(gateway: &Gateway) {
    let mut revoked = gateway.bus.revocations();
    let mut ticks = ticks();
    loop {
        tokio::select! {
            // Whichever it was, and however many were missed: every token is asked for.
            told = revoked.recv() => if told == Err(RecvError::Closed) { return },
            _ = ticks.tick() => {}
        }
        look_over(gateway, false).await;
    }
}

/// Apart from the tokens, which must not wait for a database that is away.
async fn watch_keys(gateway: &Gateway) {
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        look_over(gateway, true).await;
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn look_over(gateway: &Gateway, on_store: bool) {
    let seats = stream::iter(gateway.mcp.listeners.those_on_store(on_store));
    let look = |seat: Arc<Seat>| async move {
        if !gateway.authenticator.still_good(&seat.standing).await {
            seat.over.cancel();
        }
    };
    seats.for_each_concurrent(KEYS_AT_ONCE, look).await;
}
