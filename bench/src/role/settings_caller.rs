//! Reads or creates templates through the control plane, on one keep-alive connection per worker.
//! A request counts as successful only with the expected status.

use anyhow::ensure;
use clap::Args;

use super::{
    closed_loop::Caller,
    http_connections::{HttpConnections, Server},
};
use crate::settings::{Operation, template};

/// Address of the control plane and the operation to repeat.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    /// Operation to repeat
    #[arg(long)]
    operation: Operation,
    /// Id of the template to read
    #[arg(long)]
    template: String,
}

/// A caller that repeats one request.
pub(super) struct SettingsCaller {
    request: String,
    /// Expected status line of the response.
    expected: &'static str,
    connections: HttpConnections,
}

impl SettingsCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let Options {
            server,
            operation,
            template: id,
        } = options;
        let connections = HttpConnections::new(server);
        let head = connections.head();
        let (request, expected) = match operation {
            Operation::Read => (
                format!("GET /v1/templates/{id} HTTP/1.1\r\n{head}\r\n"),
                "HTTP/1.1 200",
            ),
            Operation::Write => {
                let body = template().to_string();
                let length = body.len();
                let head =
                    format!("{head}content-type: application/json\r\ncontent-length: {length}");
                (
                    format!("POST /v1/templates HTTP/1.1\r\n{head}\r\n\r\n{body}"),
                    "HTTP/1.1 201",
                )
            }
        };
        Ok(Self {
            request,
            expected,
            connections,
        })
    }
}

impl Caller for SettingsCaller {
    async fn call(&self, worker: usize, _sequence: u64) -> anyhow::Result<()> {
        let response = self.connections.send(worker, &self.request).await?;
        ensure!(
            response.starts_with(self.expected),
            "unexpected response {response}"
        );
        Ok(())
    }
}
