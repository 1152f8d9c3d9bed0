//! A device's place in the table and in the directory, given back however its task ends.
//! Never: a device that can be found and whose connection nobody serves.

use std::sync::Arc;

use switchboard_bus::LeftReason;
use switchboard_protocol::outcome::Outcome;

use crate::{edge::Edge, link::Link};

/// The place of one live connection.
pub(super) struct Seat<'a> {
    edge: &'a Arc<Edge>,
    link: Arc<Link>,
    reason: LeftReason,
}

impl<'a> Seat<'a> {
    /// Of a device that was taken in.
    pub(super) const fn take(edge: &'a Arc<Edge>, link: Arc<Link>) -> Self {
        Self {
            edge,
            link,
            // Without a word of the task itself, it panicked.
            reason: LeftReason::Failed,
        }
    }

    pub(super) const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Gives it back, for this reason.
    pub(super) fn give_up(mut self, reason: LeftReason) {
        self.reason = reason;
    }
}

impl Drop for Seat<'_> {
    /// Takes the device out of the table and the directory, and settles the calls it leaves.
    fn drop(&mut self) {
        let (edge, link, reason) = (self.edge, &self.link, self.reason);
        let unsettled = link.close();
        let is_remembered = link.fall_silent();
        edge.count_turns(&link.take_ended());
        if is_remembered {
            edge.bus.forget_turns(&link.key, link.epoch);
        }
        edge.table.leave(link);
        let digest = link.registration().map(|registration| registration.digest);
        edge.bus
            .release(link.key.clone(), link.epoch, digest, reason);
        edge.metrics.left.inc(reason);
        for call in unsettled {
            if call.dispatched {
                let detail = "The connection ended before a result came.";
                edge.give_up(&call, Outcome::Lost, detail);
            } else {
                // Never written, so another node may still have the device do it.
                edge.bus.not_here(&call.reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use switchboard_bus::{Bus, BusConfig, Epoch, LocalHub};
    use switchboard_protocol::id::{DeviceKey, OrgId, TokenId};
    use switchboard_runtime::shutdown::Shutdown;
    use uuid::Uuid;

    use super::*;
    use crate::{config::Config, link::Identity, metrics::Metrics};

    #[tokio::test]
    async fn a_task_that_panics_gives_its_devices_seat_back() {
        let (shutdown, registry) = (Shutdown::new(), prometheus::Registry::new());
        let bus = BusConfig::local(&LocalHub::default(), "edge");
        let bus = Bus::start(bus, &registry, &shutdown).unwrap();
        let key = DeviceKey {
            org: OrgId::from_uuid(Uuid::nil()),
            device: "toy".parse().unwrap(),
        };
        bus.claim(&key).await.unwrap();
        let presence = bus.find(&key).await.unwrap().unwrap();
        let metrics = Metrics::new(&registry).unwrap();
        let edge = Arc::new(Edge::new(Config::default(), bus, metrics, &shutdown));
        let identity = Identity {
            key: key.clone(),
            token: TokenId::from_uuid(Uuid::nil()),
            token_expires_at_s: u64::MAX,
        };
        let link = Arc::new(Link::new(identity, Epoch(presence.epoch.0), 0));
        edge.table.enter(&link);
        let serving = Arc::clone(&edge);
        let task = shutdown.spawn(async move {
            let _seat = Seat::take(&serving, link);
            panic!("while serving");
        });
        assert!(task.await.is_err());
        assert_eq!(edge.table.len(), 0);
        assert_eq!(edge.metrics.left.get(LeftReason::Failed), 1);
        while edge.bus.find(&key).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        shutdown.stop();
    }
}
