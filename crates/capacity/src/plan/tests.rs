//! What a load needs, and what it exceeds first.

use super::*;
use crate::coefficients::Costs;

fn costs() -> Coefficients {
    let call = Costs {
        base_bytes: 10e6,
        device_bytes: 1_000.0,
        call_alone_us: 40.0,
        call_busy_us: 20.0,
        ..Costs::default()
    };
    Coefficients {
        edge: Costs {
            idle_us: 1.0,
            return_us: 100.0,
            ..call
        },
        gateway: Costs {
            return_us: 10.0,
            ..call
        },
        redis: Costs {
            lookup_us: 8.0,
            return_us: 50.0,
            ..call
        },
        postgres: Costs {
            return_us: 240.0,
            ..Costs::default()
        },
        ..Coefficients::default()
    }
}

fn load(devices: f64) -> Load {
    Load {
        devices,
        calls_per_device_second: 0.1,
        reconnect_fraction: 0.6,
        ..Load::default()
    }
}

fn plan(load: &Load) -> Plan {
    Plan::new(&costs(), load, &Machine::default(), &Prices::default())
}

#[test]
fn nodes_are_sums_of_products() {
    // 100,000 devices, 10,000 calls and 1,000 returns in a second; a call is 20 + 0.4 · 20 µs.
    let plan = plan(&load(100_000.0));
    let edges = plan.nodes[0];
    assert_eq!(edges.role, Role::Edge);
    assert!((edges.cores - (0.1 + 0.28 + 0.1)).abs() < 1e-9, "{edges:?}");
    assert_eq!((edges.bytes, edges.count), (100e6, Some(1.0)));
}

#[test]
fn limit_is_where_one_part_needs_all_that_it_has() {
    let plan = plan(&load(1e6));
    let limits: Vec<_> = plan
        .limits
        .iter()
        .map(|limit| (limit.what, limit.devices.round()))
        .collect();
    assert_eq!(
        limits,
        [
            // (2.32 + 0.5) µs of each device, and 0.8 of each beyond the cache's 200,000.
            ("one Redis: CPU", 209_945.0),
            // 0.8 µs of each device beyond the cache's.
            ("leases of a cluster", 950_000.0),
            ("one PostgreSQL: CPU", 1_000_000.0),
            ("one stream of device events, at least", 1_200_000.0),
            // 1,000 bytes of each device, beside 10 MB.
            ("one Redis: memory", 1_707_987.0),
            ("notifications of each gateway", 24_000_000.0),
            // 0.5 µs of each device and 0.8 of each beyond the cache's, at 64 × 0.6 cores.
            ("64 parts of the directory", 29_661_538.0),
        ]
    );
    let fewer = self::plan(&load(1_000.0));
    assert_eq!(fewer.limits, plan.limits, "whatever the load has");
}

#[test]
fn cache_that_is_too_small_costs_look_ups() {
    assert_eq!(plan(&load(200_000.0)).uncached, 0.0);
    let mut million = load(1_000_000.0);
    assert_eq!(plan(&million).uncached, 0.8);
    million.directory_cache = million.devices;
    assert_eq!(plan(&million).uncached, 0.0);
}

#[test]
fn notifications_can_exceed_every_number_of_gateways() {
    // Each gateway uses 1 of its 2.4 cores for notifications; the calls use 28.
    let many = plan(&load(10_000_000.0));
    assert_eq!(many.count(Role::Gateway), Some((28.0_f64 / 1.4).ceil()));
    let too_many = plan(&load(30_000_000.0));
    assert_eq!(too_many.count(Role::Gateway), None);
    assert_eq!(too_many.device_month, None);
}

#[test]
fn memory_and_connections_decide_when_nothing_moves() {
    let mut still = load(10_000_000.0);
    (still.calls_per_device_second, still.reconnect_fraction) = (0.0, 0.0);
    let plan = plan(&still);
    assert_eq!(plan.count(Role::Edge), Some(100.0));
    // 10 GB over shards of 2 GiB, of which 0.8 are used.
    assert_eq!(plan.count(Role::Redis), Some(6.0));
    assert_eq!(plan.count(Role::Chat), Some(0.0));
    assert_eq!(plan.count(Role::Gateway), Some(2.0));
    // 10 GB of entries in each gateway of 8 GiB.
    still.directory_cache = 50_000_000.0;
    still.devices = still.directory_cache;
    assert_eq!(self::plan(&still).count(Role::Gateway), None);
}

#[test]
fn month_costs_all_machines() {
    let plan = plan(&load(1_000.0));
    // One each of edge, gateway, control and PostgreSQL, and a shard.
    assert_eq!(
        (plan.machine_cores, plan.machine_gib),
        (Some(17.0), Some(34.0))
    );
    let month = (17.0 * 0.04 + 34.0 * 0.005) * 730.0 / 1_000.0;
    assert!((plan.device_month.unwrap() - month).abs() < 1e-9);
}

#[test]
fn shared_machine_is_as_busy_as_its_processes_make_it() {
    fn check(machine_cores: f64, calls: impl Fn(f64) -> f64) {
        let predicted = predict(&costs(), &load(100_000.0), machine_cores);
        let total: f64 = predicted.iter().map(|(_, cores, _)| cores).sum();
        let expected = 0.5 + calls(total / machine_cores);
        assert!((total - expected).abs() < 1e-9, "{machine_cores}: {total}");
        let bytes = |index: usize| predicted[index].2;
        // An edge, and a gateway with 200 bytes for each device.
        assert_eq!((bytes(0), bytes(1)), (110e6, 130e6));
    }
    check(2.0, |u| 0.6 + 0.4 * (1.0 - u) + 0.2 * (1.0 - u).powi(2));
    check(0.5, |_| 0.6);
}
