//! Reads or makes templates through the control plane, one kept-alive connection per worker.
//! Never: an answer that is taken for a success because it came.

use anyhow::ensure;
use clap::Args;

use super::{
    closed_loop::Caller,
    http_connections::{HttpConnections, Server},
};
use crate::bench::settings::{Operation, template};

/// Where the control plane is, and what is done there.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    /// What is done over and over
    #[arg(long)]
    operation: Operation,
    /// The template that is read
    #[arg(long)]
    template: String,
}

/// One request, over and over.
pub(super) struct SettingsCaller {
    request: String,
    /// How the answer begins.
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
        let connections = HttpConnections::to(server);
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
        let answer = self.connections.ask(worker, &self.request).await?;
        ensure!(answer.starts_with(self.expected), "answered with {answer}");
        Ok(())
    }
}
