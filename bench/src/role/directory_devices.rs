//! A bus node that enters devices into the directory as an edge does, but has no sockets: one by one
//! with their events, or many at once without.

use std::future::pending;

use bytes::Bytes;
use clap::Args;
use switchboard_bus::{Bus, DisconnectReason, Epoch};
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use tokio::sync::OnceCell;

use super::{device_name, fleet::Fleet, start_node, wire_devices::services};

/// Epoch of entries in bulk: older than any connection.
const BULK_EPOCH: Epoch = Epoch(1);

/// Address of the bus and the organisation of the devices.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `redis://…`
    #[arg(long)]
    url: String,
    /// Organisation of the devices
    #[arg(long)]
    org: OrgId,
    /// Enter this many devices at once for each device number
    #[arg(long)]
    batch: Option<u32>,
}

/// Devices of one node.
pub(super) struct DirectoryFleet {
    options: Options,
    /// Starts with the first device, within the runtime.
    bus: OnceCell<Bus>,
    services: (Digest, Bytes),
}

/// A device that is in the directory until it is dropped.
pub(super) struct DirectoryDevice {
    bus: Bus,
    key: DeviceKey,
    epoch: Epoch,
    digest: Digest,
}

impl Drop for DirectoryDevice {
    fn drop(&mut self) {
        let digest = Some(self.digest);
        self.bus.release(
            self.key.clone(),
            self.epoch,
            digest,
            DisconnectReason::Closed,
        );
    }
}

impl DirectoryFleet {
    pub(super) fn new(options: Options) -> Self {
        let json = Bytes::from(services().to_string());
        Self {
            options,
            bus: OnceCell::new(),
            services: (Digest::compute(&json), json),
        }
    }

    async fn bus(&self) -> anyhow::Result<&Bus> {
        let start = || start_node(self.options.url.clone(), "directory");
        self.bus.get_or_try_init(start).await
    }
}

impl Fleet for DirectoryFleet {
    /// Absent if it stands for a batch.
    type Device = Option<DirectoryDevice>;

    async fn dial(&self, index: u32) -> anyhow::Result<Self::Device> {
        let bus = self.bus().await?;
        let org = self.options.org;
        let (digest, json) = &self.services;
        if let Some(batch) = self.options.batch {
            let numbers = index * batch..(index + 1) * batch;
            let devices = numbers.map(|number| device_name(number).parse());
            let devices: Vec<DeviceId> = devices.collect::<Result<_, _>>()?;
            bus.enter_many(org, devices, BULK_EPOCH, (*digest, json))
                .await?;
            return Ok(None);
        }
        let key = DeviceKey {
            org,
            device: device_name(index).parse()?,
        };
        let epoch = bus.claim(&key).await?.epoch;
        let device = DirectoryDevice {
            bus: bus.clone(),
            key,
            epoch,
            digest: *digest,
        };
        bus.register(&device.key, epoch, None, (*digest, json))
            .await?;
        Ok(Some(device))
    }

    async fn serve(device: Self::Device) -> anyhow::Result<()> {
        match device {
            Some(_entered) => pending().await,
            None => Ok(()),
        }
    }
}
