//! Keeps the routes up to date: queried from the cluster, corrected by every redirection.

use std::{sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, ConnectionInfo, Value};
use tokio::time::{sleep, timeout};

use super::{
    Cluster, QUERY_TIMEOUT,
    routes::{Member, Routes},
    slots::SLOTS,
};
use crate::{
    error::BusError,
    redis::{
        address::{self, host_and_port, with_address},
        server::{Endpoint, Server, Subscriptions},
    },
};

/// How often the cluster is queried when all shards are connected, and when one is not.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
const DEGRADED_REFRESH_INTERVAL: Duration = Duration::from_millis(250);
/// The cluster is never queried more often than this.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(25);
/// A redirection within this time is newer than the reply to a query may be.
const REDIRECT_PRECEDENCE_WINDOW: Duration = Duration::from_millis(500);

/// A range of slots, inclusive, and the `host:port` of its owner.
struct SlotRange {
    from: u16,
    to: u16,
    address: String,
}

/// Invariant: the reply to a query does not overwrite what a redirection has just reported.
impl Cluster {
    /// Queries the topology at intervals, and whenever the routes are suspect.
    pub(super) async fn refresh_routes(self: &Arc<Self>) {
        let mut logged = false;
        loop {
            let queried = self.query_topology().await;
            if let Err(error) = &queried
                && self.routes.load().is_empty()
                && !std::mem::replace(&mut logged, true)
            {
                tracing::warn!(%error, "cannot query any server of the Redis cluster, retrying");
            }
            let is_degraded = queried.is_err() || !self.routes.load().is_complete();
            let interval = if is_degraded {
                DEGRADED_REFRESH_INTERVAL
            } else {
                REFRESH_INTERVAL
            };
            sleep(MIN_REFRESH_INTERVAL).await;
            tokio::select! {
                () = sleep(interval) => {}
                () = self.routes_suspect.notified() => {}
                () = self.redelivery.owner_unknown.notified() => {}
            }
        }
    }

    /// Queries one server after another, until one answers.
    pub(super) async fn query_topology(self: &Arc<Self>) -> Result<(), BusError> {
        let mut last_error = BusError::Unavailable;
        let routes = self.routes.load_full();
        let mut connections: Vec<_> = routes.servers().filter_map(Server::connection).collect();
        if !connections.is_empty() {
            let first = rand::random_range(0..connections.len());
            connections.rotate_left(first);
        }
        for connection in connections {
            let command = cluster_slots();
            let query = connection.query::<Vec<Vec<Value>>>(&command);
            match timeout(QUERY_TIMEOUT, query).await {
                Ok(Ok(reply)) => {
                    self.apply(&parse_slots(&reply, &connection.info));
                    return Ok(());
                }
                Ok(Err(error)) => last_error = error.into(),
                Err(_) => last_error = BusError::Timeout(QUERY_TIMEOUT),
            }
        }
        for seed in std::iter::once(&self.seeds.0).chain(&self.seeds.1) {
            match timeout(QUERY_TIMEOUT, self.query_seed(seed)).await {
                Ok(Ok(reply)) => {
                    self.apply(&parse_slots(&reply, seed));
                    return Ok(());
                }
                Ok(Err(error)) => last_error = error,
                Err(_) => last_error = BusError::Timeout(QUERY_TIMEOUT),
            }
        }
        Err(last_error)
    }

    /// Sets the owner of one slot, as reported by a redirection.
    pub(super) fn set_owner(self: &Arc<Self>, slot: u16, address: &str) {
        // Redis omits the host when it is the host of the server itself.
        if host_and_port(address).is_none_or(|(host, _)| host.is_empty()) {
            return self.routes_suspect.notify_one();
        }
        let _updating = self.updating.lock();
        let mut routes = (**self.routes.load()).clone();
        let index = self.find_or_connect(&mut routes, address);
        if routes.set_owner(slot, Some(index)) {
            self.redelivery.record_moves([slot]);
        }
        self.routes.store(Arc::new(routes));
        // Other slots may have moved with this one.
        self.routes_suspect.notify_one();
        self.shared.subscriptions_changed.notify_one();
    }

    /// Connects to a server that owns no slot yet.
    pub(super) fn add_server(self: &Arc<Self>, address: &str) {
        let _updating = self.updating.lock();
        let mut routes = (**self.routes.load()).clone();
        self.find_or_connect(&mut routes, address);
        self.routes.store(Arc::new(routes));
    }

    /// Clears the owner of a slot that its shard no longer has.
    pub(super) fn clear_owner(&self, slot: u16) {
        let _updating = self.updating.lock();
        let mut routes = (**self.routes.load()).clone();
        if routes.set_owner(slot, None) {
            self.redelivery.record_moves([slot]);
            self.routes.store(Arc::new(routes));
        }
        self.routes_suspect.notify_one();
    }

