//! Calls to connected devices: ours, and the same through Redis alone, NATS and Mosquitto.
//! Never: a peer with fewer devices, a smaller payload or a cheaper quality than ours.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{
    Part,
    bed::Bed,
    ours::System,
    report::Report,
    server::{self, Server},
    subject::{Subject, rounds},
    worker::Worker,
};

/// Requests in flight, one row each.
const IN_FLIGHT: [u32; 3] = [1, 64, 512];

/// Devices dialled at once.
pub(crate) const PARALLEL: u32 = 64;

const FIRST_DEVICE_WITHIN: Duration = Duration::from_secs(10);

/// Names as they stand in the table.
pub(crate) const OURS: &str = "Switchboard, two nodes";
pub(crate) const RAW_REDIS: &str = "Redis alone, no device";
pub(crate) const NATS: &str = "NATS";
pub(crate) const MOSQUITTO: &str = "Mosquitto, MQTT 5";

/// Measures what is wanted of the four, in turn.
pub(crate) async fn measure(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut subjects = Vec::new();
    if bed.options.wants(Part::Switchboard) {
        subjects.push(ours(bed, OURS).await.context(OURS)?);
    }
    for part in [Part::Redis, Part::Nats, Part::Mosquitto] {
        if bed.options.wants(part) {
            let (name, subject) = match part {
                Part::Redis => (RAW_REDIS, redis(bed).await),
                Part::Nats => (NATS, nats(bed).await),
                _ => (MOSQUITTO, mosquitto(bed).await),
            };
            subjects.extend(report.skip_unless(name, subject));
        }
    }
    if subjects.is_empty() {
        return Ok(());
    }
    for in_flight in IN_FLIGHT {
        report
            .calls
            .extend(rounds(&mut subjects, in_flight, bed.options).await?);
    }
    Ok(())
}

/// Two of our nodes under a name, without HTTP in front of them.
pub(crate) async fn ours(bed: &Bed<'_>, name: &'static str) -> anyhow::Result<Subject> {
    let System {
        redis,
        edge,
        caller,
        mut devices,
    } = System::start(bed).await?;
    connect_the_rest(bed, &mut devices).await?;
    Ok(Subject {
        name,
        caller,
        devices: Some(devices),
        servers: vec![("edge", edge.process), ("redis", redis.process)],
        counts_caller: true,
        counts_devices: false,
    })
}

/// There is no device in it: the responder is the second node, so its CPU counts.
async fn redis(bed: &Bed<'_>) -> anyhow::Result<Subject> {
    let redis = server::redis(bed.folder()).await?;
    let url = redis.redis_url();
    let mut devices = bed.worker(&["redis-responder", "--url", &url]).await?;
    devices.open_first(FIRST_DEVICE_WITHIN).await?;
    Ok(Subject {
        name: RAW_REDIS,
        caller: bed.worker(&["redis-caller", "--url", &url]).await?,
        devices: Some(devices),
        servers: vec![("redis", redis.process)],
        counts_caller: true,
        counts_devices: true,
    })
}

async fn nats(bed: &Bed<'_>) -> anyhow::Result<Subject> {
    let server = server::nats(bed.folder()).await?;
    broker(bed, NATS, server, ["nats-caller", "nats-devices", "nats"]).await
}

async fn mosquitto(bed: &Bed<'_>) -> anyhow::Result<Subject> {
    let server = server::mosquitto(bed.folder()).await?;
    broker(
        bed,
        MOSQUITTO,
        server,
        ["mqtt-caller", "mqtt-devices", "mosquitto"],
    )
    .await
}

async fn broker(
    bed: &Bed<'_>,
    name: &'static str,
    server: Server,
    [caller, fleet, process]: [&'static str; 3],
) -> anyhow::Result<Subject> {
    let address = server.address.to_string();
    let mut devices = bed.worker(&[fleet, "--address", &address]).await?;
    devices.open_first(FIRST_DEVICE_WITHIN).await?;
    connect_the_rest(bed, &mut devices).await?;
    let count = bed.options.devices.to_string();
    let caller = [caller, "--address", &address, "--devices", &count];
    Ok(Subject {
        name,
        caller: bed.worker(&caller).await?,
        devices: Some(devices),
        servers: vec![(process, server.process)],
        counts_caller: true,
        counts_devices: false,
    })
}

/// All devices but the first, which is there.
pub(crate) async fn connect_the_rest(bed: &Bed<'_>, devices: &mut Worker) -> anyhow::Result<()> {
    let rest = bed.options.devices - 1;
    let reply = devices.open(1, rest, PARALLEL).await?;
    let why = reply.first_error.unwrap_or_default();
    ensure!(
        reply.errors == 0,
        "{} of {rest} devices cannot connect: {why}",
        reply.errors
    );
    Ok(())
}
