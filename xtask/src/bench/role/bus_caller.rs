//! A caller node: what a gateway does for a call, without HTTP in front of it.
//! Never: a short cut past the bus that a gateway would not have.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::Args;
use switchboard_bus::{Bus, BusConfig, Call};
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId},
    outcome::Outcome,
};
use switchboard_runtime::shutdown::Shutdown;
use uuid::Uuid;

use super::{
    PAYLOAD_BYTES,
    closed_loop::{ANSWER_WITHIN, Caller, turn},
    device_name,
    wire_devices::signing_key,
};

const READY_WITHIN: Duration = Duration::from_secs(10);

/// Where the bus is, and whose devices are called.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `redis://…`
    #[arg(long)]
    url: String,
    /// The devices' organisation
    #[arg(long)]
    org: OrgId,
    /// Devices 0 to this, exclusive, are called in turn
    #[arg(long)]
    devices: u32,
    /// 64 hexadecimal digits: the private key whose public half this node publishes
    #[arg(long)]
    seed: String,
}

/// A node that only calls.
pub(super) struct BusCaller {
    bus: Bus,
    devices: Vec<DeviceKey>,
    params: Bytes,
}

impl BusCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let config = BusConfig::redis(&options.url.into(), "caller", "sb");
        let bus = Bus::start(config, &prometheus::Registry::new(), &Shutdown::new())?;
        bus.ready(READY_WITHIN).await?;
        let key = signing_key(&options.seed)?.verifying_key();
        bus.publish_trust(vec![key], Vec::new()).await?;
        let devices = (0..options.devices)
            .map(|index| {
                let device = device_name(index).parse().context("a device's name")?;
                Ok(DeviceKey {
                    org: options.org,
                    device,
                })
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            bus,
            devices,
            params: params().into(),
        })
    }
}

impl Caller for BusCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        let device = turn(worker, sequence, u32::try_from(self.devices.len())?);
        let call = Call {
            device: self.devices[device as usize].clone(),
            id: CallId::from_uuid(Uuid::now_v7()),
            service: "echo".into(),
            params: self.params.clone(),
            timeout: ANSWER_WITHIN,
            input: bytes::Bytes::new(),
            notices: None,
            handle: None,
        };
        let answer = self.bus.call(call).await?;
        ensure!(
            answer.outcome == Outcome::Succeeded,
            "ended as {}",
            answer.outcome.as_str()
        );
        Ok(())
    }
}

/// A JSON object of exactly the measured payload's length.
pub(super) fn params() -> String {
    let frame = r#"{"text":""}"#.len();
    format!(r#"{{"text":"{}"}}"#, "x".repeat(PAYLOAD_BYTES - frame))
}
