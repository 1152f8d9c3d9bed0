//! Reads and updates the directory.

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::clock::unix_now_ms;
use uuid::Uuid;

use crate::{
    backend::{Entry, Presence, Release},
    bus::{Bus, Node},
    error::BusError,
    events::{DeviceEvent, DisconnectReason},
    node::{Epoch, NodeId},
    transport::Message,
};

/// # The directory
///
/// The directory stores for each connected device the node that owns its connection, the epoch of
/// the connection, and the digest of the registered services.
///
/// ```text
///            claim                register
///   absent ────────► connected ────────────► registered
///      ▲                 │                       │
///      ├──── release ────┴───────────────────────┤
///      └──── lease of the node expired ──────────┘
/// ```
///
/// - [`claim`](Self::claim) enters a connection with a new epoch from the directory's clock. The
///   newest connection wins: the former owner node is notified, and closes its connection.
/// - A node holds a lease of 9 s, which it renews every 3 s. Entries of a node without a lease are
///   not returned by lookups, and other nodes remove them.
/// - A node caches the entries of devices that it calls. A stale entry costs a call one more
///   attempt: the node it names answers that the connection is not there.
/// - After a reconnect, when its own lease has expired, and every 5 min a node compares its
///   entries with its connections, and repairs the difference (`directory::resync`).
///
/// Invariant: an older connection never replaces a newer one.
impl Bus {
    /// The live connection of a device, if it has one.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn find(&self, device: &DeviceKey) -> Result<Option<Presence>, BusError> {
        let found = self
            .0
            .backend
            .find(device.org, std::slice::from_ref(&device.device))
            .await?;
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

    /// The live connections of several devices of an organisation, in the order of `devices`.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn find_many(
        &self,
        org: OrgId,
        devices: &[DeviceId],
    ) -> Result<Vec<Option<Presence>>, BusError> {
        self.0.backend.find(org, devices).await
    }

    /// An organisation's live devices in byte order of their ids, strictly after `after`.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn list(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(DeviceId, Presence)>, BusError> {
        self.0.backend.list(org, after, limit).await
    }

    /// The services object that a live device registered, as it was sent.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn services(&self, presence: &Presence) -> Result<Option<Bytes>, BusError> {
        self.0.backend.services(presence).await
    }

    /// Enters a new connection of a device. The former owner node is notified.
    ///
    /// # Errors
    /// When the bus is not reachable: callers could not find the device.
    pub async fn claim(&self, device: &DeviceKey) -> Result<Epoch, BusError> {
        let claim = self.0.backend.claim(device).await.inspect_err(|_| {
            // It may have been executed: then there is an entry without a connection.
            self.0.compare_entries.notify_one();
        })?;
        let epoch = claim.epoch;
        if let Some(previous) = claim.previous {
            self.0.announce_takeover(device, epoch, &previous.node);
        }
        self.0.record_event(DeviceEvent::Connected {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
        });
        Ok(epoch)
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
    /// When the bus is not reachable, or refuses. The registration is entered later then.
    pub async fn register(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        previous: Option<Digest>,
        (digest, json): (Digest, &Bytes),
    ) -> Result<(), BusError> {
        let node = &self.0;
        let is_new = node.registrations.acquire(digest, json);
        let services = is_new.then(|| json.clone());
        node.release_registration(previous);
        let has_text = node.registrations.should_publish(device.org, digest);
        node.record_event(DeviceEvent::Registered {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            digest,
            json: has_text.then(|| json.clone()),
        });
        let entry = Entry {
            device: device.clone(),
            epoch,
            digest: Some(digest),
            services,
        };
        let upserted = node.backend.upsert(vec![entry]).await;
        let newer = upserted.inspect_err(|_| node.pending_upserts.add(device))?;
        if let Some(Some(newer)) = newer.first() {
            node.take_over(device, *newer);
        }
        Ok(())
    }

    /// Records an EVENT frame of a device, a `{"name", "data"}` object. Does not wait.
    pub fn record_custom_event(&self, device: DeviceKey, epoch: Epoch, json: Bytes) {
        self.0.record_event(DeviceEvent::Custom {
            device,
            epoch,
            at_ms: unix_now_ms(),
            id: Uuid::now_v7(),
            json,
        });
    }

    /// Removes a connection's entry, unless a newer one is stored. Does not wait: while the bus is
    /// not reachable, the entry is removed later.
    pub fn release(
        &self,
        device: DeviceKey,
        epoch: Epoch,
        digest: Option<Digest>,
        reason: DisconnectReason,
    ) {
        let node = &self.0;
        node.release_registration(digest);
        node.record_event(DeviceEvent::Disconnected {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            reason,
        });
        node.releases.push(Release::Entry(device, epoch));
    }
}

impl Node {
    /// Queues an event for the control plane. Events that are dropped for it are counted.
    pub(crate) fn record_event(&self, event: DeviceEvent) {
        let dropped = self.events.push(event);
        self.metrics.facts_dropped.inc_by(dropped as u64);
    }

    fn release_registration(&self, digest: Option<Digest>) {
        let unused = digest.and_then(|digest| self.registrations.release(digest));
        if let Some(digest) = unused {
            self.releases.push(Release::Services(digest));
        }
    }

    fn announce_takeover(&self, device: &DeviceKey, epoch: Epoch, previous: &NodeId) {
        if *previous == self.id {
            self.take_over(device, epoch);
            return;
        }
        let takeover = Message::Takeover {
            org: device.org,
            device: device.device.as_str().into(),
            epoch,
        };
        self.outbox.send_or_drop(previous, &takeover);
    }

    /// A newer connection of the device exists.
    pub(crate) fn take_over(&self, device: &DeviceKey, epoch: Epoch) {
        // The message may be a repeated one, behind a newer one.
        let cached = self.takeover_cache.get(device);
        if cached.is_none_or(|cached| cached < epoch) {
            self.takeover_cache.insert(device.clone(), epoch);
        }
        if let Some(owner) = self.owner() {
            owner.take_over(device.org, device.device.as_str(), epoch);
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
    async fn repeated_takeover_does_not_hide_a_newer_one() {
        let config = BusConfig::local(&LocalHub::default(), "node");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let device = DeviceKey {
            org: OrgId::from_uuid(Uuid::nil()),
            device: "toy-1".parse().unwrap(),
        };
        for epoch in [2, 5, 3] {
            bus.0.take_over(&device, Epoch(epoch));
        }
        assert!(bus.is_superseded(&device, Epoch(4)));
        assert!(!bus.is_superseded(&device, Epoch(5)));
    }
}
