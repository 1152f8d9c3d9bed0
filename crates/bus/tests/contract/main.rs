//! What the bus promises, asked of both backends, and what Redis in trouble may cost.
//! Never: a promise asked of one backend only, unless it is about Redis itself.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says where it failed by panicking there"
)]

#[path = "../../../../tests/support/eventually.rs"]
mod eventually;
#[path = "../../../../tests/support/redis_server.rs"]
mod redis_server;

mod calls;
mod directory;
mod facts;
mod faults;
mod notices;
mod offers;
mod station;
mod trust;

use station::Site;

/// Runs one promise over both backends.
async fn over_both<F>(promise: impl Fn(Site) -> F)
where
    F: Future<Output = ()>,
{
    promise(Site::local()).await;
    promise(Site::redis().await).await;
}
