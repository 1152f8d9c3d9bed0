//! The edge over real sockets, with the bus inside the process.
//! Never: a sleep that hopes; everything waits for a value, with a deadline.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says where it failed by panicking there"
)]

#[expect(dead_code, reason = "other tests ask more of it")]
#[path = "../../../../tests/support/redis_server.rs"]
mod redis_server;

mod calls;
mod departure;
mod device;
mod hello;
mod load;
mod node;
mod notices;
mod outage;
mod refusals;
mod registration;
mod tls;
