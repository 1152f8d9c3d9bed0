//! The model: how many nodes a load needs, what they cost, and what breaks first.

use clap::Args;

use crate::coefficients::{Coefficients, Role};

/// Parts of the directory: more shards share nothing further, and one part is never split.
const DIRECTORY_PARTS: f64 = 64.0;
/// The share of a machine's memory that its process may use.
const MEMORY_UTILISATION: f64 = 0.8;
const BYTES_PER_GIB: f64 = 1_073_741_824.0;
const HOURS_PER_MONTH: f64 = 730.0;
const US_PER_S: f64 = 1e6;

/// What an installation has to carry at once.
#[derive(Debug, Clone, Copy, PartialEq, Args)]
pub struct Load {
    /// Connected devices
    #[arg(long, default_value_t = 100_000.0)]
    pub devices: f64,

    /// Calls per device and second, all through gateways
    #[arg(long, default_value_t = 0.01)]
    pub calls_per_device_second: f64,

    /// Fraction of the devices that lose their connections at once, and come back
    #[arg(long, default_value_t = 0.01)]
    pub reconnect_fraction: f64,

    /// Seconds within which they are connected again
    #[arg(long, default_value_t = 60.0)]
    pub reconnect_seconds: f64,

    /// Turns of conversations per device and second
    #[arg(long, default_value_t = 0.0)]
    pub turns_per_device_second: f64,

    /// Entries of the directory that a gateway caches: its setting of that name
    #[arg(long, default_value_t = 200_000.0)]
    pub directory_cache: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            devices: 100_000.0,
            calls_per_device_second: 0.01,
            reconnect_fraction: 0.01,
            reconnect_seconds: 60.0,
            turns_per_device_second: 0.0,
            directory_cache: 200_000.0,
        }
    }
}

impl Load {
    fn calls(&self) -> f64 {
        self.devices * self.calls_per_device_second
    }

    fn returns(&self) -> f64 {
        self.devices * self.reconnect_fraction / self.reconnect_seconds
    }

    fn turns(&self) -> f64 {
        self.devices * self.turns_per_device_second
    }

    /// The share of the calls whose device is not in the gateway's cache.
    fn uncached(&self) -> f64 {
        (1.0 - self.directory_cache / self.devices).max(0.0)
    }
}

/// The machine of one node. A Redis shard has one core and its share of the memory, because Redis
/// executes commands in one thread.
#[derive(Debug, Clone, Copy, PartialEq, Args)]
pub struct Machine {
    /// Cores of a node's machine; a Redis shard has one of them, and its share of the memory
    #[arg(long, default_value_t = 4.0)]
    pub cores: f64,

    /// Memory of a node's machine, in GiB; four fifths of it are used
    #[arg(long, default_value_t = 8.0)]
    pub gib: f64,

    /// Share of the cores that is used while devices come back
    #[arg(long, default_value_t = 0.6)]
    pub utilisation: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cores: 4.0,
            gib: 8.0,
            utilisation: 0.6,
        }
    }
}

impl Machine {
    fn of(&self, role: Role) -> Self {
        if role != Role::Redis {
            return *self;
        }
        Self {
            cores: 1.0,
            gib: self.gib / self.cores,
            ..*self
        }
    }

    fn usable_cores(&self) -> f64 {
        self.cores * self.utilisation
    }

    fn usable_bytes(&self) -> f64 {
        self.gib * BYTES_PER_GIB * MEMORY_UTILISATION
    }
}

/// What an hour costs. The defaults are list prices of machines on demand, rounded.
#[derive(Debug, Clone, Copy, PartialEq, Args)]
pub struct Prices {
    /// Price of a vCPU for an hour, in dollars
    #[arg(long, default_value_t = 0.04)]
    pub vcpu_hour: f64,

    /// Price of a GiB of memory for an hour, in dollars
    #[arg(long, default_value_t = 0.005)]
    pub gib_hour: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            vcpu_hour: 0.04,
            gib_hour: 0.005,
        }
    }
}

/// The nodes of one role.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nodes {
    /// What they do.
    pub role: Role,
    /// Cores in use, over all of them.
    pub cores: f64,
    /// Memory in use for devices, over all of them.
    pub bytes: f64,
    /// How many; absent if no number is enough.
    pub count: Option<f64>,
}

/// Something of which there is one, or a fixed number, and the devices that it can carry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// What it is.
    pub what: &'static str,
    /// The devices at which it is used to the full.
    pub devices: f64,
}

