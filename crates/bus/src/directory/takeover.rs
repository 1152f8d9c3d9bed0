//! Notifies nodes of a newer connection of a device.

use switchboard_protocol::id::DeviceKey;

use crate::{
    bus::Node,
    node::{Epoch, NodeId},
    transport::{ConnectionMessage, Message},
};

impl Node {
    pub(crate) async fn announce_takeover(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        previous: &NodeId,
    ) {
        if *previous == self.id {
            self.take_over(device, epoch);
            return;
        }
        self.outbox.send_or_drop(previous, &takeover(device, epoch));
        // The former owner may be gone, and cannot inform callers that the device has moved.
        self.broadcast_takeover(device, epoch).await;
    }

    /// Notifies all nodes of the takeover of a connection whose node is not known.
    pub(crate) async fn broadcast_takeover(&self, device: &DeviceKey, epoch: Epoch) {
        let takeover = takeover(device, epoch);
        if self.broadcast(&takeover).await.is_err() {
            self.metrics.dropped.inc();
        }
    }

    /// A newer connection of the device exists.
    pub(crate) fn take_over(&self, device: &DeviceKey, epoch: Epoch) {
        self.presence_cache.remove_older(device, epoch);
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

fn takeover(device: &DeviceKey, epoch: Epoch) -> Message {
    Message::Takeover(ConnectionMessage {
        org: device.org,
        device: device.device.as_str().into(),
        epoch,
    })
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_protocol::id::OrgId;
    use switchboard_runtime::shutdown::Shutdown;
    use uuid::Uuid;

    use super::*;
    use crate::{Bus, BusConfig, LocalHub};

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
