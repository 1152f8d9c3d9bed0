//! Reads and updates the directory.

use std::time::Duration;

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, DeviceRange, OrgId},
    schema::Digest,
};
use switchboard_runtime::quota::Quota;

use crate::{
    backend::{Entry, Presence, Release, Upserted},
    bus::{Bus, Node},
    clock::{unique_id, unix_now_ms},
    error::BusError,
    events::{DeviceEvent, DisconnectReason},
    live::LiveEvent,
    metrics::BusBudget,
    node::{Epoch, NodeId},
};

/// How long callers wait for the next connection of a device that a draining edge sent away: longer
/// than it is asked to wait, and its dial takes.
const MOVING_TIMEOUT: Duration = Duration::from_secs(5);

/// The epoch of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedEpoch {
    /// The connection, among those of the device.
    pub epoch: Epoch,
    /// Whether the connection has the directory's entry. If not, a registered connection of the
    /// device has it until this one registers.
    pub is_entered: bool,
}

/// # The directory
///
/// The directory stores for each connected device the node that owns its connection, the epoch of
/// the connection, and the digest of the registered services.
///
/// ```text
///            claim                register                claim
///   absent ────────► connected ────────────► registered ────────► registered, and a newer
///      ▲              │     ▲                 │  ▲  ▲              connection is joining
///      │              │     │ enter, after 2 s│  │  └── register ────────┤
///      │              │     └─────────────────┼──┼──────────────────────┘
///      ├── release ───┴───────────────────────┘  └── the newer one is released
///      └── lease of the node expired
/// ```
///
/// - [`claim`](Self::claim) assigns an epoch from the directory's clock to a connection, and enters
///   it. A registered connection keeps its entry until the newer one registers
///   ([`register`](Self::register)), or for 2 s ([`enter`](Self::enter)): a device that changes nodes
///   is callable all the time.
/// - The newest connection that is entered wins: the former owner node is notified, and closes its
///   connection.
/// - A node holds a lease of 9 s, which it renews every 3 s. Entries of a node without a lease are
///   not returned by lookups, and other nodes remove them.
/// - A node caches the entries of devices that it calls (`directory::presence_cache`), while the leases of
///   their nodes last. All nodes are notified when a device has moved from a node that it had not
///   left, and those that watch the catalog when it leaves or registers. A stale entry costs a call
///   one more attempt: the node it names answers that the connection is not there.
/// - After a reconnect, when its own lease has expired, and every 5 min a node compares its
///   entries with its connections, and repairs the difference (`directory::resync`).
///
/// Invariant: an older connection never replaces a newer one.
impl Bus {
    /// The live connection of a device, if it has one. A cached entry that turns out to be outdated
    /// is removed.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn find(&self, device: &DeviceKey) -> Result<Option<Presence>, BusError> {
        let devices = std::slice::from_ref(&device.device);
        let found = self.find_many(device.org, devices).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Like [`Self::find`], from this node's cache if it has an entry, which may be outdated.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn find_cached(&self, device: &DeviceKey) -> Result<Option<Presence>, BusError> {
        match self.0.presence_cache.get(device) {
            Some(presence) => Ok(Some(presence)),
            None => self.find(device).await,
        }
    }

    /// Like [`Self::find`] for several devices of an organisation, in the order of `devices`.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn find_many(
        &self,
        org: OrgId,
        devices: &[DeviceId],
    ) -> Result<Vec<Option<Presence>>, BusError> {
        let found = self.0.backend.find(org, devices).await?;
        for (device, presence) in devices.iter().zip(&found) {
            let device = device.clone();
            let key = DeviceKey { org, device };
            let cache = &self.0.presence_cache;
            cache.remove_outdated(&key, presence.as_ref());
        }
        Ok(found)
    }

    /// An organisation's live devices of a range, in byte order of their ids; at most `limit`.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn list<'a>(
        &self,
        org: OrgId,
        range: impl Into<DeviceRange<'a>>,
        limit: usize,
    ) -> Result<Vec<(DeviceId, Presence)>, BusError> {
        self.0.backend.list(org, range.into(), limit).await
    }

    /// The number of an organisation's devices of a range that have an entry. Those of a lost node
    /// count until another node removes them, some seconds after its lease has ended.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn count(&self, org: OrgId, range: DeviceRange<'_>) -> Result<u64, BusError> {
        self.0.backend.count(org, range).await
    }

    /// The services object that a live device of an organisation registered, as it was sent.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn services(
        &self,
        org: OrgId,
        presence: &Presence,
    ) -> Result<Option<Bytes>, BusError> {
        self.0.backend.services(org, presence).await
    }

    /// Assigns an epoch to a new connection of a device, and enters it if no connection of the
    /// device is registered.
    ///
    /// # Errors
    /// [`BusError::Quota`] when the device has no entry and its organisation has as many as its
    /// quota of connected devices; others when the bus is not reachable: callers could not find
    /// the device.
    pub async fn claim(&self, device: &DeviceKey) -> Result<ClaimedEpoch, BusError> {
        let limit = self.quota_limit(device.org, Quota::DevicesConnected);
        let claim = self.0.backend.claim(device, limit).await;
        let claim = claim.inspect_err(|error| {
            if !matches!(error, BusError::Quota(_)) {
                // It may have been executed: then there is an entry without a connection.
                self.0.uncertain_claims.add(device);
            }
        })?;
        let (epoch, is_entered) = (claim.epoch, claim.is_entered);
        if is_entered {
            let previous = claim.previous.map(|previous| previous.node);
            self.0.entered(device, epoch, previous).await;
        }
        Ok(ClaimedEpoch { epoch, is_entered })
    }

    /// Enters a connection that has not registered in place of one that has.
    ///
    /// # Errors
    /// When the bus is not reachable: the connection is entered later.
    pub async fn enter(&self, device: &DeviceKey, epoch: Epoch) -> Result<(), BusError> {
        let entry = Entry {
            device: device.clone(),
            epoch,
            digest: None,
            services: None,
        };
        let upserted = self.0.upsert(entry, &Bytes::new()).await;
        self.0.after_upsert(device, epoch, upserted).await
    }

    /// Whether this node was notified of a newer connection of the device: then the connection
    /// with this epoch, which was just entered, must close.
    #[must_use]
    pub fn is_superseded(&self, device: &DeviceKey, epoch: Epoch) -> bool {
        let newer = self.0.takeover_cache.get(device);
        newer.is_some_and(|newer| newer > epoch)
    }

    /// Enters a device's registration, in place of its `previous` one.
    ///
    /// # Errors
    /// [`BusError::RegistrationsFull`] when the text does not fit the organisation's share: the
    /// previous registration stays in force. Others when the bus is not reachable, or refuses: the
    /// registration is entered later.
    pub async fn register(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        previous: Option<Digest>,
        (digest, json): (Digest, &Bytes),
    ) -> Result<(), BusError> {
        let node = &self.0;
        let acquired = node.registrations.acquire((device.org, digest));
        let entry = Entry {
            device: device.clone(),
            epoch,
            digest: Some(digest),
            services: acquired.is_first.then(|| json.clone()),
        };
        let upserted = node.upsert(entry, json).await;
        if matches!(upserted, Ok(Upserted::Full)) {
            node.metrics.refused.inc(BusBudget::Registrations);
            return Err(BusError::RegistrationsFull {
                limit: node.registration_bytes,
            });
        }
        acquired.keep();
        node.release_registration(device.org, previous);
        let entered = node.after_upsert(device, epoch, upserted).await;
        let has_text = node.registrations.should_publish((device.org, digest));
        node.record_event(DeviceEvent::Registered {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            digest,
            json: has_text.then(|| json.clone()),
        });
        node.record_live(device.org, || LiveEvent::registered(device, json));
        entered
    }

    /// Enters connections of one organisation in bulk, with the same registration and without events.
    /// They last as long as the lease of the node; one that owns connections removes those that it
    /// does not have within 5 min.
    /// Measurements of a large directory use it.
    ///
    /// # Errors
    /// When the bus is not reachable: some may be entered.
    pub async fn enter_many(
        &self,
        org: OrgId,
        devices: Vec<DeviceId>,
        epoch: Epoch,
        (digest, json): (Digest, &Bytes),
    ) -> Result<(), BusError> {
        let mut services = Some(json.clone());
        let entry = |device| Entry {
            device: DeviceKey { org, device },
            epoch,
            digest: Some(digest),
            services: services.take(),
        };
        let entries = devices.into_iter().map(entry).collect();
        let node = &self.0;
        let upserted = node.backend.upsert(entries, node.registration_bytes);
        upserted.await.map(drop)
    }

    /// Records an EVENT frame of a device, a `{"name", "data"}` object. Does not wait.
    pub fn record_custom_event(&self, device: DeviceKey, epoch: Epoch, json: Bytes) {
        self.0.record_event(DeviceEvent::Custom {
            device,
            epoch,
            at_ms: unix_now_ms(),
            id: unique_id(),
            json,
        });
    }

    /// Removes the entry of a connection that accepts no further calls, and closes within `closes_within`
    /// with [`Self::release`]. Calls wait for the next connection of the device until 5 s later. Does
    /// not wait.
    pub fn withdraw(&self, device: DeviceKey, epoch: Epoch, closes_within: Duration) {
        let mut release = Release::new(device, epoch);
        release.moving_for = closes_within + MOVING_TIMEOUT;
        self.0.releases.push(release);
    }

    /// Removes a connection's entry, unless a newer one is stored. Does not wait: while the bus is
    /// not reachable, the entry is removed later. After a drain, calls wait up to 5 s for the next
    /// connection of the device.
    pub fn release(
        &self,
        device: DeviceKey,
        epoch: Epoch,
        digest: Option<Digest>,
        reason: DisconnectReason,
    ) {
        let node = &self.0;
        node.release_registration(device.org, digest);
        node.record_event(DeviceEvent::Disconnected {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            reason,
        });
        let mut release = Release::new(device, epoch);
        release.reason = Some(reason);
        if reason == DisconnectReason::Drain {
            release.moving_for = MOVING_TIMEOUT;
        }
        node.releases.push(release);
    }
}

