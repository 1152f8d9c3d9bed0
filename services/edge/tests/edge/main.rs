//! The edge over real sockets, with the bus inside the process.
//! Never: a sleep that hopes; everything waits for a value, with a deadline.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says where it failed by panicking there"
)]

#[path = "../../../../tests/support/haproxy.rs"]
mod haproxy;
#[path = "../../../../tests/support/redis_server.rs"]
mod redis_server;

mod balancer;
mod calls;
mod departure;
mod device;
mod hello;
mod load;
mod node;
mod notices;
mod outage;
mod proxy_header;
mod refusals;
mod registration;
mod tls;
mod turns;
