//! Calls devices through a gateway's REST interface, one kept-alive connection per worker.
//! Never: an answer that is taken for a success because it came.

use anyhow::ensure;
use clap::Args;
use uuid::Uuid;

use super::{
    bus_caller::params,
    closed_loop::{Caller, turn},
    device_name,
    http_connections::{HttpConnections, Server},
};

/// Where the gateway is, and whose devices are called.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    /// Devices 0 to this, exclusive, are called in turn
    #[arg(long)]
    devices: u32,
    /// Every call has an Idempotency-Key of its own
    #[arg(long)]
    keyed: bool,
}

/// One request, over and over.
pub(super) struct RestCaller {
    devices: u32,
    /// The key of each begins with it.
    keys: Option<Uuid>,
    body: String,
    connections: HttpConnections,
}

impl RestCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let body = format!(
            r#"{{"service":"echo","params":{},"timeout_ms":5000}}"#,
            params()
        );
        Ok(Self {
            connections: HttpConnections::to(options.server),
            devices: options.devices,
            keys: options.keyed.then(Uuid::now_v7),
            body,
        })
    }

    fn request(&self, device: u32, worker: usize, sequence: u64) -> String {
        let key = self
            .keys
            .map(|key| format!("idempotency-key: {key}-{worker}-{sequence}\r\n"));
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
        let device = turn(worker, sequence, self.devices);
        let answer = self
            .connections
            .ask(worker, &self.request(device, worker, sequence))
            .await?;
        let succeeded =
            answer.starts_with("HTTP/1.1 200") && answer.contains(r#""outcome":"succeeded""#);
        ensure!(succeeded, "answered with {answer}");
        Ok(())
    }
}
