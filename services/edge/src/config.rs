//! The settings and limits of an edge. The documentation of each limit names what it protects.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use ipnet::IpNet;
use switchboard_protocol::schema::SchemaLimits;
use switchboard_runtime::outbound::{self, Uri};

/// The longest time that may be set for what a device has to do: a day, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 24 * 3_600 * 1_000;

/// Settings of an edge. Each can be set by flag, environment variable or file.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Maximum number of device connections, authenticated or not. Protects memory and file
    /// descriptors.
    #[arg(long, env, default_value_t = Config::default().device_max_connections)]
    pub device_max_connections: usize,

    /// Maximum number of device connections of one organisation; 0 for three quarters of
    /// `--device-max-connections`. Further devices are sent to another edge; one that is connected
    /// here may reconnect. Protects the devices of other organisations.
    #[arg(long, env, default_value_t = Config::default().device_connections_per_org)]
    pub device_connections_per_org: usize,

    /// Maximum number of connections that have not authenticated. When there are more, the oldest
    /// one of the network with the most of them is closed. Protects against sockets opened by
    /// strangers.
    #[arg(long, env, default_value_t = Config::default().device_max_unauthenticated)]
    pub device_max_unauthenticated: usize,

    /// Connections accepted per second from one address (one /64 for IPv6), with a burst of twice
    /// that; 0 for no limit. Protects other devices from one address in a reconnect loop.
    #[arg(long, env, default_value_t = Config::default().device_accepts_per_address_per_s)]
    pub device_accepts_per_address_per_s: u32,

    /// Networks of balancers, such as `10.0.0.0/8`. A connection from there must begin with a PROXY
    /// header (version 1 or 2), before TLS, and counts as the device's that the header names; from
    /// anywhere else no header is accepted. Protects one device's rate from all others behind the
    /// same balancer.
    #[arg(long, env, value_delimiter = ',', value_name = "NETWORK,…")]
    pub proxy_protocol_from: Vec<IpNet>,

    /// Milliseconds from accept to a valid AUTH, including a PROXY header and the TLS handshake.
    /// Protects the slots of unauthenticated connections.
    #[arg(long, env, default_value_t = Config::default().device_auth_timeout_ms)]
    pub device_auth_timeout_ms: u64,

    /// Seconds between the heartbeats of a device. A device that is silent for 2.5 of them is
    /// closed. Protects presence from devices that disappeared.
    #[arg(long, env, default_value_t = Config::default().device_heartbeat_s,
        value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub device_heartbeat_s: u32,

    /// Maximum bytes of a frame before AUTH. Protects memory from strangers.
    #[arg(long, env, default_value_t = Config::default().device_max_hello_bytes)]
    pub device_max_hello_bytes: u32,

    /// Maximum bytes of a frame after AUTH, in either direction. Protects memory, and bounds a
    /// result.
    #[arg(long, env, default_value_t = Config::default().device_max_frame_bytes)]
    pub device_max_frame_bytes: u32,

    /// Maximum number of tasks that a device may have open (unfinished text or audio). Protects
    /// memory.
    #[arg(long, env, default_value_t = Config::default().device_max_open_tasks)]
    pub device_max_open_tasks: u8,

    /// Maximum number of spoken conversations at the same time, each with 3.5 MiB of memory; one
    /// organisation has a quarter. Protects memory and processors.
    #[arg(long, env, default_value_t = Config::default().voice_max_sessions)]
    pub voice_max_sessions: usize,

    /// Providers of speech recognition and synthesis.
    #[command(flatten)]
    pub speech: switchboard_speech::Config,

    /// Maximum bytes of a device's message in one turn; a longer one is answered with a fixed
    /// sentence. Protects memory and the chat workers.
    #[arg(long, env, default_value_t = Config::default().device_max_turn_bytes)]
    pub device_max_turn_bytes: usize,

    /// Maximum number of a device's turns in flight, at most 8; a further one is answered with a
    /// fixed sentence. Protects the chat workers.
    #[arg(long, env, default_value_t = Config::default().device_max_turns,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=8))]
    pub device_max_turns: usize,

    /// Turns in a row that a device may begin; a further one is answered with a fixed sentence.
    /// Protects the bus and limits cost.
    #[arg(long, env, default_value_t = Config::default().device_turn_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_turn_burst: u32,

    /// Milliseconds after which a device may begin one more turn. Protects the same.
    #[arg(long, env, default_value_t = Config::default().device_turn_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_turn_every_ms: u32,

    /// Timeout in milliseconds of a turn: time without a response or keep-alive of a chat worker
    /// before the turn ends with a fixed sentence. Protects devices from waiting forever.
    #[arg(long, env, default_value_t = Config::default().turn_patience_ms,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub turn_patience_ms: u64,

    /// Registrations in a row that a device may send. Protects the processors that compile them and
    /// the database that stores them.
    #[arg(long, env, default_value_t = Config::default().device_register_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_register_burst: u32,

    /// Milliseconds after which a device may send one more registration. Protects the same.
    #[arg(long, env, default_value_t = Config::default().device_register_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_register_every_ms: u32,

    /// Maximum bytes of a progress or log message about a call, and of an event. Protects the bus
    /// and the caller.
    #[arg(long, env, default_value_t = Config::default().device_max_notice_bytes)]
    pub device_max_notice_bytes: usize,

    /// Progress and log messages in a row that a device may send about one call; more are dropped
    /// and counted. Protects the same.
    #[arg(long, env, default_value_t = Config::default().device_notice_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_notice_burst: u32,

    /// Milliseconds after which a device may send one more message about a call. Protects the same.
    #[arg(long, env, default_value_t = Config::default().device_notice_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_notice_every_ms: u32,

    /// Events in a row that a device may send; more are dropped and counted. Protects the bus and
    /// the database.
    #[arg(long, env, default_value_t = Config::default().device_event_burst,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_event_burst: u32,

    /// Milliseconds after which a device may send one more event. Protects the same.
    #[arg(long, env, default_value_t = Config::default().device_event_every_ms,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_event_every_ms: u32,

    /// Calls queued for one device before further calls are refused. Protects memory, and callers
    /// from a queue that only grows.
    #[arg(long, env, default_value_t = Config::default().device_max_calls_waiting)]
    pub device_max_calls_waiting: usize,

    /// Maximum bytes of params in that queue. Protects memory.
    #[arg(long, env, default_value_t = Config::default().device_max_waiting_bytes)]
    pub device_max_waiting_bytes: usize,

    /// Calls queued and in flight for one device before further calls are refused. Protects small
    /// devices.
    #[arg(long, env, default_value_t = Config::default().device_max_calls_in_flight)]
    pub device_max_calls_in_flight: usize,

    /// Bytes buffered for a device whose socket accepts no more before it is closed. Protects
    /// memory.
    #[arg(long, env, default_value_t = Config::default().device_max_unsent_bytes)]
    pub device_max_unsent_bytes: usize,

    /// Milliseconds that a device may read nothing while data waits for it before it is closed.
    /// Protects callers from a device that no longer reads.
    #[arg(long, env, default_value_t = Config::default().device_write_stall_ms,
        value_parser = clap::value_parser!(u64).range(1..=MAX_TIMEOUT_MS))]
    pub device_write_stall_ms: u64,

    /// Devices per second that are asked to reconnect elsewhere while draining. Protects the edges
    /// they reconnect to. The rate is higher if it would not reach all devices in half of the drain
    /// timeout.
    #[arg(long, env, default_value_t = Config::default().device_drain_per_s,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub device_drain_per_s: u32,

    /// URL that answers with a success while any edge is ready, such as `/readyz` of the admin port
    /// behind a balancer. Devices of an edge that is cut off from Redis for 5 s are sent elsewhere if
    /// it answers.
    #[arg(long, env, value_name = "URL", value_parser = outbound::parse_base_url)]
    pub edge_readiness_url: Option<Uri>,

    /// Milliseconds from the last GOAWAY of a drain until the remaining devices are closed.
    /// Protects a rolling restart from waiting forever.
    #[arg(long, env, default_value_t = Config::default().device_drain_timeout_ms)]
    pub device_drain_timeout_ms: u64,

    /// Maximum reconnect delay in milliseconds of a device that is sent away, chosen at random for
    /// each; less while an edge drains that has few devices. Protects the edges from a reconnect storm.
    #[arg(long, env, default_value_t = Config::default().device_retry_within_ms)]
    pub device_retry_within_ms: u32,

    /// Maximum bytes of TLS sessions that have not authenticated, 24 KiB each; one network uses at
    /// most a quarter. Further connections wait, and close sessions of the network that has most
    /// after a second. Protects memory from strangers.
    #[arg(long, env, default_value_t = Config::default().device_tls_handshake_bytes)]
    pub device_tls_handshake_bytes: usize,

    /// Maximum bytes of incomplete frames of more than 4 KiB; one organisation uses at most half,
    /// and a device beyond that is closed. Protects memory.
    #[arg(long, env, default_value_t = Config::default().device_incomplete_frame_bytes)]
    pub device_incomplete_frame_bytes: usize,

    /// Maximum bytes that wait in all connections for devices to read them, as messages for the bus,
    /// or as results for their check, without the first 4 KiB of each; one organisation uses at most a quarter. Protects
    /// memory from devices that do not read.
    #[arg(long, env, default_value_t = Config::default().device_messages_bytes)]
    pub device_messages_bytes: usize,

    /// Milliseconds in which a device must complete a frame that it began. Protects that memory
    /// from devices that never do.
    #[arg(long, env, default_value_t = Config::default().device_frame_timeout_ms,
        value_parser = clap::value_parser!(u64).range(1..=MAX_TIMEOUT_MS))]
    pub device_frame_timeout_ms: u64,

    /// Limits on the service definitions of devices.
    #[command(flatten)]
    pub schema: SchemaConfig,
}

