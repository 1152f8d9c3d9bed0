//! The contract of the bus, tested over all backends, and its behaviour when Redis fails.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed assertion shows its position"
)]

mod black_hole;
mod calls;
mod catalog_events;
mod cluster;
mod cluster_servers;
mod compatibility;
mod conversation_limits;
mod conversations;
mod device_events;
mod directory;
mod faults;
mod leases;
mod live_events;
mod metrics;
mod notifications;
mod pinned_keys;
mod quotas;
mod registrations;
mod sentinel;
mod slot_migration;
mod superseded_turns;
mod test_edge;
mod tickets;
mod tls;
mod token_keys;
mod turn_shares;
mod turns;

use test_edge::TestSystem;

/// The URL of the cluster, in a run that tests a cluster only.
const CLUSTER: &str = "SWITCHBOARD_TEST_CLUSTER";

/// Runs a test over every backend. A cluster takes seconds to start, so all tests share one: see
/// `cluster::contract_holds_in_a_cluster`.
async fn for_each_backend<F>(test: impl Fn(TestSystem) -> F)
where
    F: Future<Output = ()>,
{
    if let Ok(url) = std::env::var(CLUSTER) {
        return test(TestSystem::shared(url)).await;
    }
    test(TestSystem::local()).await;
    test(TestSystem::redis().await).await;
}
