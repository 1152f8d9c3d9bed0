//! Edges over Redis with devices at each of them, without a control plane.

use std::{ops::Range, sync::Arc, time::Duration};

use anyhow::ensure;
use futures_util::future::try_join_all;
use nix::sys::resource::{Resource, getrlimit};
use switchboard_protocol::id::OrgId;
use switchboard_test_support::process::Process;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::shards::Shards;
use crate::{
    calls::CONNECT_CONCURRENCY,
    environment::BenchEnv,
    system::{SEED, Service},
    usage::{Usage as _, wait_idle},
    worker::Worker,
};

/// Devices that are connected to each edge before the first reading, to exclude one-time allocations.
const WARM_UP: u32 = 200;
/// Their first number: above those of all devices that are called.
const WARM_UP_FIRST: u32 = 1_000_000;
/// Devices that connect before their events are discarded. An organisation has 16 MiB for events.
const OPEN_CHUNK: u32 = 10_000;
/// Files that a process needs besides its connections.
const OTHER_FILES: u64 = 500;
const KEYS_TIMEOUT: Duration = Duration::from_secs(15);
const KEYS_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The devices that one edge, or one fleet, can have on this machine.
pub(super) fn devices_per_process() -> anyhow::Result<u32> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let files = hard.saturating_sub(OTHER_FILES);
    ensure!(
        files >= u64::from(OPEN_CHUNK) / 4,
        "a process may open {hard} files only: raise the hard limit (`ulimit -Hn 110000` as root, or \
         LimitNOFILE of its service)"
    );
    Ok(u32::try_from(files)?)
}

/// A system of edges, each with a process of devices.
pub(super) struct Nodes<'a> {
    bench: &'a BenchEnv<'a>,
    pub(super) shards: Shards,
    edges: Vec<Service>,
    fleets: Vec<Worker>,
    account: Vec<String>,
    // Publishes the keys that the edges verify tokens with.
    _keys: Worker,
}

impl<'a> Nodes<'a> {
    pub(super) async fn start(
        bench: &'a BenchEnv<'a>,
        shards: Shards,
        edges: u32,
        organisations: u32,
    ) -> anyhow::Result<Self> {
        let org = OrgId::from_uuid(Uuid::now_v7()).to_string();
        let organisations = organisations.to_string();
        let account = [
            "--org",
            &org,
            "--seed",
            SEED,
            "--organisations",
            &organisations,
        ];
        let account = account.map(str::to_owned).to_vec();
        let mut nodes = Self {
            bench,
            edges: Vec::new(),
            fleets: Vec::new(),
            _keys: caller(bench, &shards.url, &account, 1).await?,
            shards,
            account,
        };
        for _ in 0..edges {
            nodes.add_edge().await?;
        }
        nodes.warm_up().await?;
        Ok(nodes)
    }

    async fn add_edge(&mut self) -> anyhow::Result<()> {
        let arguments = [
            "edge",
            "--device-listen",
            "127.0.0.1:0",
            "--device-accepts-per-address-per-s",
            "0",
            "--device-max-connections",
            "1000000",
        ];
        let environment = [("REDIS_URL", self.shards.url.as_str())];
        let edge = Service::start(self.bench, &arguments, &environment, "device_addr").await?;
        let address = edge.address.to_string();
        let account: Vec<_> = self.account.iter().map(String::as_str).collect();
        let fleet = [&["wire-devices", "--address", &address][..], &account].concat();
        self.fleets.push(self.bench.worker(&fleet).await?);
        self.edges.push(edge);
        Ok(())
    }

    /// Connects [`WARM_UP`] devices to each edge, as soon as it knows the keys.
    async fn warm_up(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + KEYS_TIMEOUT;
        for (index, fleet) in (0_u32..).zip(&mut self.fleets) {
            let first = WARM_UP_FIRST + index * WARM_UP;
            loop {
                let opened = fleet.open_all(first, WARM_UP, 1).await;
                if opened.is_ok() || Instant::now() > deadline {
                    opened?;
                    break;
                }
                fleet.close().await?;
                sleep(KEYS_RETRY_INTERVAL).await;
            }
        }
        self.shards.discard_events().await;
        Ok(())
    }

    /// Connects devices, evenly to all edges at the same time.
    pub(super) async fn open(&mut self, devices: Range<u32>) -> anyhow::Result<()> {
        let mut first = devices.start;
        while first < devices.end {
            let chunk = (devices.end - first).min(OPEN_CHUNK);
            let fleets = u32::try_from(self.fleets.len())?;
            let starts = (0..=fleets).map(|n| first + chunk * n / fleets);
            let starts: Vec<_> = starts.collect();
            let opened = self.fleets.iter_mut().zip(starts.windows(2));
            let opened = opened.map(|(fleet, range)| {
                fleet.open_all(range[0], range[1] - range[0], CONNECT_CONCURRENCY / 4)
            });
            try_join_all(opened).await?;
            self.shards.discard_events().await;
            first += chunk;
        }
        Ok(())
    }

    /// Waits until all processes are idle, and discards the device events.
    pub(super) async fn settle(&mut self) -> anyhow::Result<()> {
        wait_idle(&self.processes()).await?;
        self.shards.discard_events().await;
        Ok(())
    }

    /// A node that calls the devices with numbers below `devices`.
    pub(super) async fn caller(&self, devices: u32) -> anyhow::Result<Worker> {
        caller(self.bench, &self.shards.url, &self.account, devices).await
    }

    pub(super) fn edges(&self) -> u32 {
        u32::try_from(self.edges.len()).unwrap_or(u32::MAX)
    }

    /// The edges and the Redis servers.
    pub(super) fn processes(&self) -> Vec<Arc<Process>> {
        let edges = self.edges.iter().map(|edge| Arc::clone(&edge.process));
        edges.chain(self.shards.processes()).collect()
    }

    /// Anonymous memory of all edges.
    pub(super) fn edge_bytes(&self) -> anyhow::Result<f64> {
        let bytes = self.edges.iter().map(|edge| edge.process.anonymous_bytes());
        Ok(bytes.sum::<anyhow::Result<u64>>()? as f64)
    }

    /// Fails if a device was disconnected.
    pub(super) async fn ensure_connected(&mut self) -> anyhow::Result<()> {
        for fleet in &mut self.fleets {
            let lost = fleet.count().await?.errors;
            ensure!(lost == 0, "{lost} devices were disconnected");
        }
        Ok(())
    }
}

async fn caller(
    bench: &BenchEnv<'_>,
    url: &str,
    account: &[String],
    devices: u32,
) -> anyhow::Result<Worker> {
    let account: Vec<_> = account.iter().map(String::as_str).collect();
    let count = devices.to_string();
    let role = [
        "bus-caller",
        "--url",
        url,
        "--devices",
        &count,
        "--scattered",
    ];
    bench.worker(&[&role[..], &account].concat()).await
}
