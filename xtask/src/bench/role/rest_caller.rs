//! Calls devices through a gateway's REST interface, one kept-alive connection per worker.
//! Never: an answer that is taken for a success because it came.

use std::net::SocketAddr;

use anyhow::ensure;
use clap::Args;

use super::{
    bus_caller::params,
    closed_loop::{Caller, turn},
    device_name,
    http_connections::HttpConnections,
};

/// Where the gateway is, and whose devices are called.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `HOST:PORT` of the gateway
    #[arg(long)]
    address: SocketAddr,
    /// Sent as the bearer token
    #[arg(long)]
    api_key: String,
    /// Devices 0 to this, exclusive, are called in turn
    #[arg(long)]
    devices: u32,
}

/// One request, over and over.
pub(super) struct RestCaller {
    options: Options,
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
            connections: HttpConnections::to(options.address),
            options,
            body,
        })
    }

    fn request(&self, device: u32) -> String {
        let Options {
            address, api_key, ..
        } = &self.options;
        format!(
            "POST /v1/devices/{}/calls HTTP/1.1\r\nhost: {address}\r\n\
             authorization: Bearer {api_key}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{}",
            device_name(device),
            self.body.len(),
            self.body,
        )
    }
}

impl Caller for RestCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        let device = turn(worker, sequence, self.options.devices);
        let answer = self.connections.ask(worker, &self.request(device)).await?;
        let succeeded =
            answer.starts_with("HTTP/1.1 200") && answer.contains(r#""outcome":"succeeded""#);
        ensure!(succeeded, "answered with {answer}");
        Ok(())
    }
}