/// # The model
///
/// Everything is a sum of products. With `D` devices, `c = D · calls_per_device_second` calls,
/// `w = D · reconnect_fraction ÷ reconnect_seconds` returns and `t` turns in a second, a role uses
///
/// ```text
/// cores = (D · idle + c · (call + uncached · lookup) + w · return + t · turn) ÷ 10⁶
/// bytes = D · device_bytes
/// ```
///
/// - `call` is between the cost of a call on an idle machine and on a saturated one, in proportion to
///   the utilisation: messages that wait together share writes and wake-ups.
/// - `uncached` is the share of calls whose device is not among those that a gateway caches,
///   when all devices are called equally often.
/// - Every gateway is notified of each device that comes back: `w · return` is a part of each of them,
///   not of all together. If it exceeds the machine, no number of gateways is enough.
/// - Nodes are as many as their cores at the target utilisation and their memory require, and at least
///   one. There is no spare node in it: add one of each.
/// - A limit is what a part of which there is one can carry: its capacity, divided by what each device
///   uses of it at this load.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What it is for.
    pub load: Load,
    /// The nodes of each role that has work.
    pub nodes: Vec<Nodes>,
    /// What there is one of, the first to be exceeded first.
    pub limits: Vec<Limit>,
    /// The share of calls that read the directory.
    pub uncached: f64,
    /// Cores of all machines.
    pub machine_cores: Option<f64>,
    /// Memory of all machines.
    pub machine_gib: Option<f64>,
    /// Dollars for each device and month.
    pub device_month: Option<f64>,
}

/// Cores that a role uses, without what each gateway does for itself.
fn cores(costs: &Coefficients, role: Role, load: &Load, utilisation: f64) -> f64 {
    let of = costs.of(role);
    let call = of.call_alone_us + (of.call_busy_us - of.call_alone_us) * utilisation;
    let returns = if role == Role::Gateway {
        0.0
    } else {
        of.return_us
    };
    let us = load.devices * of.idle_us
        + load.calls() * (call + load.uncached() * of.lookup_us)
        + load.returns() * returns
        + load.turns() * of.turn_us;
    us / US_PER_S
}

/// Cores that each gateway uses for the notifications of devices that come back.
fn notified_cores(costs: &Coefficients, load: &Load) -> f64 {
    load.returns() * costs.gateway.return_us / US_PER_S
}

fn bytes(costs: &Coefficients, role: Role, devices: f64) -> f64 {
    let kernel = if role == Role::Edge {
        costs.kernel_bytes
    } else {
        0.0
    };
    devices * (costs.of(role).device_bytes + kernel)
}

impl Plan {
    /// Computes the nodes for a load.
    #[must_use]
    pub fn new(costs: &Coefficients, load: &Load, machine: &Machine, prices: &Prices) -> Self {
        let has_work = |role: &Role| *role != Role::Chat || load.turns() > 0.0;
        let nodes = Role::ALL.into_iter().filter(has_work);
        let nodes: Vec<_> = nodes
            .map(|role| nodes_of(costs, role, load, machine))
            .collect();
        let total = |size: fn(&Machine) -> f64| -> Option<f64> {
            let sizes = nodes
                .iter()
                .map(|nodes| Some(nodes.count? * size(&machine.of(nodes.role))));
            sizes.sum()
        };
        let (machine_cores, machine_gib) =
            (total(|machine| machine.cores), total(|machine| machine.gib));
        let month = machine_cores.zip(machine_gib).map(|(cores, gib)| {
            (cores * prices.vcpu_hour + gib * prices.gib_hour) * HOURS_PER_MONTH
        });
        Self {
            load: *load,
            limits: limits(costs, load, machine),
            uncached: load.uncached(),
            machine_cores,
            machine_gib,
            device_month: month.map(|month| month / load.devices),
            nodes,
        }
    }

    /// The number of nodes of a role; absent if no number is enough, 0 without work.
    #[must_use]
    pub fn count(&self, role: Role) -> Option<f64> {
        let nodes = self.nodes.iter().find(|nodes| nodes.role == role);
        nodes.map_or(Some(0.0), |nodes| nodes.count)
    }
}

fn nodes_of(costs: &Coefficients, role: Role, load: &Load, machine: &Machine) -> Nodes {
    let own = machine.of(role);
    let cores = cores(costs, role, load, machine.utilisation);
    let bytes = bytes(costs, role, load.devices);
    let each = if role == Role::Gateway {
        notified_cores(costs, load)
    } else {
        0.0
    };
    let core_room = own.usable_cores() - each;
    let byte_room = own.usable_bytes() - costs.of(role).base_bytes;
    let is_enough = core_room > 0.0 && byte_room > 0.0;
    let count = (cores / core_room).max(bytes / byte_room).ceil().max(1.0);
    Nodes {
        role,
        cores: cores + each * if is_enough { count } else { 1.0 },
        bytes,
        count: is_enough.then_some(count),
    }
}

