//! Looks devices up in the directory, without a cache, and calls none.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use clap::Args;
use switchboard_bus::Bus;
use switchboard_protocol::id::{DeviceKey, OrgId};

use super::{
    closed_loop::{Caller, scattered_device},
    device_name, start_node,
};

/// Address of the bus and the devices to look up.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `redis://…`
    #[arg(long)]
    url: String,
    /// Organisation of the devices
    #[arg(long)]
    org: OrgId,
    /// Number of devices to look up, starting with device 0
    #[arg(long)]
    devices: u32,
}

/// A node that reads the directory.
pub(super) struct DirectoryCaller {
    bus: Bus,
    org: OrgId,
    devices: u32,
    sent: AtomicU64,
}

impl DirectoryCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        Ok(Self {
            bus: start_node(options.url, "reader").await?,
            org: options.org,
            devices: options.devices,
            sent: AtomicU64::new(0),
        })
    }
}

impl Caller for DirectoryCaller {
    async fn call(&self, _worker: usize, _sequence: u64) -> anyhow::Result<()> {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        let device = scattered_device(sent, self.devices);
        let key = DeviceKey {
            org: self.org,
            device: device_name(device).parse()?,
        };
        let found = self.bus.find(&key).await?;
        ensure!(found.is_some(), "{} is not in the directory", key.device);
        Ok(())
    }
}
