//! Calls devices through the REST interface of a gateway, on one keep-alive connection per worker.
//! A call counts as successful only with status 200 and the outcome `succeeded`, and if the device was
//! called for it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::ensure;
use clap::Args;
use uuid::Uuid;

use super::{
    bus_caller::params,
    closed_loop::{Caller, select_device},
    device_name,
    http_connections::{HttpConnections, Server},
};

/// Its multiples are spread evenly over 0 to 1.
const GOLDEN_RATIO: f64 = 0.618_033_988_75;

/// Address of the gateway and the devices to call.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    /// Number of devices to call in turn, starting with device 0
    #[arg(long)]
    devices: u32,
    /// Send a unique Idempotency-Key with every call
    #[arg(long)]
    keyed: bool,
    /// Milliseconds that a worker waits before each call
    #[arg(long, default_value_t = 0)]
    pause_ms: u64,
}

/// A caller that repeats one request.
pub(super) struct RestCaller {
    devices: u32,
    keys: Option<Keys>,
    body: String,
    pause: Duration,
    connections: HttpConnections,
}

/// Idempotency keys, each of which is used once.
struct Keys {
    prefix: Uuid,
    issued: AtomicU64,
}

impl Keys {
    fn next(&self) -> String {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.prefix)
    }
}

impl RestCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let body = format!(
            r#"{{"service":"echo","params":{},"timeout_ms":5000}}"#,
            params()
        );
        Ok(Self {
            connections: HttpConnections::new(options.server),
            devices: options.devices,
            keys: options.keyed.then(|| Keys {
                prefix: Uuid::now_v7(),
                issued: AtomicU64::default(),
            }),
            pause: Duration::from_millis(options.pause_ms),
            body,
        })
    }

    fn request(&self, device: u32) -> String {
        let key = self
            .keys
            .as_ref()
            .map(|keys| format!("idempotency-key: {}\r\n", keys.next()));
        format!(
            "POST /v1/devices/{}/calls HTTP/1.1\r\n{}{}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{}",
            device_name(device),
            self.connections.head(),
            key.unwrap_or_default(),
            self.body.len(),
            self.body,
        )
    }
}

impl Caller for RestCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        if !self.pause.is_zero() {
            // The first requests are spread over a pause, in steps that no worker shares.
            let spread = (worker as f64 * GOLDEN_RATIO).fract();
            let part = if sequence == 0 { spread } else { 1.0 };
            tokio::time::sleep(self.pause.mul_f64(part)).await;
        }
        let device = select_device(worker, sequence, self.devices);
        let response = self.connections.send(worker, &self.request(device)).await?;
        let succeeded = response.starts_with("HTTP/1.1 200")
            && response.contains(r#""outcome":"succeeded""#)
            && !response.contains("idempotency-replayed");
        ensure!(succeeded, "unexpected response {response}");
        Ok(())
    }
}
