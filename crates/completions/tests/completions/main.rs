//! Completions with fake providers on real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

mod bounds;
mod calls;
mod cancellation;
mod cooldown;
mod failover;
mod fake_provider;
mod fixture;
mod metrics;
mod order;
mod replies;
mod temperature;
mod timeouts;
