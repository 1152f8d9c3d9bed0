//! The Redis servers of one system: one server, or a cluster.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use redis::aio::MultiplexedConnection;
use switchboard_test_support::process::Process;
use tokio::time::{Instant, sleep};

use crate::{
    environment::BenchEnv,
    server::{self, Server},
};

/// Masters of a cluster.
const MASTERS: u16 = 3;
const SLOTS: u16 = 16_384;
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);
const PROBE_INTERVAL: Duration = Duration::from_millis(50);

/// Running servers with a connection to each.
pub(crate) struct Shards {
    pub(super) url: String,
    servers: Vec<Server>,
    connections: Vec<MultiplexedConnection>,
}

impl Shards {
    /// One server without persistence.
    pub(super) async fn single(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let server = server::redis(bench.folder()).await?;
        Self::connect(server.redis_url(), vec![server]).await
    }

    /// A cluster of three masters.
    pub(super) async fn cluster(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let mut servers = Vec::new();
        let mut bus_ports = Vec::new();
        for _ in 0..MASTERS {
            let bus_port = server::free_address()?.port();
            servers.push(server::redis_master(bench.folder(), bus_port).await?);
            bus_ports.push(bus_port);
        }
        let addresses = servers.iter().map(|server| server.address.to_string());
        let addresses: Vec<_> = addresses.collect();
        let url = format!("redis+cluster://{}", addresses.join(","));
        let mut shards = Self::connect(url, servers).await?;
        shards.form(&bus_ports).await?;
        Ok(shards)
    }

    /// The same as of a running server that another value owns.
    pub(crate) async fn of(server: &Server) -> anyhow::Result<Self> {
        let server = Server {
            process: Arc::clone(&server.process),
            address: server.address,
        };
        Self::connect(server.redis_url(), vec![server]).await
    }

    async fn connect(url: String, servers: Vec<Server>) -> anyhow::Result<Self> {
        let mut connections = Vec::new();
        for server in &servers {
            let client = redis::Client::open(server.redis_url())?;
            connections.push(client.get_multiplexed_async_connection().await?);
        }
        Ok(Self {
            url,
            servers,
            connections,
        })
    }

    /// Distributes the slots, and waits until every master knows all of them.
    async fn form(&mut self, bus_ports: &[u16]) -> anyhow::Result<()> {
        let first_of = |n: u16| u32::from(SLOTS) * u32::from(n) / u32::from(MASTERS);
        for (n, connection) in (0..MASTERS).zip(&mut self.connections) {
            let mut add = redis::cmd("CLUSTER");
            add.arg("ADDSLOTSRANGE")
                .arg(first_of(n))
                .arg(first_of(n + 1) - 1);
            add.query_async::<()>(connection).await?;
            let mut epoch = redis::cmd("CLUSTER");
            epoch.arg("SET-CONFIG-EPOCH").arg(n + 1);
            epoch.query_async::<()>(connection).await?;
        }
        let first = self.connections.first_mut().context("no server")?;
        for (server, bus_port) in self.servers.iter().zip(bus_ports).skip(1) {
            let mut meet = redis::cmd("CLUSTER");
            meet.arg("MEET")
                .arg("127.0.0.1")
                .arg(server.address.port())
                .arg(bus_port);
            meet.query_async::<()>(first).await?;
        }
        let deadline = Instant::now() + DISCOVERY_TIMEOUT;
        for connection in &mut self.connections {
            loop {
                let mut info = redis::cmd("CLUSTER");
                let info: String = info.arg("INFO").query_async(connection).await?;
                let known = format!("cluster_known_nodes:{MASTERS}\r");
                if info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && info.contains(&known)
                {
                    break;
                }
                ensure!(
                    Instant::now() < deadline,
                    "the cluster does not form:\n{info}"
                );
                sleep(PROBE_INTERVAL).await;
            }
        }
        Ok(())
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = Arc<Process>> {
        self.servers
            .iter()
            .map(|server| Arc::clone(&server.process))
    }

    /// Bytes that Redis has allocated, on all servers.
    pub(super) async fn used_bytes(&mut self) -> anyhow::Result<f64> {
        self.sum("memory", |line| line.strip_prefix("used_memory:"))
            .await
    }

    /// Reads of directory entries since the servers started. Scripts that connect devices read them
    /// as well.
    pub(super) async fn directory_reads(&mut self) -> anyhow::Result<f64> {
        const COUNTED: &str = "cmdstat_hget:calls=";
        self.sum("commandstats", |line| {
            line.strip_prefix(COUNTED)?.split(',').next()
        })
        .await
    }

    /// Device events that wait for the control plane.
    pub(super) async fn waiting_events(&mut self) -> anyhow::Result<u64> {
        let first = self.connections.first_mut().context("no server")?;
        Ok(redis::cmd("XLEN").arg(EVENTS).query_async(first).await?)
    }

    /// Removes the device events, which no control plane reads here.
    pub(super) async fn discard_events(&mut self) {
        for connection in &mut self.connections {
            for key in [EVENTS, EVENT_BYTES] {
                // Only one shard of a cluster has the slot; the others refuse.
                let _ = redis::cmd("DEL")
                    .arg(key)
                    .query_async::<()>(connection)
                    .await;
            }
        }
    }

    async fn sum(
        &mut self,
        section: &str,
        value: impl Fn(&str) -> Option<&str>,
    ) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for connection in &mut self.connections {
            let info: String = redis::cmd("INFO")
                .arg(section)
                .query_async(connection)
                .await?;
            if let Some(value) = info.lines().find_map(&value) {
                sum += value.trim().parse::<f64>()?;
            }
        }
        Ok(sum)
    }
}

const EVENTS: &str = "sb:facts";
const EVENT_BYTES: &str = "sb:{sb:facts}:bytes";
