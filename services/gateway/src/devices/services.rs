//! The services that devices registered, or their names: read from the bus for connected devices, and from the
//! database for others; each registration once per request.
//!
//! A registration of a connected device that cannot be read does not hide the device.
//!
//! Invariant: services beyond the restrictions of the caller are left out.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde::de::IgnoredAny;
use serde_json::value::{RawValue, to_raw_value};
use switchboard_bus::Presence;
use switchboard_identity::Caller;
use switchboard_protocol::schema::Digest;
use switchboard_store::StoreError;

use super::merge::DeviceEntry;
use crate::Gateway;

/// The registrations read for one request. Devices with the same firmware share one.
pub(super) struct ServicesCache<'a> {
    gateway: &'a Gateway,
    caller: &'a Caller,
    entries: HashMap<Digest, Option<Arc<RawValue>>>,
    names: HashMap<Digest, Arc<Vec<String>>>,
    /// The size of all entries, and of the registrations of which only the names are kept.
    bytes: usize,
    /// A read from the database has failed: there is no second one.
    failed: bool,
    /// The registration of a connected device could not be read.
    has_unread: bool,
}

impl<'a> ServicesCache<'a> {
    pub(super) fn new(gateway: &'a Gateway, caller: &'a Caller) -> Self {
        Self {
            gateway,
            caller,
            entries: HashMap::new(),
            names: HashMap::new(),
            bytes: 0,
            failed: false,
            has_unread: false,
        }
    }

    /// Reads registrations of these devices from the database at once, as many as fit a page.
    pub(super) async fn preload(&mut self, devices: &[DeviceEntry]) -> Result<(), StoreError> {
        let digests = self.unread_digests(devices);
        let services = self.read(&digests).await?;
        for (digest, services) in digests.into_iter().zip(services) {
            self.insert(digest, services.map(Arc::from));
        }
        Ok(())
    }

    /// Like [`Self::preload`], only the names of the services.
    pub(super) async fn preload_names(
        &mut self,
        devices: &[DeviceEntry],
    ) -> Result<(), StoreError> {
        let digests = self.unread_digests(devices);
        self.read_names(&digests).await
    }

    /// The registrations in the database that devices of a page have, which are not read yet.
    fn unread_digests(&self, devices: &[DeviceEntry]) -> Vec<Digest> {
        let mut seen = HashSet::new();
        let stored = devices
            .iter()
            .filter(|device| live_digest(device).is_none())
            .filter_map(stored_digest);
        stored
            .filter(|digest| {
                let is_read = self.entries.contains_key(digest) || self.names.contains_key(digest);
                !is_read && seen.insert(*digest)
            })
            .collect()
    }

    /// The caller, whose restrictions hold.
    pub(super) const fn caller(&self) -> &'a Caller {
        self.caller
    }

    /// The size of what was read so far.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the registration of a connected device could not be read.
    pub(super) const fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// The names of the services of a device, sorted.
    ///
    /// # Errors
    /// When those of a device that is not connected cannot be read.
    pub(super) async fn names(
        &mut self,
        device: &DeviceEntry,
    ) -> Result<Arc<Vec<String>>, StoreError> {
        if let Some(digest) = live_digest(device)
            && let Some(names) = self.names.get(&digest)
        {
            return Ok(Arc::clone(names));
        }
        if let Some(presence) = &device.live
            && let Some(digest) = presence.digest
            && let Some(services) = self.live(presence).await
        {
            let names = Arc::new(names_of(&services));
            self.names.insert(digest, Arc::clone(&names));
            return Ok(names);
        }
        let Some(digest) = stored_digest(device) else {
            return Ok(Arc::default());
        };
        if !self.names.contains_key(&digest) {
            let read = self.read_names(&[digest]).await;
            if let (Err(error), Some(_)) = (&read, &device.live) {
                tracing::warn!(
                    error = error.report(),
                    "the stored services of a connected device could not be read"
                );
                self.has_unread = true;
                return Ok(Arc::default());
            }
            read?;
        }
        Ok(self.names.get(&digest).map(Arc::clone).unwrap_or_default())
    }

    async fn read_names(&mut self, digests: &[Digest]) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Unavailable(None));
        }
        let read = self
            .gateway
            .store
            .service_names(self.caller.org, digests)
            .await;
        self.failed = read.is_err();
        for (digest, names) in digests.iter().zip(read?) {
            let mut names = names.unwrap_or_default();
            names.retain(|name| self.caller.check_service(name).is_ok());
            self.bytes += names.iter().map(String::len).sum::<usize>();
            self.names.insert(*digest, Arc::new(names));
        }
        Ok(())
    }

    /// Keeps what the caller reaches of a registration.
    fn insert(&mut self, digest: Digest, services: Option<Arc<RawValue>>) -> Option<Arc<RawValue>> {
        let services = services.and_then(|services| reachable(self.caller, services));
        self.bytes += services.as_ref().map_or(0, |services| services.get().len());
        self.entries.insert(digest, services.clone());
        services
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
        let services = match self.gateway.live_services(self.caller.org, presence).await {
            Ok(bytes) => serde_json::from_slice::<Box<RawValue>>(&bytes?).ok(),
            Err(error) => {
                tracing::warn!(%error, "the services of a connected device could not be read");
                self.has_unread = true;
                None
            }
        };
        self.insert(digest, Some(services?.into()))
    }

    async fn stored(&mut self, digest: Digest) -> Result<Option<Arc<RawValue>>, StoreError> {
        if let Some(cached) = self.entries.get(&digest) {
            return Ok(cached.clone());
        }
        let read = self.read(&[digest]).await?;
        let services: Option<Arc<RawValue>> = read.into_iter().next().flatten().map(Arc::from);
        Ok(self.insert(digest, services))
    }

    async fn read(&mut self, digests: &[Digest]) -> Result<Vec<Option<Box<RawValue>>>, StoreError> {
        if self.failed {
            return Err(StoreError::Unavailable(None));
        }
        let read = self.gateway.store.services(self.caller.org, digests).await;
        self.failed = read.is_err();
        read
    }
}

/// The names of the members of a services object, sorted.
fn names_of(services: &RawValue) -> Vec<String> {
    let members: Result<BTreeMap<String, IgnoredAny>, _> = serde_json::from_str(services.get());
    members.map_or_else(|_| Vec::new(), |members| members.into_keys().collect())
}

/// The services that the caller reaches, each byte for byte. `None` for what is no registration.
fn reachable(caller: &Caller, services: Arc<RawValue>) -> Option<Arc<RawValue>> {
    if caller.restrictions.is_none() {
        return Some(services);
    }
    let registered = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(services.get());
    let mut registered = registered.ok()?;
    registered.retain(|service, _| caller.check_service(service).is_ok());
    to_raw_value(&registered).ok().map(Arc::from)
}

fn live_digest(device: &DeviceEntry) -> Option<Digest> {
    device.live.as_ref().and_then(|presence| presence.digest)
}

fn stored_digest(device: &DeviceEntry) -> Option<Digest> {
    device.stored.as_ref().and_then(|stored| stored.digest)
}
