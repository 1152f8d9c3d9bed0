//! A caller node. It calls devices over the bus in the same way as a gateway, but without HTTP.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::Args;
use switchboard_bus::{Bus, BusError, Call};
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
};
use uuid::Uuid;

use super::{
    PAYLOAD_BYTES,
    closed_loop::{Caller, RESPONSE_TIMEOUT, scattered_device, select_device},
    device_name, organisation, start_node,
    wire_devices::signing_key,
};
use crate::reply::Undelivered;

/// Address of the bus and the devices to call.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `redis://…`
    #[arg(long)]
    url: String,
    /// Organisation of the devices
    #[arg(long)]
    org: OrgId,
    /// Number of devices to call in turn, starting with device 0
    #[arg(long)]
    devices: u32,
    /// Private key whose public key this node publishes, as 64 hexadecimal digits
    #[arg(long)]
    seed: String,
    /// Milliseconds that a worker waits before each call
    #[arg(long, default_value_t = 0)]
    pause_ms: u64,
    /// Number of organisations that the devices belong to in turn
    #[arg(long, default_value_t = 1)]
    organisations: u32,
    /// Call all devices equally often, in no order
    #[arg(long)]
    scattered: bool,
}

/// A node without devices that calls those of other nodes.
pub(super) struct BusCaller {
    bus: Bus,
    devices: Vec<DeviceKey>,
    params: Bytes,
    pause: Duration,
    /// The number of calls, if they are scattered over all devices.
    sent: Option<AtomicU64>,
}

impl BusCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let bus = start_node(options.url, "caller").await?;
        let key = signing_key(&options.seed)?.verifying_key();
        bus.publish_keys(vec![key], Vec::new()).await?;
        let devices = (0..options.devices)
            .map(|index| {
                let device = device_name(index).parse().context("invalid device name")?;
                Ok(DeviceKey {
                    org: organisation(options.org, index, options.organisations),
                    device,
                })
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            bus,
            devices,
            params: params().into(),
            pause: Duration::from_millis(options.pause_ms),
            sent: options.scattered.then(AtomicU64::default),
        })
    }
}

impl Caller for BusCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        let devices = u32::try_from(self.devices.len())?;
        let device = match &self.sent {
            Some(sent) => scattered_device(sent.fetch_add(1, Ordering::Relaxed), devices),
            None => select_device(worker, sequence, devices),
        };
        let call = Call {
            device: self.devices[device as usize].clone(),
            id: CallId::from_uuid(Uuid::now_v7()),
            service: "echo".into(),
            params: self.params.clone(),
            timeout: RESPONSE_TIMEOUT,
            input: bytes::Bytes::new(),
            registration: None,
            notifications: None,
            cancel_key: None,
        };
        let refused = |error: BusError| Undelivered(error.to_string());
        let response = self.bus.call(call).await.map_err(refused)?;
        let outcome = response.outcome.as_str();
        if response.delivered == Delivered::No {
            return Err(Undelivered(outcome.to_owned()).into());
        }
        ensure!(
            response.outcome == Outcome::Succeeded,
            "the call ended as {outcome}"
        );
        Ok(())
    }
}

/// A JSON object of exactly [`PAYLOAD_BYTES`] bytes.
pub(super) fn params() -> String {
    let empty_len = r#"{"text":""}"#.len();
    format!(r#"{{"text":"{}"}}"#, "x".repeat(PAYLOAD_BYTES - empty_len))
}