/// Limits on service definitions. They come from devices, so they are untrusted.
#[derive(Debug, Clone, clap::Args)]
pub struct SchemaConfig {
    /// Maximum number of services of one device. Protects memory and tool lists.
    #[arg(long, env, default_value_t = SchemaConfig::default().schema_max_services)]
    pub schema_max_services: usize,

    /// Maximum bytes of one service's schema. Protects memory.
    #[arg(long, env, default_value_t = SchemaConfig::default().schema_max_bytes)]
    pub schema_max_bytes: usize,

    /// Maximum nesting depth of a schema. Protects the stack.
    #[arg(long, env, default_value_t = SchemaConfig::default().schema_max_depth)]
    pub schema_max_depth: usize,

    /// Maximum number of values in one schema. Protects the CPU while it is compiled.
    #[arg(long, env, default_value_t = SchemaConfig::default().schema_max_nodes)]
    pub schema_max_nodes: usize,

    /// Maximum number of values after every reference is followed. Protects the CPU from schemas
    /// that multiply.
    #[arg(long, env, default_value_t = SchemaConfig::default().schema_max_expansion)]
    pub schema_max_expansion: usize,

    /// Maximum bytes of all registered services, compiled and distinct; those of one organisation
    /// take at most half. Protects memory.
    #[arg(long, env, default_value_t = SchemaConfig::default().schema_max_compiled_bytes)]
    pub schema_max_compiled_bytes: usize,

