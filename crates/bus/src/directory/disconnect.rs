//! Ends the connection of a device on whichever node owns it.

use std::time::Duration;

use switchboard_protocol::id::DeviceKey;
use tokio::time::{sleep, timeout};

use crate::{
    backend::{LEASE, Presence},
    bus::{Bus, Node},
    error::BusError,
    transport::{ConnectionMessage, Message},
};

/// How long the directory may have the entry after the owner node was asked. Longer than the lease of a
/// node that has died.
const DISCONNECT_TIMEOUT: Duration = LEASE.saturating_add(Duration::from_secs(1));
/// How often the directory is read. The interval doubles each time.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(200);

impl Bus {
    /// Ends the live connection of a device, and waits until the directory no longer has it. Returns
    /// false when the device has none. It may connect again at once.
    ///
    /// # Errors
    /// When the bus is not reachable. [`BusError::Timeout`] when the directory still has the connection
    /// after 10 s: its node is of a release before this request, or stands still.
    pub async fn disconnect(&self, device: &DeviceKey) -> Result<bool, BusError> {
        let Some(live) = self.find(device).await? else {
            return Ok(false);
        };
        let ended = async {
            let mut poll_interval = MIN_POLL_INTERVAL;
            loop {
                // Sent each time, because it may be lost. A newer connection has another epoch.
                self.0.send_disconnect(device, &live);
                sleep(poll_interval).await;
                poll_interval = (poll_interval * 2).min(MAX_POLL_INTERVAL);
                let current = self.find(device).await?;
                if current.is_none_or(|current| current.epoch != live.epoch) {
                    return Ok(true);
                }
            }
        };
        let ended = timeout(DISCONNECT_TIMEOUT, ended).await;
        ended.map_err(|_| BusError::Timeout(DISCONNECT_TIMEOUT))?
    }
}

impl Node {
    fn send_disconnect(&self, device: &DeviceKey, live: &Presence) {
        let (org, epoch, id) = (device.org, live.epoch, device.device.as_str());
        if live.node == self.id {
            if let Some(owner) = self.owner() {
                owner.disconnect(org, id, epoch);
            }
            return;
        }
        let device = id.into();
        let connection = ConnectionMessage { org, device, epoch };
        let disconnect = Message::Disconnect(connection);
        self.outbox.send_or_drop(&live.node, &disconnect);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_protocol::id::OrgId;
    use switchboard_runtime::shutdown::Shutdown;
    use uuid::Uuid;

    use super::*;
    use crate::{BusConfig, LocalHub};

    #[tokio::test(start_paused = true)]
    async fn disconnect_that_the_owner_skips_times_out() {
        let (hub, shutdown) = (LocalHub::default(), Shutdown::new());
        let start = |name| {
            let config = BusConfig::local(&hub, name);
            Bus::start(config, &Registry::new(), &shutdown).unwrap()
        };
        let (edge, gateway) = (start("edge"), start("gateway"));
        let device = DeviceKey {
            org: OrgId::from_uuid(Uuid::nil()),
            device: "toy-1".parse().unwrap(),
        };
        assert!(!gateway.disconnect(&device).await.unwrap());
        edge.claim(&device).await.unwrap();
        let skipped = gateway.disconnect(&device).await;
        assert!(matches!(skipped, Err(BusError::Timeout(_))), "{skipped:?}");
        shutdown.stop();
    }
}
