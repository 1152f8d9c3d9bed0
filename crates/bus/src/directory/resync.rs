//! Makes the directory and this node's live connections agree after the bus was not reachable.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use tokio::{
    sync::Notify,
    time::{interval_at, sleep},
};

use crate::{
    backend::{Entry, Release, Upserted},
    background::RETRY_DELAY,
    bus::Node,
    clock::unix_now_ms,
    error::BusError,
    events::DeviceEvent,
    metrics::BusBudget,
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

/// Devices whose entries need attention; at most as many as are or were connecting here.
#[derive(Default)]
pub(crate) struct PendingDevices {
    devices: Mutex<BTreeSet<DeviceKey>>,
    added: Notify,
}

impl PendingDevices {
    pub(crate) fn add(&self, device: &DeviceKey) {
        self.keep(device);
        self.added.notify_one();
    }

    /// Adds a device without a notification.
    fn keep(&self, device: &DeviceKey) {
        self.devices.lock().insert(device.clone());
    }

    fn take(&self) -> BTreeSet<DeviceKey> {
        std::mem::take(&mut *self.devices.lock())
    }
}

/// How often the events of connections are recorded again whose organisation had no room for events.
const RECORD_INTERVAL: Duration = Duration::from_secs(15);

/// Records the connections of organisations whose events were refused, until they are accepted: the
/// control plane then knows the connections that there are, and not those that have ended since.
pub(crate) async fn record_missed(node: Arc<Node>) {
    loop {
        sleep(RECORD_INTERVAL).await;
        let orgs = std::mem::take(&mut *node.missed_events.lock());
        if orgs.is_empty() {
            continue;
        }
        let at_ms = unix_now_ms();
        let mut connections = node.connections();
        connections.retain(|connection| orgs.contains(&connection.device.org));
        for connection in &connections {
            node.record_again(connection, at_ms);
        }
    }
}

/// Removes the entries of claims that failed here, but were executed: of these devices only, because a
/// comparison of all entries is expensive.
pub(crate) async fn check_claims(node: Arc<Node>) {
    loop {
        node.uncertain_claims.added.notified().await;
        // The claims may be executed later: Redis reads what was sent before it stood still.
        sleep(STALE_CONFIRMATION_DELAY).await;
        let devices = node.uncertain_claims.take();
        if node.remove_unconnected(&devices).await.is_err() {
            devices
                .iter()
                .for_each(|device| node.uncertain_claims.add(device));
        }
    }
}

/// Enters all connections after a reconnect, and compares them with the entries now and then.
pub(crate) async fn run_resync(node: Arc<Node>) {
    let start = tokio::time::Instant::now() + COMPARE_INTERVAL;
    let mut ticks = interval_at(start, COMPARE_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = node.resync.notified() => {
                node.registrations.reset_published();
                node.resync_all().await;
            }
            () = node.pending_upserts.added.notified() => {
                node.upsert_pending().await;
                continue;
            }
            _ = ticks.tick() => {}
        }
        tokio::select! {
            biased;
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
        let uncertain = self.pending_upserts.take();
        let count = self.upsert_where(&uncertain, |_| true).await;
        if count > 0 {
            tracing::info!(
                devices = count,
                "entered the live connections after a reconnect"
            );
        }
    }

    /// If the bus fails in the meantime, the reconnect causes a full resync.
    async fn upsert_pending(&self) {
        let devices = self.pending_upserts.take();
        self.upsert_where(&devices, |connection| devices.contains(&connection.device))
            .await;
    }

    /// Enters the connections that match. Returns how many. Attempts to enter those of `uncertain`
    /// devices have failed, and may have been executed.
    async fn upsert_where(
        &self,
        uncertain: &BTreeSet<DeviceKey>,
        matches: impl Fn(&LiveConnection) -> bool,
    ) -> usize {
        // Events have the time of this snapshot: a device that disconnects while it is entered
        // has disconnected later.
        let at_ms = unix_now_ms();
        let mut connections = self.connections();
        connections.retain(matches);
        for chunk in connections.chunks(UPSERT_BATCH) {
            self.upsert_batch(chunk, uncertain, at_ms).await;
        }
        // A connection may have ended, and its entry been written behind its release.
        let live = self.live_epochs();
        let ended = connections
            .iter()
            .filter(|connection| live.get(&connection.device) != Some(&connection.epoch));
        for connection in ended {
            let entry = Release::new(connection.device.clone(), connection.epoch);
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
        let suspects = self.stale_entries().await?;
        sleep(STALE_CONFIRMATION_DELAY).await;
        let stale = confirmed(&suspects, self.stale_entries().await?);
        if !stale.is_empty() {
            tracing::info!(
                entries = stale.len(),
                "removed directory entries without a connection"
            );
            self.backend.release(stale).await?;
        }
        let entries: HashSet<(DeviceKey, Epoch)> =
            self.backend.entries().await?.into_iter().collect();
        self.upsert_where(&BTreeSet::new(), |connection| {
            !entries.contains(&(connection.device.clone(), connection.epoch))
        })
        .await;
        Ok(())
    }

    /// Removes the entries of these devices under this node whose connection is not here.
    async fn remove_unconnected(&self, devices: &BTreeSet<DeviceKey>) -> Result<(), BusError> {
        let suspects = self.stale_entries_of(devices).await?;
        if suspects.is_empty() {
            return Ok(());
        }
        sleep(STALE_CONFIRMATION_DELAY).await;
        let stale = confirmed(&suspects, self.stale_entries_of(devices).await?);
        stale.into_iter().for_each(|release| {
            self.releases.push(release);
        });
        Ok(())
    }

    /// Entries of these devices under this node whose connection is not here.
    async fn stale_entries_of(
        &self,
        devices: &BTreeSet<DeviceKey>,
    ) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let mut entries = Vec::new();
        for device in devices {
            let ids = std::slice::from_ref(&device.device);
            let entry = self.backend.find(device.org, ids).await?.pop().flatten();
            if let Some(presence) = entry.filter(|presence| presence.node == self.id) {
                entries.push((device.clone(), presence.epoch));
            }
        }
        Ok(self.without_connection(entries))
    }

    /// Entries of this node whose connection is not here.
    async fn stale_entries(&self) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let entries = self.backend.entries().await?;
        Ok(self.without_connection(entries))
    }

    fn without_connection(&self, mut entries: Vec<(DeviceKey, Epoch)>) -> Vec<(DeviceKey, Epoch)> {
        let live = self.live_epochs();
        entries.retain(|(device, epoch)| live.get(device) != Some(epoch));
        entries
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
    async fn upsert_batch(
        &self,
        connections: &[LiveConnection],
        uncertain: &BTreeSet<DeviceKey>,
        at_ms: u64,
    ) {
        let is_connected = || self.backend.status().disconnected_for.is_none();
        let mut has_failed = false;
        for _ in 0..MAX_ATTEMPTS {
            if !is_connected() {
                break;
            }
            match self.upsert_entries(connections).await {
                Ok(upserted) => {
                    for (connection, upserted) in connections.iter().zip(upserted) {
                        let is_uncertain = has_failed || uncertain.contains(&connection.device);
                        self.after_resync(connection, upserted, is_uncertain, at_ms)
                            .await;
                    }
                    return;
                }
                Err(_) => {
                    has_failed = true;
                    sleep(RETRY_DELAY).await;
                }
            }
        }
        let devices = connections.iter().map(|connection| &connection.device);
        if is_connected() {
            devices.for_each(|device| self.pending_upserts.add(device));
        } else {
            // The reconnect enters all connections.
            devices
                .filter(|device| has_failed || uncertain.contains(*device))
                .for_each(|device| self.pending_upserts.keep(device));
        }
    }

    /// Notifies those concerned of what became of the entry of a connection. One that `is_uncertain`
    /// may have replaced another in an attempt whose answer was lost.
    async fn after_resync(
        &self,
        connection: &LiveConnection,
        upserted: Upserted,
        is_uncertain: bool,
        at_ms: u64,
    ) {
        let (device, epoch) = (&connection.device, connection.epoch);
        match upserted {
            Upserted::Newer(newer) => return self.take_over(device, newer),
            Upserted::Entered(Some(previous)) => {
                self.announce_takeover(device, epoch, &previous).await;
            }
            Upserted::Updated if is_uncertain => self.broadcast_takeover(device, epoch).await,
            _ => {}
        }
        self.record_again(connection, at_ms);
    }

    /// Enters connections. Those whose registration does not fit are entered without it: their
    /// devices are callable, and their registrations stay in force here.
    async fn upsert_entries(
        &self,
        connections: &[LiveConnection],
    ) -> Result<Vec<Upserted>, BusError> {
        let max_bytes = self.registration_bytes;
        let mut upserted = vec![Upserted::TextMissing; connections.len()];
        let mut full: HashSet<(OrgId, Digest)> = HashSet::new();
        // The first entry of each registration takes its text along. If its device has a newer
        // connection, the text is not stored, and the next entry takes it along.
        loop {
            let mut sent: HashSet<(OrgId, Digest)> = HashSet::new();
            let missing = connections.iter().zip(&mut upserted);
            let missing = missing.filter(|(_, upserted)| **upserted == Upserted::TextMissing);
            let (answers, entries): (Vec<_>, Vec<_>) = missing
                .map(|(connection, upserted)| {
                    let entry = entry(connection, &full, &mut sent);
                    (upserted, entry)
                })
                .unzip();
            if entries.is_empty() {
                break;
            }
            let keys: Vec<_> = entries.iter().map(registration_key).collect();
            let entered = self.backend.upsert(entries, max_bytes).await?;
            for ((answer, entered), key) in answers.into_iter().zip(entered).zip(keys) {
                match (entered, key) {
                    (Upserted::Full, Some(key)) => {
                        self.metrics.refused.inc(BusBudget::Registrations);
                        full.insert(key);
                    }
                    (entered, _) => *answer = entered,
                }
            }
        }
        if !full.is_empty() {
            tracing::warn!(
                registrations = full.len(),
                limit = max_bytes,
                "registrations are not in the directory: their organisations' ones have too many \
                 bytes"
            );
        }
        Ok(upserted)
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
            let has_text = self.registrations.should_publish((device.org, *digest));
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

/// The entries that were stale in both of two looks, to be removed.
fn confirmed(suspects: &[(DeviceKey, Epoch)], stale: Vec<(DeviceKey, Epoch)>) -> Vec<Release> {
    let suspects: HashSet<_> = suspects.iter().collect();
    let stale = stale.into_iter().filter(|entry| suspects.contains(entry));
    stale
        .map(|(device, epoch)| Release::new(device, epoch))
        .collect()
}

/// The entry of a connection, without its registration if that is among those that are `full`. It
/// has the text if no entry that was `sent` has.
fn entry(
    connection: &LiveConnection,
    full: &HashSet<(OrgId, Digest)>,
    sent: &mut HashSet<(OrgId, Digest)>,
) -> Entry {
    let org = connection.device.org;
    let registration = connection.registration.as_ref();
    let registration = registration.filter(|(digest, _)| !full.contains(&(org, *digest)));
    Entry {
        device: connection.device.clone(),
        epoch: connection.epoch,
        digest: registration.map(|(digest, _)| *digest),
        services: registration
            .filter(|(digest, _)| sent.insert((org, *digest)))
            .map(|(_, json)| json.clone()),
    }
}

fn registration_key(entry: &Entry) -> Option<(OrgId, Digest)> {
    entry.digest.map(|digest| (entry.device.org, digest))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prometheus::Registry;
    use switchboard_runtime::shutdown::Shutdown;
    use switchboard_test_support::redis_server::RedisServer;
    use uuid::Uuid;

    use super::*;
    use crate::{Bus, BusConfig, LocalHub};

    const JSON: &[u8] = b"{\"echo\":{}}";

    fn device(id: &str) -> DeviceKey {
        DeviceKey {
            org: OrgId::from_uuid(Uuid::from_u128(7)),
            device: id.parse().unwrap(),
        }
    }

    async fn start(config: BusConfig) -> (Bus, Shutdown) {
        let shutdown = Shutdown::new();
        let bus = Bus::start(config, &Registry::new(), &shutdown).unwrap();
        bus.wait_ready(Duration::from_secs(10)).await.unwrap();
        (bus, shutdown)
    }

    /// Enters connections with one registration, of which the first device has a newer connection
    /// elsewhere, as after the directory was lost. Returns the services that are found of each.
    async fn resynced(one: BusConfig, other: BusConfig) -> Vec<Option<Bytes>> {
        let ((one, stop_one), (other, stop_other)) = (start(one).await, start(other).await);
        let ids = ["toy-1", "toy-2", "toy-3"];
        let mut connections = Vec::new();
        for device in ids.map(device) {
            let epoch = one.claim(&device).await.unwrap().epoch;
            let json = Bytes::from_static(JSON);
            connections.push(LiveConnection {
                device,
                epoch,
                registration: Some((Digest::compute(JSON), json)),
            });
        }
        other.claim(&device("toy-1")).await.unwrap();
        one.0.upsert_batch(&connections, &BTreeSet::new(), 1).await;
        let mut found = Vec::new();
        for device in ids.map(device) {
            let presence = other.find(&device).await.unwrap().unwrap();
            let services = other.services(device.org, &presence).await.unwrap();
            assert_eq!(services.is_some(), presence.digest.is_some());
            found.push(services);
        }
        stop_one.stop();
        stop_other.stop();
        found
    }

    /// The same over both backends.
    async fn check(max_bytes: u64, expected: Option<&'static [u8]>) {
        let (hub, server) = (LocalHub::default(), RedisServer::start());
        let url = server.url().into();
        let local = ["one", "other"].map(|name| BusConfig::local(&hub, name));
        let redis = ["one", "other"].map(|name| BusConfig::redis(&url, name, "test"));
        for configs in [local, redis] {
            let [one, other] = configs.map(|config| config.with_registration_bytes(max_bytes));
            let expected = expected.map(Bytes::from_static);
            let found = resynced(one, other).await;
            assert_eq!(found, [None, expected.clone(), expected]);
        }
    }

    #[tokio::test]
    async fn text_of_a_registration_survives_a_newer_connection() {
        check(1000, Some(JSON)).await;
    }

    #[tokio::test]
    async fn devices_whose_registration_does_not_fit_are_entered() {
        check(10, None).await;
    }
}
