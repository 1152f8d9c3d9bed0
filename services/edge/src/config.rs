//! The edge's settings and limits.
//! Never: a limit without a sentence on what it protects.

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;
use switchboard_protocol::schema::SchemaLimits;

/// How an edge treats its devices. Every limit can be set by flag, environment or file.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Most device connections at a time, authenticated or not: protects memory and file descriptors.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_CONNECTIONS", default_value_t = Config::default().device_max_connections)]
    pub device_max_connections: usize,

    /// Most connections that have not authenticated yet: protects against sockets opened by nobody we know.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_UNAUTHENTICATED", default_value_t = Config::default().device_max_unauthenticated)]
    pub device_max_unauthenticated: usize,

    /// Connections accepted per second from one address (one /64 for IPv6), with a burst of twice
    /// that, 0 for no limit: protects the others from one address in a reconnect loop.
    #[arg(long, env = "SWITCHBOARD_DEVICE_ACCEPTS_PER_ADDRESS_PER_S", default_value_t = Config::default().device_accepts_per_address_per_s)]
    pub device_accepts_per_address_per_s: u32,

    /// Networks of balancers, like `10.0.0.0/8`. A connection from there must begin with a PROXY header (version 1 or 2),
    /// before TLS, and counts as the device's that it names; from anywhere else no header is taken. Protects one
    /// device's rate from all others behind the same balancer
    #[arg(
        long,
        env = "SWITCHBOARD_PROXY_PROTOCOL_FROM",
        value_delimiter = ',',
        value_name = "NETWORK,…"
    )]
    pub proxy_protocol_from: Vec<IpNet>,

    /// Milliseconds from accept to a valid AUTH, a PROXY header and the TLS handshake included: protects the slots of
    /// the unauthenticated from being sat on.
    #[arg(long, env = "SWITCHBOARD_DEVICE_AUTH_TIMEOUT_MS", default_value_t = Config::default().device_auth_timeout_ms)]
    pub device_auth_timeout_ms: u64,

    /// Seconds between the heartbeats a device is asked for; one silent for 2.5 of them is closed:
    /// protects presence from devices that vanished without a word.
    #[arg(long, env = "SWITCHBOARD_DEVICE_HEARTBEAT_S", default_value_t = Config::default().device_heartbeat_s,
        value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub device_heartbeat_s: u32,

    /// Largest frame in bytes before AUTH: protects memory from strangers.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_HELLO_BYTES", default_value_t = Config::default().device_max_hello_bytes)]
    pub device_max_hello_bytes: u32,

    /// Largest frame in bytes after AUTH, either direction: protects memory, and bounds a result.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_FRAME_BYTES", default_value_t = Config::default().device_max_frame_bytes)]
    pub device_max_frame_bytes: u32,

    /// Most tasks a device may have open at a time (unfinished text or audio): protects memory.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_OPEN_TASKS", default_value_t = Config::default().device_max_open_tasks)]
    pub device_max_open_tasks: u8,

    /// Bytes of what a device may say in one turn; a longer one is answered with one sentence: protects
    /// memory and whoever answers.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_TURN_BYTES", default_value_t = Config::default().device_max_turn_bytes)]
    pub device_max_turn_bytes: usize,

    /// Turns of a device that may be answered at a time, 8 at most; one more is answered with one sentence: protects
    /// whoever answers.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_TURNS", default_value_t = Config::default().device_max_turns,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=8))]
    pub device_max_turns: usize,

    /// Turns in a row that a device may begin; one more is answered with one sentence: protects the bus, and whoever
    /// pays for answers.
    #[arg(long, env = "SWITCHBOARD_DEVICE_TURN_BURST", default_value_t = Config::default().device_turn_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_turn_burst: u32,

    /// Milliseconds after which it may begin one more: protects the same.
    #[arg(long, env = "SWITCHBOARD_DEVICE_TURN_EVERY_MS", default_value_t = Config::default().device_turn_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_turn_every_ms: u32,

    /// Milliseconds without a sign of whoever answers a turn before the device is told that nobody does:
    /// protects devices from waiting for ever.
    #[arg(long, env = "SWITCHBOARD_TURN_PATIENCE_MS", default_value_t = Config::default().turn_patience_ms,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub turn_patience_ms: u64,

    /// Registrations that a device may send in a row: protects the processors that compile them
    /// and the record that keeps them.
    #[arg(long, env = "SWITCHBOARD_DEVICE_REGISTER_BURST", default_value_t = Config::default().device_register_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_register_burst: u32,

    /// Milliseconds after which it may send one more: protects the same.
    #[arg(long, env = "SWITCHBOARD_DEVICE_REGISTER_EVERY_MS", default_value_t = Config::default().device_register_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_register_every_ms: u32,

    /// Bytes that a device may say at a time of a call under way, or of an event: protects the bus and the caller.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_NOTICE_BYTES", default_value_t = Config::default().device_max_notice_bytes)]
    pub device_max_notice_bytes: usize,

    /// Times in a row that a device may say something of one call; more is dropped and counted:
    /// protects the same.
    #[arg(long, env = "SWITCHBOARD_DEVICE_NOTICE_BURST", default_value_t = Config::default().device_notice_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_notice_burst: u32,

    /// Milliseconds after which it may do so once more: protects the same.
    #[arg(long, env = "SWITCHBOARD_DEVICE_NOTICE_EVERY_MS", default_value_t = Config::default().device_notice_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_notice_every_ms: u32,

    /// Events in a row that a device may tell of; more are dropped and counted: protects the bus and the database.
    #[arg(long, env = "SWITCHBOARD_DEVICE_EVENT_BURST", default_value_t = Config::default().device_event_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_event_burst: u32,

    /// Milliseconds after which it may tell of one more: protects the same.
    #[arg(long, env = "SWITCHBOARD_DEVICE_EVENT_EVERY_MS", default_value_t = Config::default().device_event_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_event_every_ms: u32,

    /// Calls waiting to be written to one device before further ones are refused: protects memory
    /// and callers from a queue that only grows.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_CALLS_WAITING", default_value_t = Config::default().device_max_calls_waiting)]
    pub device_max_calls_waiting: usize,

    /// Bytes of params that those may hold: protects memory.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_WAITING_BYTES", default_value_t = Config::default().device_max_waiting_bytes)]
    pub device_max_waiting_bytes: usize,

    /// Calls a device may be busy with before further ones are refused: protects small devices.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_CALLS_IN_FLIGHT", default_value_t = Config::default().device_max_calls_in_flight)]
    pub device_max_calls_in_flight: usize,

    /// Bytes kept for a device whose socket takes no more before it is closed: protects memory.
    #[arg(long, env = "SWITCHBOARD_DEVICE_MAX_UNSENT_BYTES", default_value_t = Config::default().device_max_unsent_bytes)]
    pub device_max_unsent_bytes: usize,

    /// Milliseconds a device may take nothing while something waits for it before it is closed:
    /// protects callers from waiting on a device that no longer reads.
    #[arg(long, env = "SWITCHBOARD_DEVICE_WRITE_STALL_MS", default_value_t = Config::default().device_write_stall_ms)]
    pub device_write_stall_ms: u64,

    /// Devices told per second to reconnect elsewhere while draining: protects the edges they go to.
    /// More, if that would not tell all of them within half of the time a drain may take.
    #[arg(long, env = "SWITCHBOARD_DEVICE_DRAIN_PER_S", default_value_t = Config::default().device_drain_per_s,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_drain_per_s: u32,

    /// Milliseconds a drain may take, from the last device told until those left are closed:
    /// protects a rolling restart from waiting for ever.
    #[arg(long, env = "SWITCHBOARD_DEVICE_DRAIN_TIMEOUT_MS", default_value_t = Config::default().device_drain_timeout_ms)]
    pub device_drain_timeout_ms: u64,

    /// Milliseconds up to which a device sent away is asked to wait, chosen at random for each:
    /// protects the edges from all of them coming back at once.
    #[arg(long, env = "SWITCHBOARD_DEVICE_RETRY_WITHIN_MS", default_value_t = Config::default().device_retry_within_ms)]
    pub device_retry_within_ms: u32,

    /// What a device's service definitions may cost.
    #[command(flatten)]
    pub schema: SchemaConfig,
}

