//! Who holds which device: entered, found, listed, taken over, taken out.
//! Never: an older connection put in the place of a newer one.

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
    envelope::Envelope,
    error::BusError,
    fact::{Fact, LeftReason},
    node::{Epoch, NodeId},
};

impl Bus {
    /// The live connection of a device, if it has one.
    ///
    /// # Errors
    /// When the directory does not answer.
    pub async fn find(&self, device: &DeviceKey) -> Result<Option<Presence>, BusError> {
        let found = self
            .0
            .backend
            .find(device.org, std::slice::from_ref(&device.device))
            .await?;
        Ok(found.into_iter().next().flatten())
    }

    /// The same as far as this node remembers from calls, and asked for only when it remembers
    /// nothing: what is remembered may be out of date.
    ///
    /// # Errors
    /// When the directory does not answer.
    pub async fn recall(&self, device: &DeviceKey) -> Result<Option<Presence>, BusError> {
        match self.0.remembered.get(device) {
            Some(presence) => Ok(Some(presence)),
            None => self.find(device).await,
        }
    }

    /// The live connections of several devices of an organisation, in the order asked.
    ///
    /// # Errors
    /// When the directory does not answer.
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
    /// When the directory does not answer.
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
    /// When the directory does not answer.
    pub async fn services(&self, presence: &Presence) -> Result<Option<Bytes>, BusError> {
        self.0.backend.services(presence).await
    }

    /// Enters a new connection of a device; the newest wins, and the former holder is told.
    ///
    /// # Errors
    /// When the directory does not answer: nobody could find the device.
    pub async fn claim(&self, device: &DeviceKey) -> Result<Epoch, BusError> {
        let claimed = self.0.backend.claim(device).await.inspect_err(|_| {
            // It may have been executed all the same: an entry without a connection.
            self.0.reconcile.notify_one();
        })?;
        let epoch = claimed.epoch;
        if let Some(former) = claimed.former {
            self.0.announce_takeover(device, epoch, &former.node);
        }
        self.0.tell(Fact::Connected {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
        });
        Ok(epoch)
    }

    /// Whether a newer connection of the device was announced to this node lately: then the one
    /// with this epoch, just taken in, must close.
    #[must_use]
    pub fn is_superseded(&self, device: &DeviceKey, epoch: Epoch) -> bool {
        let newer = self.0.taken_over.get(device);
        newer.is_some_and(|newer| newer > epoch)
    }

    /// Enters what a device registered, in place of what it registered before (`former`).
    ///
    /// # Errors
    /// When the directory does not answer, or refuses; the registration is entered when it does again.
    pub async fn announce(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        former: Option<Digest>,
        (digest, json): (Digest, &Bytes),
    ) -> Result<(), BusError> {
        let node = &self.0;
        let shelve = node.shelf.take_up(digest, json).then(|| json.clone());
        node.put_down(former);
        node.tell(Fact::Registered {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            digest,
            json: node.shelf.tell(device.org, digest).then(|| json.clone()),
        });
        let entry = Entry {
            device: device.clone(),
            epoch,
            digest: Some(digest),
            shelve,
        };
        let entered = node.backend.enter(vec![entry]).await;
        let newer = entered.inspect_err(|_| node.unentered.add(device))?;
        if let Some(Some(newer)) = newer.first() {
            node.take_over(device, *newer);
        }
        Ok(())
    }

    /// Puts on record what a device said unasked, a `{"name", "data"}` object. Does not wait.
    pub fn tell_event(&self, device: DeviceKey, epoch: Epoch, json: Bytes) {
        self.0.tell(Fact::Event {
            device,
            epoch,
            at_ms: unix_now_ms(),
            id: Uuid::now_v7(),
            json,
        });
    }

    /// Takes a connection out of the directory if it still stands there. Does not wait; while
    /// the bus is away it is done later.
    pub fn release(
        &self,
        device: DeviceKey,
        epoch: Epoch,
        digest: Option<Digest>,
        reason: LeftReason,
    ) {
        let node = &self.0;
        node.put_down(digest);
        node.tell(Fact::Left {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            reason,
        });
        node.releases.push(Release::Entry(device, epoch));
    }
}

impl Node {
    /// Adds to the record. What gives way for it is counted.
    pub(crate) fn tell(&self, fact: Fact) {
        let dropped = self.facts.push(fact);
        self.metrics.facts_dropped.inc_by(dropped as u64);
    }

    /// One connection fewer uses these services.
    fn put_down(&self, digest: Option<Digest>) {
        let last = digest.and_then(|digest| self.shelf.put_down(digest));
        if let Some(digest) = last {
            self.releases.push(Release::Services(digest));
        }
    }

    fn announce_takeover(&self, device: &DeviceKey, epoch: Epoch, former: &NodeId) {
        if *former == self.id {
            self.take_over(device, epoch);
            return;
        }
        let device_id = device.device.as_str().into();
        let takeover = Envelope::Takeover {
            org: device.org,
            device: device_id,
            epoch,
        };
        self.post(former, &takeover);
    }

    /// A newer connection of the device exists.
    pub(crate) fn take_over(&self, device: &DeviceKey, epoch: Epoch) {
        // It may be one that is told again, after a newer one.
        if self
            .taken_over
            .get(device)
            .is_none_or(|known| known < epoch)
        {
            self.taken_over.insert(device.clone(), epoch);
        }
        if let Some(host) = self.host() {
            host.takeover(device.org, device.device.as_str(), epoch);
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
    async fn a_takeover_that_is_told_again_hides_no_newer_one() {
        let config = BusConfig::local(&LocalHub::default(), "node");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let device = DeviceKey {
            org: OrgId::from_uuid(Uuid::nil()),
            device: "toy-1".parse().unwrap(),
        };
        for told in [2, 5, 3] {
            bus.0.take_over(&device, Epoch(told));
        }
        assert!(bus.is_superseded(&device, Epoch(4)));
        assert!(!bus.is_superseded(&device, Epoch(5)));
    }
}
