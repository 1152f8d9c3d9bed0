//! The services that live devices registered, asked for once per set.
//! Never: an error that hides a device; without its set it is shown with what is on record.

use std::collections::HashMap;

use serde_json::value::RawValue;
use switchboard_bus::{Bus, Presence};
use switchboard_protocol::schema::Digest;

/// The sets seen while one request is answered; a page of one firmware's devices has one.
pub(super) struct Services<'a> {
    bus: &'a Bus,
    seen: HashMap<Digest, Option<Box<RawValue>>>,
}

impl<'a> Services<'a> {
    pub(super) fn new(bus: &'a Bus) -> Self {
        Self {
            bus,
            seen: HashMap::new(),
        }
    }

    /// The set of a live device; none when it has not registered or the set cannot be had.
    pub(super) async fn of(&mut self, presence: Option<&Presence>) -> Option<Box<RawValue>> {
        let presence = presence?;
        let digest = presence.digest?;
        if let Some(known) = self.seen.get(&digest) {
            return known.clone();
        }
        let found = self.ask(presence).await;
        self.seen.insert(digest, found.clone());
        found
    }

    async fn ask(&self, presence: &Presence) -> Option<Box<RawValue>> {
        match self.bus.services(presence).await {
            Ok(bytes) => serde_json::from_slice(&bytes?).ok(),
            Err(error) => {
                tracing::warn!(%error, "the services of a live device could not be had");
                None
            }
        }
    }
}