    async fn query_seed(&self, seed: &ConnectionInfo) -> Result<Vec<Vec<Value>>, BusError> {
        let config = AsyncConnectionConfig::new();
        let connector = &self.shared.connector;
        let driver = connector.connect_driver(seed, &config, QUERY_TIMEOUT);
        let mut driver = driver.await?;
        Ok(cluster_slots().query_async(&mut driver.commands).await?)
    }

    fn apply(self: &Arc<Self>, ranges: &[SlotRange]) {
        let _updating = self.updating.lock();
        let mut routes = (**self.routes.load()).clone();
        let is_first = routes.is_empty();
        let mut owners = vec![None; usize::from(SLOTS)];
        for SlotRange { from, to, address } in ranges {
            let index = self.find_or_connect(&mut routes, address);
            let slots = owners.get_mut(usize::from(*from)..=usize::from(*to));
            slots.unwrap_or_default().fill(Some(index));
        }
        let window = REDIRECT_PRECEDENCE_WINDOW;
        let mut moved = Vec::new();
        for (slot, index) in (0..SLOTS).zip(owners) {
            if routes.index(slot).is_some() && self.redelivery.has_moved_within(slot, window) {
                if routes.index(slot) != index {
                    self.routes_suspect.notify_one();
                }
            } else if routes.set_owner(slot, index) {
                moved.push(slot);
            }
        }
        let removed = routes.remove_idle();
        if !is_first {
            self.redelivery.record_moves(moved.iter().copied());
        }
        self.routes.store(Arc::new(routes));
        for member in removed {
            member.removed.cancel();
            member.server.disconnect();
        }
        if !moved.is_empty() {
            self.shared.subscriptions_changed.notify_one();
        }
    }

    /// The index of a server. An unknown server is connected.
    fn find_or_connect(self: &Arc<Self>, routes: &mut Routes, address: &str) -> usize {
        if let Some(index) = routes.find_index(address) {
            return index;
        }
        let (host, port) = host_and_port(address).unwrap_or_default();
        // All servers accept the same credentials.
        let endpoint = Endpoint::Fixed(with_address(&self.seeds.0, host, port));
        let echo = self.keys.echo(&self.shared.node);
        let subscriptions = Subscriptions::Shard { echo };
        let server = Server::new(endpoint, subscriptions, self.shared.clone());
        let server = Arc::new(server);
        let member = Member::new(address.to_owned(), Arc::clone(&server));
        let (removed, stop) = (member.removed.clone(), self.shutdown.clone());
        let cluster = Arc::clone(self);
        self.shutdown.spawn(async move {
            tokio::select! {
                () = server.supervise(&cluster) => {}
                () = removed.cancelled() => {}
                () = stop.stopping() => {}
            }
        });
        routes.add(member)
    }
}

fn cluster_slots() -> redis::Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    command
}

/// Parses the reply to `CLUSTER SLOTS`: from, to, the master, its replicas. An unknown host means
/// the host of the server that replied.
fn parse_slots(reply: &[Vec<Value>], server: &ConnectionInfo) -> Vec<SlotRange> {
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let range = |entry: &Vec<Value>| {
        let [from, to, Value::Array(master), ..] = &entry[..] else {
            return None;
        };
        let host = match master.first()? {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            _ => String::new(),
        };
        let host = match address::host(server) {
            Some(server) if host.is_empty() || host == "?" => server,
            _ => &host,
        };
        Some(SlotRange {
            from: number(from)?,
            to: number(to)?,
            address: format!("{host}:{}", number(master.get(1)?)?),
        })
    };
    let ranges = reply.iter().filter_map(range);
    ranges
        .filter(|range| range.from <= range.to && range.to < SLOTS)
        .collect()
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn malformed_slot_ranges_are_ignored() {
        let queried = "redis://asked:7".into_connection_info().unwrap();
        let server = |host: &str, port| {
            let host = Value::BulkString(host.as_bytes().to_vec());
            Value::Array(vec![host, Value::Int(port)])
        };
        let range = |from, to, master| vec![Value::Int(from), Value::Int(to), master];
        let reply = [
            range(0, 9, server("a", 1)),
            range(10, 16_383, server("", 2)),
            range(9, 8, server("wrong", 3)),
            range(0, 16_384, server("wrong", 4)),
            range(0, 1, Value::Nil),
            vec![Value::Int(0)],
        ];
        let ranges = parse_slots(&reply, &queried);
        let ranges: Vec<_> = ranges
            .iter()
            .map(|range| (range.from, range.to, range.address.as_str()))
            .collect();
        assert_eq!(ranges, [(0, 9, "a:1"), (10, 16_383, "asked:2")]);
    }
}
