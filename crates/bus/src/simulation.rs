//! The bus in virtual time: nodes, devices and calls, and a Redis and a network that fail as a seed
//! decides.
//!
//! ```text
//!   scenario ──► actors: nodes (Bus), devices ──► network: Link ──► Redis (memory, leases)
//!      │            │                               cut, slow, twice, lost
//!      └── faults   └──► ledger: calls, executions, outcomes ──► violations of docs/invariants.md
//! ```
//!
//! A seed draws everything that the simulation decides, and its run is the same each time: ids are
//! counted, and nothing depends on the order in a hash map.

mod process;

pub(crate) use self::process::{gated, unique_id, unix_now_ms, unix_time};

mod tests {
    mod actors;
    mod ledger;
    mod network;
    mod scenario;

    use std::{collections::BTreeMap, sync::Arc};

    use super::process;

    /// How many seeds all tests together run, unless the variable of [`setting`] has another number.
    const SEEDS: u64 = 1_000;
    const TESTS: u64 = 4;

    fn setting(name: &str) -> Option<u64> {
        let value = std::env::var(name).ok()?;
        Some(value.parse().unwrap())
    }

    fn run(seed: u64) -> Arc<ledger::Ledger> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.unwrap().block_on(scenario::run(seed))
    }

    /// Runs the seeds of one of the tests.
    fn check(test: u64) {
        let seeds = setting("SWITCHBOARD_SIMULATION_SEEDS").unwrap_or(SEEDS);
        let first = setting("SWITCHBOARD_SIMULATION_FIRST_SEED").unwrap_or(0);
        let mut outcomes = BTreeMap::new();
        for seed in (first..first + seeds).filter(|seed| seed % TESTS == test) {
            let ledger = run(seed);
            if let Some(violations) = ledger.verdict() {
                panic!("{violations}\nseed {seed}");
            }
            for (outcome, count) in ledger.counts() {
                *outcomes.entry(outcome).or_insert(0) += count;
            }
        }
        if seeds >= SEEDS {
            // The scenarios are not empty.
            for outcome in [
                "succeeded",
                "timed_out",
                "lost",
                "offline",
                "refused",
                "executed",
            ] {
                assert!(outcomes.contains_key(outcome), "{outcomes:?}");
            }
        }
    }

    macro_rules! tests {
        ($($name:ident: $test:literal,)*) => {$(#[test] fn $name() { check($test) })*};
    }

    tests! {
        i1_simulated_faults_delay_no_call: 0,
        i2_simulated_faults_repeat_no_call: 1,
        i3_simulated_faults_leave_outcomes_true: 2,
        i8_simulated_faults_leave_devices_callable: 3,
    }

    #[test]
    fn simulated_seed_repeats_its_run() {
        for seed in 0..10 {
            assert_eq!(run(seed).trace(), run(seed).trace(), "seed {seed}");
        }
    }
}
