//! The services that devices registered: read from the bus for connected devices, and from the
//! database for others; each registration once per request.
//!
//! A registration of a connected device that cannot be read does not hide the device.

use std::{collections::HashMap, sync::Arc};

use serde_json::value::RawValue;
use switchboard_bus::Presence;
use switchboard_protocol::{id::OrgId, schema::Digest};
use switchboard_store::StoreError;

use super::merge::DeviceEntry;
use crate::Gateway;

/// The registrations read for one request. Devices with the same firmware share one.
pub(super) struct ServicesCache<'a> {
    gateway: &'a Gateway,
    org: OrgId,
    entries: HashMap<Digest, Option<Arc<RawValue>>>,
    /// The size of all entries.
    bytes: usize,
    /// A read from the database has failed: there is no second one.
    failed: bool,
}

impl<'a> ServicesCache<'a> {
    pub(super) fn new(gateway: &'a Gateway, org: OrgId) -> Self {
        Self {
            gateway,
            org,
            entries: HashMap::new(),
            bytes: 0,
            failed: false,
        }
    }

    /// Reads registrations of these devices from the database at once, as many as fit a page.
    pub(super) async fn preload(&mut self, devices: &[DeviceEntry]) -> Result<(), StoreError> {
        let mut digests: Vec<Digest> = Vec::new();
        for device in devices {
            let is_live = live_digest(device).is_some();
            let stored = stored_digest(device).filter(|digest| !digests.contains(digest));
            digests.extend(stored.filter(|_| !is_live));
        }
        let services = self.read(&digests).await?;
        for (digest, services) in digests.into_iter().zip(services) {
            self.insert(digest, services.map(Arc::from));
        }
        Ok(())
    }

    /// The size of the registrations read so far.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, digest: Digest, services: Option<Arc<RawValue>>) {
        self.bytes += services.as_ref().map_or(0, |services| services.get().len());
        self.entries.insert(digest, services);
    }

    /// The services of a device; `None` if it has not registered any.
    ///
    /// # Errors
    /// When those of a device that is not connected cannot be read.
    pub(super) async fn get(
        &mut self,
        device: &DeviceEntry,
    ) -> Result<Option<Arc<RawValue>>, StoreError> {
        if let Some(presence) = &device.live
            && let Some(services) = self.live(presence).await
        {
            return Ok(Some(services));
        }
        let Some(digest) = stored_digest(device) else {
            return Ok(None);
        };
        match self.stored(digest).await {
            Err(error) if device.live.is_some() => {
                tracing::warn!(
                    error = error.report(),
                    "the stored services of a connected device could not be read"
                );
                Ok(None)
            }
            read => read,
        }
    }

    async fn live(&mut self, presence: &Presence) -> Option<Arc<RawValue>> {
        let digest = presence.digest?;
        if let Some(Some(cached)) = self.entries.get(&digest) {
            return Some(Arc::clone(cached));
        }
        let services = match self.gateway.live_services(self.org, presence).await {
            Ok(bytes) => serde_json::from_slice::<Box<RawValue>>(&bytes?).ok(),
            Err(error) => {
                tracing::warn!(%error, "the services of a connected device could not be read");
                None
            }
        };
        let services: Arc<RawValue> = services?.into();
        self.insert(digest, Some(Arc::clone(&services)));
        Some(services)
    }

    async fn stored(&mut self, digest: Digest) -> Result<Option<Arc<RawValue>>, StoreError> {
        if let Some(cached) = self.entries.get(&digest) {
            return Ok(cached.clone());
        }
        let read = self.read(&[digest]).await?;
        let services: Option<Arc<RawValue>> = read.into_iter().next().flatten().map(Arc::from);
        self.insert(digest, services.clone());
        Ok(services)
    }

    async fn read(&mut self, digests: &[Digest]) -> Result<Vec<Option<Box<RawValue>>>, StoreError> {
        if self.failed {
            return Err(StoreError::Unavailable(None));
        }
        let read = self.gateway.store.services(self.org, digests).await;
        self.failed = read.is_err();
        read
    }
}

fn live_digest(device: &DeviceEntry) -> Option<Digest> {
    device.live.as_ref().and_then(|presence| presence.digest)
}

fn stored_digest(device: &DeviceEntry) -> Option<Digest> {
    device.stored.as_ref().and_then(|stored| stored.digest)
}
