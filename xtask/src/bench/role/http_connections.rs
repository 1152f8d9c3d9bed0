//! The client's end of HTTP/1.1: one kept-alive connection for each worker, a request out, an answer in.
//! Never: more HTTP than the measured requests need; the client is not what is measured.

use std::{collections::HashMap, io::ErrorKind, net::SocketAddr};

use anyhow::{Context as _, ensure};
use clap::Args;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Where a server is, and as whom it is asked.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Server {
    /// `HOST:PORT`
    #[arg(long)]
    pub(super) address: SocketAddr,
    /// Sent as the bearer token
    #[arg(long)]
    pub(super) api_key: String,
}

/// Connections are taken out while a request is under way on them.
pub(super) struct HttpConnections {
    server: Server,
    idle: Mutex<HashMap<usize, TcpStream>>,
}

impl HttpConnections {
    /// To one server; none is open yet.
    pub(super) fn to(server: Server) -> Self {
        Self {
            server,
            idle: Mutex::default(),
        }
    }

    /// The lines of a request's head that are the same in all of them.
    pub(super) fn head(&self) -> String {
        let Server { address, api_key } = &self.server;
        format!("host: {address}\r\nauthorization: Bearer {api_key}\r\n")
    }

    /// The whole answer to a request as text, head included.
    pub(super) async fn ask(&self, worker: usize, request: &str) -> anyhow::Result<String> {
        let mut stream = self.connection(worker).await?;
        stream.write_all(request.as_bytes()).await?;
        let answer = read_answer(&mut stream).await?;
        self.idle.lock().insert(worker, stream);
        Ok(answer)
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

/// Servers close what is idle for long, and another system's turn may take long.
fn is_open(idle: &TcpStream) -> bool {
    let read = idle.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

async fn read_answer(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut received = Vec::with_capacity(1024);
    loop {
        let read = stream.read_buf(&mut received).await?;
        ensure!(read > 0, "the server closed");
        let text = std::str::from_utf8(&received).context("an answer that is no text")?;
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
        .with_context(|| format!("an answer without a length: {head}"))?;
    length.trim().parse().context("an answer's length")
}
