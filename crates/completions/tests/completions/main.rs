//! Replies of stand-in providers on real sockets, who say what real ones say, and fail as they do.
//! Never: a provider that is not this process's own.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says where it failed by panicking there"
)]

mod bounds;
mod calls;
mod failing;
mod leaving;
mod metrics;
mod order;
mod provider;
mod replies;
mod resting;
mod slow;
mod stage;
mod temperature;
