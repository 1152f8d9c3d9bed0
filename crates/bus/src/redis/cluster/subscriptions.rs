//! Keeps this node's channels subscribed at the shards that own them, and decides whether the
//! inbox is connected.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{Cluster, QUERY_TIMEOUT, slots::slot};
use crate::{
    error::BusError,
    redis::{connection::Connection, directory, server::Server},
};

/// How often subscriptions are checked when none is missing, and when one is.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
const MISSING_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long an inbox may move between shards before the node counts as disconnected.
const INBOX_MOVE_GRACE: Duration = Duration::from_secs(1);
/// Before a channel is requested again at the same connection.
const SUBSCRIBE_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// How long a node with a verified inbox waits for its other channels and for all shards.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// The state between two checks.
#[derive(Default)]
struct State {
    /// Where each channel is subscribed.
    subscribed_at: HashMap<String, Weak<Connection>>,
    /// Where each missing channel was requested a moment ago, and when.
    requested: HashMap<String, Vec<(Weak<Connection>, Instant)>>,
    /// The connection to a master at which the inbox is subscribed.
    verified: Weak<Connection>,
    verified_since: Option<Instant>,
    lost_since: Option<Instant>,
}

/// The result of one check.
struct Check {
    /// Where the inbox is subscribed.
    inbox: Option<Arc<Connection>>,
    /// Whether the inbox's shard is connected, or its slot has just moved.
    reachable: bool,
    /// Whether every channel is subscribed.
    complete: bool,
    /// Whether a broadcast channel was not subscribed for a while: its messages are lost.
    lagged: bool,
}

impl State {
    /// Whether a channel is to be requested at a connection now. If so, that is recorded.
    fn should_request(&mut self, channel: &str, connection: &Arc<Connection>) -> bool {
        let requested = self.requested.entry(channel.to_owned()).or_default();
        requested.retain(|(_, at)| at.elapsed() < SUBSCRIBE_RETRY_INTERVAL);
        if requested.iter().any(|(at, _)| is_same(at, connection)) {
            return false;
        }
        requested.push((Arc::downgrade(connection), Instant::now()));
        true
    }
}

impl Cluster {
    pub(super) async fn keep_subscribed(self: &Arc<Self>) {
        let mut state = State::default();
        loop {
            let check = self.check_subscriptions(&mut state).await;
            let is_complete = check.complete && check.inbox.is_some();
            if check.lagged {
                self.shared.inbox.lagged();
            }
            self.update_health(check, &mut state).await;
            let is_connected = self.health.status().disconnected_for.is_none();
            let interval = if is_complete && is_connected {
                CHECK_INTERVAL
            } else {
                MISSING_CHECK_INTERVAL
            };
            tokio::select! {
                () = sleep(interval) => {}
                () = self.shared.subscriptions_changed.notified() => {}
            }
        }
    }

    /// Requests every channel that is not subscribed at the shard that owns it.
    async fn check_subscriptions(&self, state: &mut State) -> Check {
        let mut check = Check {
            inbox: None,
            reachable: false,
            complete: true,
            lagged: false,
        };
        for channel in &self.channels {
            let slot = slot(channel);
            let is_inbox = *channel == self.shared.inbox_channel;
            let Some(connection) = self.owner_of(slot) else {
                check.complete = false;
                check.reachable |= is_inbox && self.redelivery.has_moved(slot);
                continue;
            };
            check.reachable |= is_inbox;
            let before = state.subscribed_at.get(channel);
            let was_here = before.is_some_and(|before| is_same(before, &connection));
            if connection.subscriber.is_subscribed(channel) {
                if !was_here {
                    check.lagged |= !is_inbox && before.is_some();
                    state.requested.remove(channel);
                    let here = Arc::downgrade(&connection);
                    state.subscribed_at.insert(channel.clone(), here);
                }
                if is_inbox {
                    check.inbox = Some(connection);
                }
                continue;
            }
            check.complete = false;
            if was_here {
                // The server ended the subscription: it no longer owns the slot.
                if is_inbox {
                    self.shared.deduplicator.activate();
                }
                state.subscribed_at.insert(channel.clone(), Weak::new());
                self.clear_owner(slot);
            } else if state.should_request(channel, &connection) {
                send(&connection, "SSUBSCRIBE", channel).await;
            }
        }
        check
    }

