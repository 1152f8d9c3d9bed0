//! Many devices in one process: dialled on command, then served until they are closed.
//! Never: more dials at once than the command allows.

use std::time::Instant;

use anyhow::{Context as _, bail};
use futures_util::{StreamExt as _, stream};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::JoinSet,
};

use super::say;
use crate::bench::reply::Reply;

/// A kind of device.
pub(super) trait Fleet: 'static {
    /// One that is connected, and ready to be called.
    type Device: 'static;

    /// Connects device number `index` and makes it ready.
    async fn dial(&self, index: u32) -> anyhow::Result<Self::Device>;

    /// Answers what comes in until the connection ends.
    async fn serve(device: Self::Device) -> anyhow::Result<()>;
}

/// Obeys `open FIRST COUNT PARALLEL`, `count` and `close` lines until stdin ends.
pub(super) async fn obey<F: Fleet>(fleet: F) -> anyhow::Result<()> {
    let mut devices = JoinSet::new();
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    say(&Reply::default())?;
    while let Some(line) = commands.next_line().await? {
        let words: Vec<_> = line.split_whitespace().collect();
        let reply = match words[..] {
            ["open", first, count, parallel] => {
                let first: u32 = first.parse().context("the first device")?;
                let count: u32 = count.parse().context("how many devices")?;
                let parallel = parallel.parse().context("how many at once")?;
                open(&fleet, &mut devices, first..first + count, parallel).await
            }
            ["count"] => count(&mut devices),
            ["close"] => {
                devices.shutdown().await;
                Reply::default()
            }
            _ => bail!("unknown command: {line}"),
        };
        say(&reply)?;
    }
    Ok(())
}

async fn open<F: Fleet>(
    fleet: &F,
    devices: &mut JoinSet<anyhow::Result<()>>,
    indices: std::ops::Range<u32>,
    parallel: usize,
) -> Reply {
    let began = Instant::now();
    let mut reply = Reply::default();
    let dials = stream::iter(indices)
        .map(|index| fleet.dial(index))
        .buffer_unordered(parallel);
    let mut dials = std::pin::pin!(dials);
    while let Some(dialled) = dials.next().await {
        match dialled {
            Ok(device) => {
                devices.spawn_local(F::serve(device));
                reply.count += 1;
            }
            Err(error) => reply.fail(&error),
        }
    }
    reply.elapsed_us = began.elapsed().as_secs_f64() * 1e6;
    reply
}

/// How many are connected now; those that ended since the last count are failures.
fn count(devices: &mut JoinSet<anyhow::Result<()>>) -> Reply {
    let mut reply = Reply::default();
    while let Some(ended) = devices.try_join_next() {
        let ended = ended.map_err(anyhow::Error::from).flatten();
        let error = ended
            .err()
            .unwrap_or_else(|| anyhow::anyhow!("the server closed"));
        reply.fail(&error);
    }
    reply.count = devices.len() as u64;
    reply
}