impl Node {
    /// Queues an event for the control plane. Events that are dropped for it are counted.
    pub(crate) fn record_event(&self, event: DeviceEvent) {
        let dropped = self.events.push(event);
        self.metrics.facts_dropped.inc_by(dropped as u64);
    }

    /// Counts events that the backend had no room for, and has their connections recorded later.
    pub(crate) fn events_refused(&self, refused: &[usize], events: &[DeviceEvent]) {
        let count = refused.len() as u64;
        self.metrics.facts_dropped.inc_by(count);
        self.metrics.refused.inc_by(BusBudget::DeviceEvents, count);
        let refused = refused.iter().filter_map(|index| events.get(*index));
        let mut missed = self.missed_events.lock();
        for event in refused {
            let org = event.device().org;
            missed.insert(org);
            if let DeviceEvent::Registered {
                digest,
                json: Some(_),
                ..
            } = event
            {
                self.registrations.forget_published((org, *digest));
            }
        }
    }

    /// A connection has the entry of its device from now on, in place of one at `previous`.
    async fn entered(&self, device: &DeviceKey, epoch: Epoch, previous: Option<NodeId>) {
        if let Some(previous) = previous {
            self.announce_takeover(device, epoch, &previous).await;
        }
        self.record_event(DeviceEvent::Connected {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
        });
        let online = || LiveEvent::online(device.device.clone(), epoch);
        self.record_live(device.org, online);
    }

