//! Many devices in one process. They connect on command and respond to requests until closed.

use std::time::Instant;

use anyhow::{Context as _, bail};
use futures_util::{StreamExt as _, stream};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::JoinSet,
};

use super::write_reply;
use crate::reply::Reply;

/// A fleet of devices of one kind.
pub(super) trait Fleet: 'static {
    /// A connected device that is ready to receive requests.
    type Device: 'static;

    /// Connects device number `index` and makes it ready to receive requests.
    async fn dial(&self, index: u32) -> anyhow::Result<Self::Device>;

    /// Responds to requests until the connection is closed.
    async fn serve(device: Self::Device) -> anyhow::Result<()>;
}

/// Runs the commands `open FIRST COUNT CONCURRENCY`, `count` and `close` from stdin until end of
/// input.
pub(super) async fn run_commands<F: Fleet>(fleet: F) -> anyhow::Result<()> {
    let mut devices = JoinSet::new();
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    write_reply(&Reply::default())?;
    while let Some(line) = commands.next_line().await? {
        let words: Vec<_> = line.split_whitespace().collect();
        let reply = match words[..] {
            ["open", first, count, concurrency] => {
                let first: u32 = first.parse().context("invalid first device")?;
                let count: u32 = count.parse().context("invalid number of devices")?;
                let concurrency = concurrency.parse().context("invalid concurrency")?;
                open(&fleet, &mut devices, first..first + count, concurrency).await
            }
            ["count"] => count(&mut devices),
            ["close"] => {
                devices.shutdown().await;
                Reply::default()
            }
            _ => bail!("unknown command: {line}"),
        };
        write_reply(&reply)?;
    }
    Ok(())
}

async fn open<F: Fleet>(
    fleet: &F,
    devices: &mut JoinSet<anyhow::Result<()>>,
    indices: std::ops::Range<u32>,
    concurrency: usize,
) -> Reply {
    let started = Instant::now();
    let mut reply = Reply::default();
    let dials = stream::iter(indices)
        .map(|index| fleet.dial(index))
        .buffer_unordered(concurrency);
    let mut dials = std::pin::pin!(dials);
    while let Some(dialled) = dials.next().await {
        match dialled {
            Ok(device) => {
                devices.spawn_local(F::serve(device));
                reply.count += 1;
            }
            Err(error) => reply.record_failure(&error),
        }
    }
    reply.elapsed_us = started.elapsed().as_secs_f64() * 1e6;
    reply
}

/// Counts the connected devices. Devices that disconnected since the last count are failures.
fn count(devices: &mut JoinSet<anyhow::Result<()>>) -> Reply {
    let mut reply = Reply::default();
    while let Some(ended) = devices.try_join_next() {
        let ended = ended.map_err(anyhow::Error::from).flatten();
        let error = ended
            .err()
            .unwrap_or_else(|| anyhow::anyhow!("the server closed the connection"));
        reply.record_failure(&error);
    }
    reply.count = devices.len() as u64;
    reply
}
