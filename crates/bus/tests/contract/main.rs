//! What the bus promises, asked of all backends, and what Redis in trouble may cost.
//! Never: a promise asked of some backends only, unless it is about Redis itself.
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
mod cluster;
mod cluster_servers;
mod conversations;
mod directory;
mod facts;
mod faults;
mod moves;
mod notices;
mod offers;
mod probes;
mod sentinel;
mod station;
mod superseding;
mod trust;
mod turns;

use station::Site;

/// In a run that is about a cluster only: where it is.
const CLUSTER: &str = "SWITCHBOARD_TEST_CLUSTER";

/// Runs one promise over every backend; a cluster takes seconds to start, so all promises share one: see
/// `cluster::a_cluster_keeps_every_promise`.
async fn over_all<F>(promise: impl Fn(Site) -> F)
where
    F: Future<Output = ()>,
{
    if let Ok(url) = std::env::var(CLUSTER) {
        return promise(Site::among_others(url)).await;
    }
    promise(Site::local()).await;
    promise(Site::redis().await).await;
}
