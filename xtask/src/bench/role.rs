//! The processes of a measurement besides the servers: callers and devices, one kind per process,
//! driven by lines on stdin and gone when stdin ends.
//! Never: a figure about another process; the driver reads those.

mod bus_caller;
mod closed_loop;
mod fleet;
mod http_connections;
mod mcp_caller;
mod mcp_server;
mod mqtt_caller;
mod mqtt_devices;
mod mqtt_packet;
mod nats_caller;
mod nats_devices;
mod pending;
mod redis_caller;
mod redis_responder;
mod rest_caller;
mod settings_caller;
mod store_caller;
mod turn_caller;
mod wire_devices;

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::runtime;

/// Bytes of every request's and every answer's payload.
pub(crate) const PAYLOAD_BYTES: usize = 128;

/// What one process does.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Calls devices over the bus, as a gateway does
    BusCaller(bus_caller::Options),
    /// Devices on our wire protocol
    WireDevices(wire_devices::Options),
    /// Asks the responder through Redis pub/sub
    RedisCaller(RedisOptions),
    /// Answers the Redis caller
    RedisResponder(RedisOptions),
    /// Requests to NATS subjects
    NatsCaller(CallerOptions),
    /// Devices connected to a NATS server
    NatsDevices(BrokerOptions),
    /// MQTT 5 requests
    MqttCaller(CallerOptions),
    /// Devices connected to an MQTT 5 broker
    MqttDevices(BrokerOptions),
    /// Calls devices over HTTP
    RestCaller(rest_caller::Options),
    /// Calls tools over MCP
    McpCaller(mcp_caller::Options),
    /// Reads or writes settings over HTTP
    SettingsCaller(settings_caller::Options),
    /// Reads or writes settings in the database
    StoreCaller(store_caller::Options),
    /// Devices that say something, and the model that is asked for the answer
    TurnCaller(turn_caller::Options),
    /// An MCP server with one tool and no devices
    McpServer(mcp_server::Options),
}

/// Where Redis is.
#[derive(Debug, Args)]
pub(crate) struct RedisOptions {
    /// `redis://…`
    #[arg(long)]
    pub(crate) url: String,
}

/// Where a broker is.
#[derive(Debug, Args)]
pub(crate) struct BrokerOptions {
    /// `HOST:PORT`
    #[arg(long)]
    pub(crate) address: SocketAddr,
}

/// Where a broker is, and how many devices are behind it.
#[derive(Debug, Args)]
pub(crate) struct CallerOptions {
    /// `HOST:PORT`
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// Devices 0 to this, exclusive, are called in turn
    #[arg(long)]
    pub(crate) devices: u32,
}

/// Plays the role until stdin ends.
pub(crate) fn run(role: Role) -> anyhow::Result<()> {
    match role {
        Role::BusCaller(options) => call(bus_caller::BusCaller::start(options)),
        Role::RedisCaller(options) => call(redis_caller::RedisCaller::start(options)),
        Role::NatsCaller(options) => call(nats_caller::NatsCaller::start(options)),
        Role::MqttCaller(options) => call(mqtt_caller::MqttCaller::start(options)),
        Role::RestCaller(options) => call(rest_caller::RestCaller::start(options)),
        Role::McpCaller(options) => call(mcp_caller::McpCaller::start(options)),
        Role::SettingsCaller(options) => call(settings_caller::SettingsCaller::start(options)),
        Role::StoreCaller(options) => call(store_caller::StoreCaller::start(options)),
        Role::TurnCaller(options) => call(turn_caller::TurnCaller::start(options)),
        Role::McpServer(options) => mcp_server::run(&options),
        Role::WireDevices(options) => host(wire_devices::WireFleet::new(options)?),
        Role::RedisResponder(options) => host(redis_responder::RedisFleet::new(&options)?),
        Role::NatsDevices(options) => host(nats_devices::NatsFleet::new(&options)),
        Role::MqttDevices(options) => host(mqtt_devices::MqttFleet::new(&options)),
    }
}

/// Callers run as a service would: on every core.
fn call<C, S>(start: S) -> anyhow::Result<()>
where
    C: closed_loop::Caller,
    S: Future<Output = anyhow::Result<C>>,
{
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async { closed_loop::obey(start.await?).await });
    runtime.shutdown_background();
    outcome
}

/// Devices share one thread, so that they take as little as possible from what is measured.
fn host<F: fleet::Fleet>(fleet: F) -> anyhow::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, fleet::obey(fleet));
    runtime.shutdown_background();
    outcome
}

/// One line on stdout.
fn say(answer: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(answer).context("an answer that is no JSON")?;
    println!("{line}");
    Ok(())
}

/// The name of a device on every system.
fn device_name(index: u32) -> String {
    format!("dev-{index}")
}

/// What every request and every answer carries.
fn payload() -> Vec<u8> {
    vec![b'x'; PAYLOAD_BYTES]
}
