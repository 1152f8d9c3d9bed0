//! The edge over real sockets, with an in-process bus. Tests wait for values with a deadline, and
//! never sleep for a fixed time.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod balancer;
mod calls;
mod close;
mod device;
mod device_connections;
mod frames;
mod handshake;
mod languages;
mod load;
mod messages;
mod node;
mod notifications;
mod pictures;
mod protocol_errors;
mod proxy_header;
mod redis_outage;
mod registration;
mod results;
mod schemas;
mod takeover;
mod tickets;
mod tls;
mod turns;
mod unauthenticated;
mod voice;
mod voice_limits;
mod voice_messages;
mod voice_recordings;
mod voice_tasks;
mod voice_usage;
