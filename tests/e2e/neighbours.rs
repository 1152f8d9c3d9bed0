//! Noisy neighbours: one organisation, or peers without a credential, take all that they are
//! allowed to take, while another organisation is served.
//!
//! Each test measures the calls of the other organisation before and during an attack, and the
//! memory of the process that is attacked. A call that fails fails the test. `cargo xtask
//! neighbours` runs the attacks at full size against the release build, and prints the measured
//! values as a table; here they are small, and times are not asserted.

mod attacks;

use std::{
    env,
    io::Write as _,
    pin::pin,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use switchboard_test_support::switchboard::Program;
use tokio::task::JoinSet;

use crate::{
    cluster::{Org, TestCluster, echo_services},
    device::Device,
    hostile::resident_kib,
};

/// File to which the measured values are appended, a JSON object per line. It also selects the
/// full size.
const REPORT: &str = "SWITCHBOARD_NEIGHBOURS_REPORT";
/// Calls of the other organisation before an attack, and while it holds what it has taken.
const CALLS: usize = 100;
/// Interval between two of its calls.
const CALL_INTERVAL: Duration = Duration::from_millis(10);
/// Within this time a call succeeds, whatever others do.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after an attack until memory is measured again.
const RECOVERY_TIME: Duration = Duration::from_secs(60);

/// The other organisation, with a device that answers.
struct Bystander {
    org: Org,
    device: &'static str,
    _served: JoinSet<usize>,
}

/// The duration of each call of the other organisation, in the order of their ends.
#[derive(Default)]
struct Calls(Vec<Duration>);

impl Bystander {
    async fn start(cluster: &TestCluster) -> Self {
        let (org, device) = (cluster.another_org("Bystander").await, "quiet");
        let token = cluster.token(&org, "device:quiet", &["device"]).await;
        let token = token["access_token"].as_str().unwrap();
        let mut connected = Device::connect(&cluster.edges[0].address("device_addr"), token).await;
        connected.register(&echo_services()).await;
        Self {
            org,
            device,
            _served: connected.serve(),
        }
    }

    /// Makes one call, which must succeed.
    async fn call(&self, cluster: &TestCluster) -> Duration {
        let begun = Instant::now();
        let body = json!({"service": "echo", "params": {"text": "still there"}});
        let call = cluster.call_as(&self.org, self.device, &body);
        let (status, answer) = tokio::time::timeout(CALL_TIMEOUT, call)
            .await
            .expect("a call of the bystander ends in time");
        assert_eq!(answer["outcome"], "succeeded", "{status}: {answer}");
        begun.elapsed()
    }

    /// Calls until `attack` has ended.
    async fn call_during<T>(
        &self,
        cluster: &TestCluster,
        attack: impl Future<Output = T>,
    ) -> (Calls, T) {
        let (mut calls, mut attack) = (Calls::default(), pin!(attack));
        loop {
            calls.0.push(self.call(cluster).await);
            tokio::select! {
                biased;
                attacked = &mut attack => return (calls, attacked),
                () = tokio::time::sleep(CALL_INTERVAL) => {}
            }
        }
    }
}

impl Calls {
    fn p99_ms(&mut self) -> f64 {
        self.0.sort_unstable();
        let index = (self.0.len() * 99).div_ceil(100).saturating_sub(1);
        self.0[index].as_secs_f64() * 1e3
    }
}

/// Whether attacks have their full size.
fn is_full() -> bool {
    env::var_os(REPORT).is_some()
}

/// The number for a run of the test suite, or the one for a run at full size.
fn sized(small: usize, full: usize) -> usize {
    if is_full() { full } else { small }
}

/// Measures the other organisation before and during an attack on a process. The attack returns
/// what it holds, which is released when it has been measured.
async fn measure<T>(
    name: &str,
    cluster: &TestCluster,
    attacked: &Program,
    attack: impl Future<Output = T>,
) {
    let bystander = Bystander::start(cluster).await;
    let mut before = Calls::default();
    for _ in 0..CALLS {
        before.0.push(bystander.call(cluster).await);
    }
    let memory_before = resident_kib(attacked.pid());
    let (mut during, held) = bystander.call_during(cluster, attack).await;
    for _ in 0..CALLS {
        during.0.push(bystander.call(cluster).await);
    }
    let memory_during = resident_kib(attacked.pid());
    drop(held);
    if !is_full() {
        return;
    }
    let recovered = Instant::now() + RECOVERY_TIME;
    while Instant::now() < recovered {
        tokio::time::sleep(CALL_INTERVAL).await;
    }
    report(&json!({
        "attack": name,
        "calls": during.0.len(),
        "p99_before_ms": before.p99_ms(),
        "p99_during_ms": during.p99_ms(),
        "memory_before_kib": memory_before,
        "memory_during_kib": memory_during,
        "memory_after_kib": resident_kib(attacked.pid()),
    }));
}

fn report(row: &Value) {
    let path = env::var_os(REPORT).unwrap_or_default();
    let mut file = std::fs::File::options()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    writeln!(file, "{row}").unwrap();
}
