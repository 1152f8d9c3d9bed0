//! The services that connected devices registered, read once per request and registration.
//!
//! A registration that cannot be read does not hide its device.

use std::collections::HashMap;

use serde_json::value::RawValue;
use switchboard_bus::{Bus, Presence};
use switchboard_protocol::schema::Digest;

/// The registrations read for one request. Devices with the same firmware share one.
pub(super) struct ServicesCache<'a> {
    bus: &'a Bus,
    entries: HashMap<Digest, Option<Box<RawValue>>>,
}

impl<'a> ServicesCache<'a> {
    pub(super) fn new(bus: &'a Bus) -> Self {
        Self {
            bus,
            entries: HashMap::new(),
        }
    }

    /// The services of a connected device. `None` if it has not registered any, or if they cannot
    /// be read.
    pub(super) async fn get(&mut self, presence: Option<&Presence>) -> Option<Box<RawValue>> {
        let presence = presence?;
        let digest = presence.digest?;
        if let Some(cached) = self.entries.get(&digest) {
            return cached.clone();
        }
        let services = self.fetch(presence).await;
        self.entries.insert(digest, services.clone());
        services
    }

    async fn fetch(&self, presence: &Presence) -> Option<Box<RawValue>> {
        match self.bus.services(presence).await {
            Ok(bytes) => serde_json::from_slice(&bytes?).ok(),
            Err(error) => {
                tracing::warn!(%error, "the services of a connected device could not be read");
                None
            }
        }
    }
}