/// Limits on service definitions: they come from devices, so they are hostile.
#[derive(Debug, Clone, clap::Args)]
pub struct SchemaConfig {
    /// Services one device may register: protects memory and tool lists.
    #[arg(long, env = "SWITCHBOARD_SCHEMA_MAX_SERVICES", default_value_t = SchemaConfig::default().schema_max_services)]
    pub schema_max_services: usize,

    /// Bytes of one service's schema: protects memory.
    #[arg(long, env = "SWITCHBOARD_SCHEMA_MAX_BYTES", default_value_t = SchemaConfig::default().schema_max_bytes)]
    pub schema_max_bytes: usize,

    /// How deep a schema may nest: protects the stack.
    #[arg(long, env = "SWITCHBOARD_SCHEMA_MAX_DEPTH", default_value_t = SchemaConfig::default().schema_max_depth)]
    pub schema_max_depth: usize,

    /// Values within one schema: protects the CPU while it is compiled.
    #[arg(long, env = "SWITCHBOARD_SCHEMA_MAX_NODES", default_value_t = SchemaConfig::default().schema_max_nodes)]
    pub schema_max_nodes: usize,

    /// Values once every reference is followed: protects the CPU from schemas that multiply.
    #[arg(long, env = "SWITCHBOARD_SCHEMA_MAX_EXPANSION", default_value_t = SchemaConfig::default().schema_max_expansion)]
    pub schema_max_expansion: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device_max_connections: 100_000,
            device_max_unauthenticated: 16_384,
            device_accepts_per_address_per_s: 5_000,
            proxy_protocol_from: Vec::new(),
            device_auth_timeout_ms: 10_000,
            device_heartbeat_s: 30,
            device_max_hello_bytes: 4_096,
            device_max_frame_bytes: 262_144,
            device_max_open_tasks: 16,
            device_max_turn_bytes: 32_768,
            device_max_turns: 4,
            device_turn_burst: 20,
            device_turn_every_ms: 1_000,
            turn_patience_ms: 30_000,
            device_register_burst: 10,
            device_register_every_ms: 1_000,
            device_max_notice_bytes: 16_384,
            device_notice_burst: 100,
            device_notice_every_ms: 20,
            device_event_burst: 20,
            device_event_every_ms: 1_000,
            device_max_calls_waiting: 64,
            device_max_waiting_bytes: 1_048_576,
            device_max_calls_in_flight: 64,
            device_max_unsent_bytes: 1_048_576,
            device_write_stall_ms: 10_000,
            device_drain_per_s: 500,
            device_drain_timeout_ms: 20_000,
            device_retry_within_ms: 2_000,
            schema: SchemaConfig::default(),
        }
    }
}

