//! Releases a device's place on this edge however its connection's task ends.

use std::sync::Arc;

use switchboard_bus::DisconnectReason;
use switchboard_protocol::outcome::Outcome;

use crate::{edge::Edge, handle::ConnectionHandle};

/// The place of one live connection among the connections and in the directory.
///
/// Invariant: a device that can be found has a task that serves its connection. Dropping the guard,
/// also by a panic, removes the device and ends its calls and turns.
pub(super) struct ConnectionGuard<'a> {
    edge: &'a Arc<Edge>,
    handle: Arc<ConnectionHandle>,
    reason: DisconnectReason,
}

impl<'a> ConnectionGuard<'a> {
    pub(super) const fn new(edge: &'a Arc<Edge>, handle: Arc<ConnectionHandle>) -> Self {
        Self {
            edge,
            handle,
            // A task that ends without another reason has panicked.
            reason: DisconnectReason::Failed,
        }
    }

    pub(super) const fn handle(&self) -> &Arc<ConnectionHandle> {
        &self.handle
    }

    pub(super) fn release(mut self, reason: DisconnectReason) {
        self.reason = reason;
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        let (edge, handle, reason) = (self.edge, &self.handle, self.reason);
        let unfinished = handle.close_calls();
        if handle.close_turns(edge) {
            edge.bus.discard_turns(&handle.key, handle.epoch);
        }
        edge.connections.remove(handle);
        // The map may keep the handle for a while.
        drop(handle.take_slot());
        let registration = handle.take_registration();
        let digest = registration.map(|registration| registration.digest);
        if handle.is_entered() || handle.has_left() {
            edge.bus
                .release(handle.key.clone(), handle.epoch, digest, reason);
        }
        edge.metrics.left.inc(reason);
        for call in unfinished {
            if call.written {
                let detail = "The connection closed before the device sent a result.";
                edge.fail_call(&call, Outcome::Lost, detail);
            } else {
                // The device did not receive it, so its next node may still deliver it.
                edge.bus.answer_not_connected(&call.reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use switchboard_bus::{Bus, BusConfig, Epoch, LocalHub, TokenCheck};
    use switchboard_protocol::id::{DeviceKey, OrgId, TokenId};
    use switchboard_runtime::{budget::Budgets, shutdown::Shutdown};
    use uuid::Uuid;

    use super::*;
    use crate::{config::Config, handle::Identity, metrics::Metrics};

    #[tokio::test]
    async fn guard_dropped_by_a_panic_releases_the_device() {
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
        let budgets = Budgets::new(&registry).unwrap();
        let edge = Edge::new(
            Config::default(),
            bus,
            metrics,
            switchboard_speech::Speech::default(),
            &budgets,
            &shutdown,
        );
        let edge = Arc::new(edge);
        let identity = Identity {
            key: key.clone(),
            token: TokenCheck {
                id: TokenId::from_uuid(Uuid::nil()),
                org: key.org,
                key: "0123456789abcdef".parse().unwrap(),
                expires_at: u64::MAX,
            },
        };
        let epoch = Epoch(presence.epoch.0);
        let handle = Arc::new(ConnectionHandle::new(identity, epoch, 0));
        handle.set_entered();
        edge.connections.enter(&handle);
        let task_edge = Arc::clone(&edge);
        let task = shutdown.spawn(async move {
            let _guard = ConnectionGuard::new(&task_edge, handle);
            panic!("while serving");
        });
        assert!(task.await.is_err());
        assert_eq!(edge.connections.len(), 0);
        assert_eq!(edge.metrics.left.get(DisconnectReason::Failed), 1);
        while edge.bus.find(&key).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        shutdown.stop();
    }
}