/// What there is one of, in the order in which it is exceeded as the devices grow.
fn limits(costs: &Coefficients, load: &Load, machine: &Machine) -> Vec<Limit> {
    let carried = |room: f64, used: f64| load.devices * room / used;
    let by_cpu = |role: Role| {
        let used = cores(costs, role, load, machine.utilisation);
        carried(machine.of(role).usable_cores(), used)
    };
    let by_memory = |role: Role| {
        let used = bytes(costs, role, load.devices);
        carried(machine.of(role).usable_bytes(), used)
    };
    let shard = by_cpu(Role::Redis).min(by_memory(Role::Redis));
    let mut limits = [
        ("one Redis: CPU", by_cpu(Role::Redis)),
        ("one Redis: memory", by_memory(Role::Redis)),
        ("one PostgreSQL: CPU", by_cpu(Role::Postgres)),
        (
            "one PostgreSQL: tables in memory",
            by_memory(Role::Postgres),
        ),
        (
            "notifications of each gateway",
            carried(machine.usable_cores(), notified_cores(costs, load)),
        ),
        ("64 parts of the directory", DIRECTORY_PARTS * shard),
    ]
    .map(|(what, devices)| Limit { what, devices });
    limits.sort_by(|one, other| one.devices.total_cmp(&other.devices));
    limits
        .into_iter()
        .filter(|limit| limit.devices.is_finite())
        .collect()
}

/// What one process of each role uses of a machine with this many cores that they share: cores, and
/// bytes of memory, without that of the kernel.
#[must_use]
pub fn predict(costs: &Coefficients, load: &Load, machine_cores: f64) -> Vec<(Role, f64, f64)> {
    let used = |role, utilisation| {
        let each = if role == Role::Gateway {
            notified_cores(costs, load)
        } else {
            0.0
        };
        cores(costs, role, load, utilisation) + each
    };
    let total = |utilisation| -> f64 { Role::ALL.map(|role| used(role, utilisation)).iter().sum() };
    // `total` is linear in the utilisation u, and u = total(u) ÷ machine_cores.
    let (alone, busy) = (total(0.0), total(1.0));
    let utilisation = (alone / (machine_cores + alone - busy)).clamp(0.0, 1.0);
    let memory = |role| {
        let of = costs.of(role);
        of.base_bytes + load.devices * of.device_bytes
    };
    Role::ALL
        .map(|role| (role, used(role, utilisation), memory(role)))
        .to_vec()
}

#[cfg(test)]
mod tests {
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
                return_us: 200.0,
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
        // 100,000 devices, 10,000 calls and 1,000 returns in a second; a call is 40 − 0.6 · 20 µs.
        let plan = plan(&load(100_000.0));
        let edges = plan.nodes[0];
        assert_eq!(edges.role, Role::Edge);
        assert!((edges.cores - (0.1 + 0.28 + 0.1)).abs() < 1e-9, "{edges:?}");
        assert_eq!((edges.bytes, edges.count), (100e6, Some(1.0)));
        // Postgres: 0.2 of 2.4 cores; Redis: 0.28 + 0.05 of 0.6 cores.
        let devices = |what| {
            let found = plan.limits.iter().find(|limit| limit.what == what);
            found.map(|limit| limit.devices.round())
        };
        assert_eq!(devices("one PostgreSQL: CPU"), Some(1_200_000.0));
        assert_eq!(devices("one Redis: CPU"), Some(181_818.0));
        assert_eq!(plan.limits[0].what, "one Redis: CPU");
        assert_eq!(devices("one PostgreSQL: tables in memory"), None);
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
        // Each gateway uses 1 of its 2.4 cores for notifications, the calls 2.8: two of them.
        let many = plan(&load(10_000_000.0));
        assert_eq!(many.count(Role::Gateway), Some((28.0_f64 / 1.4).ceil()));
        let too_many = plan(&load(30_000_000.0));
        assert_eq!(too_many.count(Role::Gateway), None);
        assert_eq!(too_many.device_month, None);
    }

    #[test]
    fn memory_decides_when_nothing_moves() {
        let mut still = load(10_000_000.0);
        (still.calls_per_device_second, still.reconnect_fraction) = (0.0, 0.0);
        let plan = plan(&still);
        // 10 GB over shards of 2 GiB, of which 0.8 are used.
        assert_eq!(plan.count(Role::Redis), Some(6.0));
        assert_eq!(plan.count(Role::Chat), Some(0.0));
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
        let predicted = predict(&costs(), &load(100_000.0), 2.0);
        let total: f64 = predicted.iter().map(|(_, cores, _)| cores).sum();
        // Calls cost 1.2 − 0.6 · u cores, the rest 0.46.
        assert!((total - (1.66 - 0.6 * total / 2.0)).abs() < 1e-9, "{total}");
        assert_eq!(predicted[0].2, 110e6);
    }
}