    /// Notifies those concerned of what became of an entry, or has it entered later.
    async fn after_upsert(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        upserted: Result<Upserted, BusError>,
    ) -> Result<(), BusError> {
        match upserted {
            Ok(Upserted::Entered(previous)) => self.entered(device, epoch, previous).await,
            Ok(Upserted::Newer(newer)) => self.take_over(device, newer),
            Ok(Upserted::Updated | Upserted::TextMissing | Upserted::Full) => {}
            Err(error) => {
                self.pending_upserts.add(device);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes an entry; with the text of its registration, if the backend turns out to lack it.
    async fn upsert(&self, mut entry: Entry, json: &Bytes) -> Result<Upserted, BusError> {
        let upsert = |entry| self.backend.upsert(vec![entry], self.registration_bytes);
        let first =
            |upserted: Vec<Upserted>| upserted.into_iter().next().ok_or(BusError::Unavailable);
        if entry.services.is_none() {
            match first(upsert(entry.clone()).await?)? {
                Upserted::TextMissing => entry.services = Some(json.clone()),
                other => return Ok(other),
            }
        }
        first(upsert(entry).await?)
    }

    fn release_registration(&self, org: OrgId, digest: Option<Digest>) {
        if let Some(digest) = digest {
            self.registrations.release((org, digest));
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_runtime::shutdown::Shutdown;
    use uuid::Uuid;

    use super::*;
    use crate::{BusConfig, LocalHub};

    #[tokio::test]
    async fn lookup_removes_an_outdated_cached_entry() {
        let config = BusConfig::local(&LocalHub::default(), "node");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let [here, gone] = ["toy-1", "toy-2"].map(|id| DeviceKey {
            org: OrgId::from_uuid(Uuid::nil()),
            device: id.parse().unwrap(),
        });
        let epoch = bus.claim(&here).await.unwrap().epoch;
        let check = async |device: &DeviceKey, cached: u64, stays: bool| {
            let cached = Presence {
                node: NodeId::from("former"),
                epoch: Epoch(cached),
                digest: None,
            };
            let cache = &bus.0.presence_cache;
            cache.insert(device.clone(), cached);
            bus.find(device).await.unwrap();
            assert_eq!(cache.get(device).is_some(), stays);
        };
        check(&here, epoch.0 - 1, false).await;
        // It was read after this lookup began.
        check(&here, epoch.0 + 1, true).await;
        check(&gone, 1, false).await;
    }
}