    /// Unsubscribes the inbox everywhere. Everything published before has been received
    /// then.
    pub(in crate::redis) async fn close_inbox(&self) -> Result<(), BusError> {
        let inbox = &self.shared.inbox_channel;
        let routes = self.routes.load_full();
        // The owner may have a subscription that is not confirmed yet.
        let owner = self.owner_of(slot(inbox));
        let is_owner = |connection: &Arc<Connection>| {
            let owner = owner.as_ref();
            owner.is_some_and(|owner| Arc::ptr_eq(owner, connection))
        };
        let connections = routes.servers().filter_map(Server::connection);
        for connection in connections {
            let subscriber = &connection.subscriber;
            if !subscriber.is_subscribed(inbox) && !is_owner(&connection) {
                continue;
            }
            let shard_subscriber = connection.shard_subscriber.as_ref();
            let shard_subscriber = shard_subscriber.ok_or(BusError::Unavailable)?;
            // Earlier requests are confirmed earlier, so the last confirmation is the final one.
            subscriber.confirm(inbox.as_bytes(), true);
            send(&connection, "SUNSUBSCRIBE", inbox).await;
            let refused = Notify::new();
            tokio::select! {
                () = subscriber.confirmed(inbox, false) => {}
                // The slot belongs to another shard: nothing is received here.
                () = refused.notified() => {}
                reason = shard_subscriber.run(subscriber, |_| refused.notify_one()) => {
                    return Err(BusError::Unexpected(reason));
                }
            }
        }
        Ok(())
    }

    /// Decides whether this node is connected.
    async fn update_health(self: &Arc<Self>, check: Check, state: &mut State) {
        let inbox = match check.inbox {
            Some(connection) if is_same(&state.verified, &connection) => Some(connection),
            Some(connection) => self.verify(&connection).await.then_some(connection),
            None => None,
        };
        let Some(connection) = inbox else {
            state.verified = Weak::new();
            state.verified_since = None;
            let since = *state.lost_since.get_or_insert_with(Instant::now);
            if !check.reachable || since.elapsed() > INBOX_MOVE_GRACE {
                self.set_disconnected(since);
            }
            return;
        };
        state.verified = Arc::downgrade(&connection);
        state.lost_since = None;
        let since = *state.verified_since.get_or_insert_with(Instant::now);
        if self.health.status().disconnected_for.is_none() {
            return;
        }
        let is_complete = check.complete && self.routes.load().is_complete();
        if is_complete || since.elapsed() > COMPLETION_TIMEOUT {
            // The lease exists before the first device is entered under it, unless its shard is
            // unavailable.
            let shared = &self.shared;
            let renewal = directory::renew_lease(&self.keys, &shared.node, &shared.scripts, false);
            let _ = self.query_all(renewal).await;
            self.health.connected();
        }
    }

    /// Verifies that the inbox is subscribed at a master: a replica confirms a subscription as
    /// well, and receives nothing.
    async fn verify(&self, connection: &Connection) -> bool {
        let role = timeout(QUERY_TIMEOUT, connection.is_master()).await;
        let is_master = matches!(role, Ok(Ok(true)));
        if !is_master {
            let inbox = &self.shared.inbox_channel;
            self.shared.deduplicator.activate();
            self.clear_owner(slot(inbox));
            send(connection, "SUNSUBSCRIBE", inbox).await;
        }
        is_master
    }

    fn set_disconnected(&self, since: Instant) {
        if self.health.status().disconnected_for.is_none() {
            tracing::warn!("the inbox is not subscribed at any shard of Redis");
            self.health.disconnected(since);
        }
    }
}

/// Sends a command about a channel. A connection that does not accept it in time is closed.
async fn send(connection: &Connection, command: &str, channel: &str) {
    let Some(shard_subscriber) = &connection.shard_subscriber else {
        return;
    };
    tokio::select! {
        sent = timeout(QUERY_TIMEOUT, shard_subscriber.send(command, channel)) => {
            if sent.is_err() {
                connection.subscriber.disconnected.notify_one();
            }
        }
        () = connection.closed.cancelled() => {}
    }
}

fn is_same(known: &Weak<Connection>, connection: &Arc<Connection>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(connection))
}
