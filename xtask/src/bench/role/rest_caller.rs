//! Calls devices through a gateway's REST interface, one kept-alive connection per worker.
//! Never: more HTTP than this one request needs; the client is not what is measured.

use std::{collections::HashMap, net::SocketAddr};

use anyhow::{Context as _, ensure};
use clap::Args;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    bus_caller::params,
    closed_loop::{Caller, turn},
    device_name,
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

/// Connections are taken out while a request is under way on them.
pub(super) struct RestCaller {
    options: Options,
    body: String,
    idle: Mutex<HashMap<usize, TcpStream>>,
}

impl RestCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let body = format!(
            r#"{{"service":"echo","params":{},"timeout_ms":5000}}"#,
            params()
        );
        Ok(Self {
            options,
            body,
            idle: Mutex::default(),
        })
    }

    async fn connection(&self, worker: usize) -> anyhow::Result<TcpStream> {
        if let Some(idle) = self.idle.lock().remove(&worker) {
            return Ok(idle);
        }
        let stream = TcpStream::connect(self.options.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
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
        let mut stream = self.connection(worker).await?;
        let device = turn(worker, sequence, self.options.devices);
        stream.write_all(self.request(device).as_bytes()).await?;
        let answer = read_answer(&mut stream).await?;
        let succeeded =
            answer.starts_with("HTTP/1.1 200") && answer.contains(r#""outcome":"succeeded""#);
        ensure!(succeeded, "answered with {answer}");
        self.idle.lock().insert(worker, stream);
        Ok(())
    }
}

/// The whole answer as text, head included.
async fn read_answer(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut received = Vec::with_capacity(1024);
    loop {
        let read = stream.read_buf(&mut received).await?;
        ensure!(read > 0, "the gateway closed");
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
    let (_, length) = lengths.next().context("an answer without a length")?;
    length.trim().parse().context("an answer's length")
}
