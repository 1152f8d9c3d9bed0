//! Finds the master through its sentinels, and detects that it has moved.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, ConnectionInfo, PushInfo, PushKind, Value, aio::MultiplexedConnection,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    address::{SentinelAddress, with_address},
    connector::Connector,
};
use crate::error::BusError;

/// The longest that one sentinel is waited for.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(400);
/// How often the master is queried without a notification.
const MASTER_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Before another sentinel is used.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// The sentinels of one master.
///
/// Invariant: a single sentinel does not overrule the majority.
pub(super) struct Sentinels {
    address: SentinelAddress,
    connector: Connector,
    /// Counts which of them is subscribed to.
    current: AtomicUsize,
}

impl Sentinels {
    pub(super) fn new(address: SentinelAddress, connector: Connector) -> Self {
        Self {
            address,
            connector,
            current: AtomicUsize::new(0),
        }
    }

    /// The master's address, by majority of the sentinels that answer.
    pub(super) async fn master(&self) -> Result<ConnectionInfo, BusError> {
        let sentinels = &self.address.sentinels;
        let mut votes: Vec<((String, u16), usize)> = Vec::new();
        let mut is_unknown = false;
        let mut tls_error = None;
        for sentinel in sentinels {
            let master = match timeout(SENTINEL_TIMEOUT, self.query_master(sentinel)).await {
                Ok(Ok(Some(master))) => master,
                Ok(Ok(None)) => {
                    is_unknown = true;
                    continue;
                }
                Ok(Err(error)) => {
                    let sentinel = sentinel.addr();
                    tracing::debug!(%error, %sentinel, "a sentinel did not answer");
                    tls_error = tls_error.or(matches!(error, BusError::Tls(_)).then_some(error));
                    continue;
                }
                Err(_) => continue,
            };
            match votes.iter_mut().find(|(other, _)| *other == master) {
                Some((_, count)) => *count += 1,
                None => votes.push((master, 1)),
            }
            if votes.iter().any(|(_, count)| 2 * count > sentinels.len()) {
                break;
            }
        }
        // Of those with equally many votes, the one that was reported first.
        match votes.into_iter().rev().max_by_key(|(_, count)| *count) {
            Some(((host, port), _)) => Ok(with_address(&self.address.master, &host, port)),
            None if is_unknown => Err(BusError::Unexpected(format!(
                "the sentinels know no master named {}",
                self.address.name
            ))),
            None => Err(tls_error.unwrap_or(BusError::Unavailable)),
        }
    }

    async fn query_master(
        &self,
        sentinel: &ConnectionInfo,
    ) -> Result<Option<(String, u16)>, BusError> {
        let config = AsyncConnectionConfig::new();
        let driver = self
            .connector
            .connect_driver(sentinel, &config, SENTINEL_TIMEOUT);
        let mut driver = driver.await?;
        Ok(self.query_master_on(&mut driver.commands).await?)
    }

    async fn query_master_on(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<(String, u16)>, redis::RedisError> {
        let mut query = redis::cmd("SENTINEL");
        query.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.address.name);
        query.query_async(connection).await
    }

    /// Completes when another server is the master.
    pub(super) async fn master_moved(&self, from: &ConnectionInfo) {
        let sentinels = &self.address.sentinels;
        loop {
            let index = self.current.load(Ordering::Relaxed) % sentinels.len().max(1);
            let Some(sentinel) = sentinels.get(index) else {
                return std::future::pending().await;
            };
            match self.watch(sentinel, from).await {
                Ok(()) => return,
                Err(error) => {
                    let sentinel = sentinel.addr();
                    tracing::debug!(%error, %sentinel, "lost the connection to a sentinel");
                    self.current.store(index + 1, Ordering::Relaxed);
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Watches one sentinel until another server is the master. Fails when the connection to the
    /// sentinel is lost.
    async fn watch(
        &self,
        sentinel: &ConnectionInfo,
        from: &ConnectionInfo,
    ) -> Result<(), BusError> {
        let (switched, disconnected) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (on_switch, on_disconnect, prefix) = (
            Arc::clone(&switched),
            Arc::clone(&disconnected),
            format!("{} ", self.address.name),
        );
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(SENTINEL_TIMEOUT))
            .set_push_sender(move |info: PushInfo| -> Result<(), redis::aio::SendError> {
                match info.kind {
                    PushKind::Message if concerns(&info.data, &prefix) => on_switch.notify_one(),
                    PushKind::Disconnection => on_disconnect.notify_one(),
                    _ => {}
                }
                Ok(())
            });
        let driver = self
            .connector
            .connect_driver(sentinel, &config, SENTINEL_TIMEOUT);
        let mut driver = driver.await?;
        let connection = &mut driver.commands;
        connection.subscribe("+switch-master").await?;
        loop {
            // A switch before the subscription counts as well.
            let reported = self.query_master_on(connection).await?;
            let reported =
                reported.map(|(host, port)| with_address(&self.address.master, &host, port));
            if reported.is_some_and(|reported| reported.addr() != from.addr()) {
                let majority = self.master().await?;
                if majority.addr() != from.addr() {
                    return Ok(());
                }
                // The other sentinels are about to learn of the switch, or this one is wrong.
                sleep(RETRY_DELAY).await;
                continue;
            }
            tokio::select! {
                () = switched.notified() => {}
                () = disconnected.notified() => return Err(BusError::Unavailable),
                () = sleep(MASTER_POLL_INTERVAL) => {}
            }
        }
    }
}

/// Whether a `+switch-master` message concerns this master: it begins with the master's name.
fn concerns(data: &[Value], prefix: &str) -> bool {
    match data.get(1) {
        Some(Value::BulkString(message)) => message.starts_with(prefix.as_bytes()),
        _ => false,
    }
}
