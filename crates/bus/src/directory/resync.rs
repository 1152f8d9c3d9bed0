//! Makes the directory and this node's live connections agree after the bus was not reachable.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use switchboard_runtime::clock::unix_now_ms;
use tokio::{
    sync::Notify,
    time::{interval_at, sleep},
};

use crate::{
    backend::{Entry, Release},
    background::RETRY_DELAY,
    bus::Node,
    error::BusError,
    events::DeviceEvent,
    node::Epoch,
    rpc::LiveConnection,
};

/// Connections that are entered in one round trip.
const UPSERT_BATCH: usize = 256;
/// Attempts to enter a batch before other batches are entered.
const MAX_ATTEMPTS: usize = 10;
/// An entry is stale when its connection is missing in two comparisons this far apart: a claim in
/// flight takes less.
const STALE_CONFIRMATION_DELAY: Duration = Duration::from_secs(3);
/// Entries and connections are compared this often without a failure.
const COMPARE_INTERVAL: Duration = Duration::from_secs(300);

/// Devices whose registrations could not be entered; at most as many as are connected here.
#[derive(Default)]
pub(crate) struct PendingUpserts {
    devices: Mutex<HashSet<DeviceKey>>,
    added: Notify,
}

impl PendingUpserts {
    pub(crate) fn add(&self, device: &DeviceKey) {
        self.devices.lock().insert(device.clone());
        self.added.notify_one();
    }
}

/// Enters all connections after a reconnect, and compares them with the entries now and then.
pub(crate) async fn run_resync(node: Arc<Node>) {
    let start = tokio::time::Instant::now() + COMPARE_INTERVAL;
    let mut ticks = interval_at(start, COMPARE_INTERVAL);
    loop {
        tokio::select! {
            () = node.resync.notified() => {
                node.registrations.reset_published();
                node.resync_all().await;
            }
            () = node.pending_upserts.added.notified() => {
                node.upsert_pending().await;
                continue;
            }
            () = node.compare_entries.notified() => {}
            _ = ticks.tick() => {}
        }
        tokio::select! {
            compared = node.compare() => {
                // After a failure the next reconnect causes another comparison.
                if let Err(error) = compared {
                    tracing::debug!(
                        %error,
                        "cannot compare the directory with the live connections"
                    );
                }
            }
            // A resync does not wait for a comparison of outdated entries.
            () = node.resync.notified() => node.resync.notify_one(),
        }
    }
}

impl Node {
    async fn resync_all(&self) {
        let count = self.upsert_where(|_| true).await;
        if count > 0 {
            tracing::info!(
                devices = count,
                "entered the live connections after a reconnect"
            );
        }
    }

    /// If the bus fails in the meantime, the reconnect causes a full resync.
    async fn upsert_pending(&self) {
        let devices = std::mem::take(&mut *self.pending_upserts.devices.lock());
        self.upsert_where(|connection| devices.contains(&connection.device))
            .await;
    }

    /// Enters the connections that match. Returns how many.
    async fn upsert_where(&self, matches: impl Fn(&LiveConnection) -> bool) -> usize {
        // Events have the time of this snapshot: a device that disconnects while it is entered
        // has disconnected later.
        let at_ms = unix_now_ms();
        let mut connections = self.connections();
        connections.retain(matches);
        for chunk in connections.chunks(UPSERT_BATCH) {
            self.upsert_batch(chunk, at_ms).await;
        }
        // A connection may have ended, and its entry been written behind its release.
        let live = self.live_epochs();
        let ended = connections
            .iter()
            .filter(|connection| live.get(&connection.device) != Some(&connection.epoch));
        for connection in ended {
            let entry = Release::Entry(connection.device.clone(), connection.epoch);
            self.releases.push(entry);
        }
        connections.len()
    }

    fn connections(&self) -> Vec<LiveConnection> {
        self.owner()
            .map(|owner| owner.connections())
            .unwrap_or_default()
    }

    /// Removes stale entries, and enters connections that have no entry.
    async fn compare(&self) -> Result<(), BusError> {
        if self.owner().is_none() {
            return Ok(());
        }
        let suspects: HashSet<(DeviceKey, Epoch)> =
            self.stale_entries().await?.into_iter().collect();
        sleep(STALE_CONFIRMATION_DELAY).await;
        let stale = self.stale_entries().await?;
        let stale: Vec<Release> = stale
            .into_iter()
            .filter(|entry| suspects.contains(entry))
            .map(|(device, epoch)| Release::Entry(device, epoch))
            .collect();
        if !stale.is_empty() {
            tracing::info!(
                entries = stale.len(),
                "removed directory entries without a connection"
            );
            self.backend.release(stale).await?;
        }
        let entries: HashSet<(DeviceKey, Epoch)> =
            self.backend.entries().await?.into_iter().collect();
        self.upsert_where(|connection| {
            !entries.contains(&(connection.device.clone(), connection.epoch))
        })
        .await;
        Ok(())
    }

    /// Entries of this node whose connection is not here.
    async fn stale_entries(&self) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let mut entries = self.backend.entries().await?;
        let live = self.live_epochs();
        entries.retain(|(device, epoch)| live.get(device) != Some(epoch));
        Ok(entries)
    }

    /// The devices that are connected here, and the epochs of their connections.
    fn live_epochs(&self) -> HashMap<DeviceKey, Epoch> {
        let connections = self.connections().into_iter();
        connections
            .map(|connection| (connection.device, connection.epoch))
            .collect()
    }

    /// Enters connections, and closes those that have a newer one elsewhere. Connections that
    /// could not be entered are entered later.
    async fn upsert_batch(&self, connections: &[LiveConnection], at_ms: u64) {
        let mut stored: HashSet<Digest> = HashSet::new();
        let entries: Vec<Entry> = connections
            .iter()
            .map(|connection| {
                let (digest, json) = connection.registration.clone().unzip();
                let is_first = digest.is_some_and(|digest| stored.insert(digest));
                Entry {
                    device: connection.device.clone(),
                    epoch: connection.epoch,
                    digest,
                    services: json.filter(|_| is_first),
                }
            })
            .collect();
        for _ in 0..MAX_ATTEMPTS {
            match self.backend.upsert(entries.clone()).await {
                Ok(newer) => {
                    for (connection, newer) in connections.iter().zip(newer) {
                        match newer {
                            Some(epoch) => self.take_over(&connection.device, epoch),
                            None => self.record_again(connection, at_ms),
                        }
                    }
                    return;
                }
                Err(_) if self.backend.status().disconnected_for.is_some() => return,
                Err(_) => sleep(RETRY_DELAY).await,
            }
        }
        for connection in connections {
            self.pending_upserts.add(&connection.device);
        }
    }

    /// Records the events of a connection again: the event stream may have lost them.
    fn record_again(&self, connection: &LiveConnection, at_ms: u64) {
        let (device, epoch) = (connection.device.clone(), connection.epoch);
        self.record_event(DeviceEvent::Connected {
            device: device.clone(),
            epoch,
            at_ms,
        });
        if let Some((digest, json)) = &connection.registration {
            let has_text = self.registrations.should_publish(device.org, *digest);
            self.record_event(DeviceEvent::Registered {
                device,
                epoch,
                at_ms,
                digest: *digest,
                json: has_text.then(|| json.clone()),
            });
        }
    }
}
