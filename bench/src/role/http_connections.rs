//! A minimal HTTP/1.1 client with one keep-alive connection per worker. It supports only the
//! measured requests, to keep the cost of the client low.

use std::{collections::HashMap, io::ErrorKind, net::SocketAddr};

use anyhow::{Context as _, ensure};
use clap::Args;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Address of a server and the credential for it.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Server {
    /// `HOST:PORT`
    #[arg(long)]
    pub(super) address: SocketAddr,
    /// API key, sent as the bearer token
    #[arg(long)]
    pub(super) api_key: String,
}

/// Idle connections by worker. A connection is removed while a request is in flight on it.
pub(super) struct HttpConnections {
    server: Server,
    idle: Mutex<HashMap<usize, TcpStream>>,
}

impl HttpConnections {
    /// A client for one server, without open connections.
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            idle: Mutex::default(),
        }
    }

    /// The header lines that all requests have in common.
    pub(super) fn head(&self) -> String {
        let Server { address, api_key } = &self.server;
        format!("host: {address}\r\nauthorization: Bearer {api_key}\r\n")
    }

    /// Sends a request and returns the complete response, including its head.
    pub(super) async fn send(&self, worker: usize, request: &str) -> anyhow::Result<String> {
        let mut stream = self.connection(worker).await?;
        stream.write_all(request.as_bytes()).await?;
        let response = read_response(&mut stream).await?;
        self.idle.lock().insert(worker, stream);
        Ok(response)
    }

    async fn connection(&self, worker: usize) -> anyhow::Result<TcpStream> {
        let idle = self.idle.lock().remove(&worker);
        if let Some(idle) = idle.filter(is_open) {
            return Ok(idle);
        }
        let stream = TcpStream::connect(self.server.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Whether the server has kept an idle connection open. Servers close idle connections, and other
/// systems may run for a long time between two windows.
fn is_open(idle: &TcpStream) -> bool {
    let read = idle.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

async fn read_response(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut received = Vec::with_capacity(1024);
    loop {
        let read = stream.read_buf(&mut received).await?;
        ensure!(read > 0, "the server closed the connection");
        let text = std::str::from_utf8(&received).context("the response is not valid UTF-8")?;
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() >= content_length(head)?
        {
            return Ok(text.to_owned());
        }
    }
}

fn content_length(head: &str) -> anyhow::Result<usize> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = lengths
        .next()
        .with_context(|| format!("the response has no content-length: {head}"))?;
    length.trim().parse().context("invalid content-length")
}
