//! The load generator processes: callers and devices, one kind per process. Commands arrive as
//! lines on stdin, and the process exits at end of input.

mod bus_caller;
mod closed_loop;
mod directory_caller;
mod directory_devices;
mod fleet;
mod http_connections;
mod http_echo;
mod http_server;
mod mcp_caller;
mod mcp_server;
mod mqtt_caller;
mod mqtt_devices;
mod mqtt_packet;
mod nats_caller;
mod nats_devices;
mod pending;
mod provider;
mod redis_caller;
mod redis_responder;
mod rest_caller;
mod rolling_devices;
mod settings_caller;
mod store_caller;
mod turn_caller;
mod voice_caller;
mod wire_devices;

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use switchboard_bus::{Bus, BusConfig};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use tokio::runtime;
use uuid::Uuid;

/// How long a node of the bus may take to connect.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Payload size of every request and every response, in bytes.
pub(crate) const PAYLOAD_BYTES: usize = 128;

/// The kind of a load generator process.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Call devices over the bus, as a gateway does
    BusCaller(bus_caller::Options),
    /// Look devices up in the directory
    DirectoryCaller(directory_caller::Options),
    /// Devices without sockets, in the directory only
    DirectoryDevices(directory_devices::Options),
    /// Devices that use the Switchboard wire protocol
    WireDevices(wire_devices::Options),
    /// Devices that move between two edges
    RollingDevices(rolling_devices::Options),
    /// Send requests to the responder through Redis pub/sub
    RedisCaller(RedisOptions),
    /// Respond to the Redis caller
    RedisResponder(RedisOptions),
    /// Send requests to NATS subjects
    NatsCaller(CallerOptions),
    /// Devices connected to a NATS server
    NatsDevices(BrokerOptions),
    /// Send MQTT 5 requests
    MqttCaller(CallerOptions),
    /// Devices connected to an MQTT 5 broker
    MqttDevices(BrokerOptions),
    /// Call devices over HTTP
    RestCaller(rest_caller::Options),
    /// Call tools over MCP
    McpCaller(mcp_caller::Options),
    /// Read or write settings over HTTP
    SettingsCaller(settings_caller::Options),
    /// Read or write settings in the database
    StoreCaller(store_caller::Options),
    /// Devices that run turns, and the fake model provider that serves them
    TurnCaller(turn_caller::Options),
    /// Toys that hold spoken conversations, and the providers that serve them
    VoiceCaller(voice_caller::Options),
    /// An MCP server with one tool and no devices
    McpServer(http_server::Options),
    /// An HTTP server that answers with what it receives
    HttpEcho(http_server::Options),
}

/// Address of Redis.
#[derive(Debug, Args)]
pub(crate) struct RedisOptions {
    /// `redis://…`
    #[arg(long)]
    pub(crate) url: String,
}

/// Address of a broker.
#[derive(Debug, Args)]
pub(crate) struct BrokerOptions {
    /// `HOST:PORT`
    #[arg(long)]
    pub(crate) address: SocketAddr,
}

/// Address of a broker and number of its devices.
#[derive(Debug, Args)]
pub(crate) struct CallerOptions {
    /// `HOST:PORT`
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// Number of devices to call in turn, starting with device 0
    #[arg(long)]
    pub(crate) devices: u32,
}

/// Runs the role until stdin reaches end of input.
pub(crate) fn run(role: Role) -> anyhow::Result<()> {
    match role {
        Role::BusCaller(options) => run_caller(bus_caller::BusCaller::start(options)),
        Role::DirectoryCaller(options) => {
            run_caller(directory_caller::DirectoryCaller::start(options))
        }
        Role::RedisCaller(options) => run_caller(redis_caller::RedisCaller::start(options)),
        Role::NatsCaller(options) => run_caller(nats_caller::NatsCaller::start(options)),
        Role::MqttCaller(options) => run_caller(mqtt_caller::MqttCaller::start(options)),
        Role::RestCaller(options) => run_caller(rest_caller::RestCaller::start(options)),
        Role::McpCaller(options) => run_caller(mcp_caller::McpCaller::start(options)),
        Role::SettingsCaller(options) => {
            run_caller(settings_caller::SettingsCaller::start(options))
        }
        Role::StoreCaller(options) => run_caller(store_caller::StoreCaller::start(options)),
        Role::TurnCaller(options) => run_caller(turn_caller::TurnCaller::start(options)),
        Role::VoiceCaller(options) => run_caller(voice_caller::VoiceCaller::start(options)),
        Role::McpServer(options) => http_server::run(&options, mcp_server::router),
        Role::HttpEcho(options) => http_server::run(&options, http_echo::router),
        Role::WireDevices(options) => run_fleet(wire_devices::WireFleet::new(options)?),
        Role::DirectoryDevices(options) => {
            run_fleet(directory_devices::DirectoryFleet::new(options))
        }
        Role::RollingDevices(options) => run_fleet(rolling_devices::RollingFleet::new(options)?),
        Role::RedisResponder(options) => run_fleet(redis_responder::RedisFleet::new(&options)?),
        Role::NatsDevices(options) => run_fleet(nats_devices::NatsFleet::new(&options)),
        Role::MqttDevices(options) => run_fleet(mqtt_devices::MqttFleet::new(&options)),
    }
}

/// Runs a caller on a multi-threaded runtime, as a service does.
fn run_caller<C, S>(start: S) -> anyhow::Result<()>
where
    C: closed_loop::Caller,
    S: Future<Output = anyhow::Result<C>>,
{
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async { closed_loop::run_commands(start.await?).await });
    runtime.shutdown_background();
    outcome
}

/// Runs all devices on one thread, to leave the CPU to the measured processes.
fn run_fleet<F: fleet::Fleet>(fleet: F) -> anyhow::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, fleet::run_commands(fleet));
    runtime.shutdown_background();
    outcome
}

/// Writes one reply as a line of JSON to stdout.
fn write_reply(reply: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(reply).context("serialize the reply")?;
    println!("{line}");
    Ok(())
}

/// Starts a node of the bus, and waits until it is connected.
async fn start_node(url: String, name: &str) -> anyhow::Result<Bus> {
    let config = BusConfig::redis(&url.into(), name, "sb");
    let bus = Bus::start(config, &prometheus::Registry::new(), &Shutdown::new())?;
    bus.wait_ready(READY_TIMEOUT).await?;
    Ok(bus)
}

/// The name of a device, the same on every system.
fn device_name(index: u32) -> String {
    format!("dev-{index}")
}

/// The organisation of a device: `count` of them follow the first, and devices belong to them in turn.
fn organisation(first: OrgId, index: u32, count: u32) -> OrgId {
    let first = first.uuid().as_u128();
    let number = first.wrapping_add((index % count.max(1)).into());
    OrgId::from_uuid(Uuid::from_u128(number))
}

/// The payload of every request and every response.
fn payload() -> Vec<u8> {
    vec![b'x'; PAYLOAD_BYTES]
}