    /// Values per second in the schemas of new services of one organisation that are compiled, with
    /// a burst of 20 times that; a pattern counts as 64 values, and services that another device
    /// already registered are not counted. Protects the CPU.
    #[arg(long, env, default_value_t = SchemaConfig::default().schema_values_per_org_per_s)]
    pub schema_values_per_org_per_s: NonZeroU32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device_max_connections: 100_000,
            device_connections_per_org: 0,
            device_max_unauthenticated: 16_384,
            device_accepts_per_address_per_s: 5_000,
            proxy_protocol_from: Vec::new(),
            device_auth_timeout_ms: 10_000,
            device_heartbeat_s: 30,
            device_max_hello_bytes: 4_096,
            device_max_frame_bytes: 262_144,
            device_max_open_tasks: 16,
            voice_max_sessions: 48,
            speech: switchboard_speech::Config::default(),
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
            edge_readiness_url: None,
            device_drain_timeout_ms: 20_000,
            device_retry_within_ms: 2_000,
            device_tls_handshake_bytes: 67_108_864,
            device_incomplete_frame_bytes: 67_108_864,
            device_messages_bytes: 67_108_864,
            device_frame_timeout_ms: 30_000,
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
            schema_max_compiled_bytes: 134_217_728,
            schema_values_per_org_per_s: NonZeroU32::MIN.saturating_add(19_999),
        }
    }
}

impl SchemaConfig {
    /// The limits in the form of the protocol crate.
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
    /// Device connections that one organisation may have, at least one.
    #[must_use]
    pub fn connections_per_org(&self) -> usize {
        match self.device_connections_per_org {
            0 => (self.device_max_connections / 4 * 3).max(1),
            limit => limit,
        }
    }

    /// Silence after which a device is closed: two and a half heartbeats, so that one may be lost.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.device_heartbeat_s) * 2_500)
    }

    /// Whether this address belongs to a balancer.
    #[must_use]
    pub fn is_balancer(&self, address: IpAddr) -> bool {
        // An IPv4-mapped IPv6 address counts as the IPv4 address.
        let address = address.to_canonical();
        let mut networks = self.proxy_protocol_from.iter();
        networks.any(|network| network.contains(&address))
    }

    /// Silence after which a device is pinged.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        Duration::from_secs(self.device_heartbeat_s.into())
    }

    /// Interval between sweeps over all connections. A service's own timeout must end within 250 ms
    /// of its time, so at most 200 ms; shorter only for short stall limits.
    #[must_use]
    pub fn sweep_interval(&self) -> Duration {
        Duration::from_millis((self.device_write_stall_ms / 2).clamp(50, 200))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_interval_follows_the_stall_limit() {
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
    fn one_organisation_has_three_quarters_of_the_connections_by_default() {
        fn check(max: usize, per_org: usize, expect: usize) {
            let config = Config {
                device_max_connections: max,
                device_connections_per_org: per_org,
                ..Config::default()
            };
            assert_eq!(config.connections_per_org(), expect, "{max} {per_org}");
        }
        check(100_000, 0, 75_000);
        check(100_000, 10_000, 10_000);
        check(100_000, 100_000, 100_000);
        check(1, 0, 1);
    }

    #[test]
    fn balancer_matches_mapped_addresses_and_no_default() {
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
    fn schema_limits_default_to_those_of_the_protocol() {
        let limits = Config::default().schema.limits();
        assert_eq!(limits.max_services, SchemaLimits::default().max_services);
        assert_eq!(limits.max_expansion, SchemaLimits::default().max_expansion);
    }
}