impl Default for SchemaConfig {
    fn default() -> Self {
        let limits = SchemaLimits::default();
        Self {
            schema_max_services: limits.max_services,
            schema_max_bytes: limits.max_schema_bytes,
            schema_max_depth: limits.max_depth,
            schema_max_nodes: limits.max_nodes,
            schema_max_expansion: limits.max_expansion,
        }
    }
}

impl SchemaConfig {
    /// The limits as the schema gate takes them.
    #[must_use]
    pub fn limits(&self) -> SchemaLimits {
        SchemaLimits {
            max_services: self.schema_max_services,
            max_schema_bytes: self.schema_max_bytes,
            max_depth: self.schema_max_depth,
            max_nodes: self.schema_max_nodes,
            max_expansion: self.schema_max_expansion,
            ..SchemaLimits::default()
        }
    }
}

impl Config {
    /// How long a device may be silent: two and a half heartbeats, so that one may get lost.
    #[must_use]
    pub fn idle_limit(&self) -> Duration {
        Duration::from_millis(u64::from(self.device_heartbeat_s) * 2_500)
    }

    /// Whether connections from this address are a balancer's.
    #[must_use]
    pub fn is_balancer(&self, address: IpAddr) -> bool {
        // An IPv4 address in the clothes of IPv6 is what it is inside.
        let address = address.to_canonical();
        let mut networks = self.proxy_protocol_from.iter();
        networks.any(|network| network.contains(&address))
    }

    /// Silence after which a device is asked whether it is there.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        Duration::from_secs(self.device_heartbeat_s.into())
    }

    /// How often connections are looked over. A service's own timeout ends within 250 ms of its
    /// time, so at most 200 ms; more often only for short stall limits.
    #[must_use]
    pub fn sweep_interval(&self) -> Duration {
        Duration::from_millis((self.device_write_stall_ms / 2).clamp(50, 200))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_looked_over_as_often_as_the_shortest_limit_needs() {
        fn check(stall_ms: u64, expect_ms: u64) {
            let config = Config {
                device_write_stall_ms: stall_ms,
                ..Config::default()
            };
            assert_eq!(
                config.sweep_interval(),
                Duration::from_millis(expect_ms),
                "{stall_ms}"
            );
        }
        check(10_000, 200);
        check(300, 150);
        check(1, 50);
    }

    #[test]
    fn balancers_are_known_in_every_spelling_and_there_are_none_by_default() {
        let config = Config {
            proxy_protocol_from: ["10.0.0.0/8", "2001:db8::/64"]
                .map(|network| network.parse().unwrap())
                .to_vec(),
            ..Config::default()
        };
        let check = |address: &str, expect: bool| {
            let address = address.parse().unwrap();
            assert_eq!(config.is_balancer(address), expect, "{address}");
            assert!(!Config::default().is_balancer(address), "{address}");
        };
        check("10.1.2.3", true);
        check("::ffff:10.1.2.3", true);
        check("2001:db8::1", true);
        check("11.0.0.1", false);
        check("2001:db8:0:1::1", false);
    }

    #[test]
    fn the_schema_limits_are_those_of_the_protocol() {
        let limits = Config::default().schema.limits();
        assert_eq!(limits.max_services, SchemaLimits::default().max_services);
        assert_eq!(limits.max_expansion, SchemaLimits::default().max_expansion);
    }
}
