//! Calls to connected devices through Switchboard, Redis alone, NATS and Mosquitto.
//! All use the same payload size; Switchboard and both brokers use the same number of devices.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{
    Part,
    environment::BenchEnv,
    report::Report,
    server::{self, Server},
    subject::{Subject, run_rounds},
    system::System,
    worker::Worker,
};

/// Numbers of requests in flight, one row each.
const IN_FLIGHT: [u32; 3] = [1, 64, 512];

/// Number of devices that connect concurrently.
pub(crate) const CONNECT_CONCURRENCY: u32 = 64;

const FIRST_DEVICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Row names in the report.
pub(crate) const OURS: &str = "Switchboard, two nodes";
pub(crate) const RAW_REDIS: &str = "Redis alone, no device";
pub(crate) const NATS: &str = "NATS";
pub(crate) const MOSQUITTO: &str = "Mosquitto, MQTT 5";

/// Measures the selected systems in turn.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut subjects = Vec::new();
    if bench.options.includes(Part::Switchboard) {
        subjects.push(switchboard(bench, OURS).await.context(OURS)?);
    }
    for part in [Part::Redis, Part::Nats, Part::Mosquitto] {
        if bench.options.includes(part) {
            let (name, subject) = match part {
                Part::Redis => (RAW_REDIS, redis(bench).await),
                Part::Nats => (NATS, nats(bench).await),
                _ => (MOSQUITTO, mosquitto(bench).await),
            };
            subjects.extend(report.or_skip(name, subject));
        }
    }
    if subjects.is_empty() {
        return Ok(());
    }
    for in_flight in IN_FLIGHT {
        report
            .calls
            .extend(run_rounds(&mut subjects, in_flight, bench.options).await?);
    }
    Ok(())
}

/// A subject of two Switchboard nodes that are called over the bus, without HTTP.
pub(crate) async fn switchboard(
    bench: &BenchEnv<'_>,
    name: &'static str,
) -> anyhow::Result<Subject> {
    let System {
        redis,
        edge,
        caller,
        mut devices,
    } = System::start(bench).await?;
    connect_remaining_devices(bench, &mut devices).await?;
    Ok(Subject {
        name,
        caller,
        devices: Some(devices),
        servers: vec![("edge", edge.process), ("redis", redis.process)],
        counts_caller: true,
        counts_devices: false,
    })
}

/// Redis without devices. The responder acts as the second node, so its CPU counts.
async fn redis(bench: &BenchEnv<'_>) -> anyhow::Result<Subject> {
    let redis = server::redis(bench.folder()).await?;
    let url = redis.redis_url();
    let mut devices = bench.worker(&["redis-responder", "--url", &url]).await?;
    devices.open_first(FIRST_DEVICE_TIMEOUT).await?;
    Ok(Subject {
        name: RAW_REDIS,
        caller: bench.worker(&["redis-caller", "--url", &url]).await?,
        devices: Some(devices),
        servers: vec![("redis", redis.process)],
        counts_caller: true,
        counts_devices: true,
    })
}

async fn nats(bench: &BenchEnv<'_>) -> anyhow::Result<Subject> {
    let server = server::nats(bench.folder()).await?;
    broker(bench, NATS, server, ["nats-caller", "nats-devices", "nats"]).await
}

async fn mosquitto(bench: &BenchEnv<'_>) -> anyhow::Result<Subject> {
    let server = server::mosquitto(bench.folder()).await?;
    broker(
        bench,
        MOSQUITTO,
        server,
        ["mqtt-caller", "mqtt-devices", "mosquitto"],
    )
    .await
}

async fn broker(
    bench: &BenchEnv<'_>,
    name: &'static str,
    server: Server,
    [caller, fleet, process]: [&'static str; 3],
) -> anyhow::Result<Subject> {
    let address = server.address.to_string();
    let mut devices = bench.worker(&[fleet, "--address", &address]).await?;
    devices.open_first(FIRST_DEVICE_TIMEOUT).await?;
    connect_remaining_devices(bench, &mut devices).await?;
    let count = bench.options.devices.to_string();
    let caller = [caller, "--address", &address, "--devices", &count];
    Ok(Subject {
        name,
        caller: bench.worker(&caller).await?,
        devices: Some(devices),
        servers: vec![(process, server.process)],
        counts_caller: true,
        counts_devices: false,
    })
}

/// Connects all devices except the first, which is already connected.
pub(crate) async fn connect_remaining_devices(
    bench: &BenchEnv<'_>,
    devices: &mut Worker,
) -> anyhow::Result<()> {
    let remaining = bench.options.devices - 1;
    let reply = devices.open(1, remaining, CONNECT_CONCURRENCY).await?;
    let error = reply.first_error.unwrap_or_default();
    ensure!(
        reply.errors == 0,
        "{} of {remaining} devices failed to connect: {error}",
        reply.errors
    );
    Ok(())
}
