//! The model: how many nodes a load needs, what they cost, and what breaks first.

use crate::{
    coefficients::{Coefficients, Role},
    load::{Load, Machine, Prices},
};

/// An organisation is in one part of the directory, and a part at one shard.
const DIRECTORY_PARTS: f64 = 64.0;
/// The most that an entry takes in a gateway's cache of the directory.
const CACHED_ENTRY_BYTES: f64 = 200.0;
const HOURS_PER_MONTH: f64 = 730.0;
const US_PER_S: f64 = 1e6;
/// The power of ten of devices beyond which something has no limit.
const MAX_EXPONENT: f64 = 12.0;
/// Enough for all digits of a number.
const BISECTIONS: u32 = 60;

/// The nodes of one role.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nodes {
    /// What they do.
    pub role: Role,
    /// Cores in use, over all of them, if their machines are used as far as they may be.
    pub cores: f64,
    /// Bytes of memory in use for devices, over all of them.
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
/// With `D` devices, `c = D · calls_per_device_second` calls,
/// `w = D · reconnect_fraction ÷ reconnect_seconds` returns and `t` turns in a second, a role uses
///
/// ```text
/// cores = (D · idle + c · (call + uncached · lookup) + w · return + t · turn) ÷ 10⁶
/// bytes = D · device_bytes
/// call  = call_busy + (call_alone − call_busy) · (1 − u)ⁿ, n = 2 for Redis, otherwise 1
/// ```
///
/// - `u` is the utilisation of the machines of edges and gateways. Messages that wait together share
///   writes and wake-ups. A node handles a message alone if it is idle when the message arrives, with
///   a probability of `1 − u`. Redis handles it alone if the sender has not sent another with it, nor
///   the receiver the answer: its cost falls with their utilisation, not with its own.
/// - Nodes and limits are computed at the target utilisation. So are the cores in use: machines that
///   are used less need somewhat more for the same calls.
/// - `uncached` is the share of calls whose device is not among those that a gateway caches,
///   when all devices are called equally often.
/// - Every gateway is notified of each device that comes back: `w · return` is a part of each of them,
///   not of all together. If it exceeds the machine, no number of gateways is enough.
/// - Nodes are as many as their cores at the target utilisation, their memory without that of the
///   process itself and a gateway's cache, and the connections of an edge require, and at least one.
///   There is no spare node in it: add one of each.
/// - A limit is the number of devices at which a part of which there is one needs all that it has.
///   A shard with a part of the directory has its entries, look-ups and returns, and not the messages
///   of calls. A look-up on a cluster also reads a lease, all of which are at one shard; it is charged
///   like the look-up. Of a return, the stream of device events is charged all that Redis does, since its share
///   is not measured: it carries at least as many devices.
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
    /// Memory of all machines, in GiB.
    pub machine_gib: Option<f64>,
    /// Dollars for each device and month.
    pub device_month: Option<f64>,
}

/// Cores that a role uses, without what each gateway does for itself.
fn cores(costs: &Coefficients, role: Role, load: &Load, utilisation: f64) -> f64 {
    let of = costs.of(role);
    let ends = if role == Role::Redis { 2 } else { 1 };
    let alone = (1.0 - utilisation).powi(ends);
    let call = of.call_busy_us + (of.call_alone_us - of.call_busy_us) * alone;
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

/// Cores that each node of a role uses for itself: without work, and a gateway for the devices that
/// come back.
fn own_cores(costs: &Coefficients, role: Role, load: &Load) -> f64 {
    let returns = if role == Role::Gateway {
        load.returns() * costs.gateway.return_us
    } else {
        0.0
    };
    (costs.of(role).base_us + returns) / US_PER_S
}

fn bytes(costs: &Coefficients, role: Role, devices: f64) -> f64 {
    let kernel = if role == Role::Edge {
        costs.kernel_bytes
    } else {
        0.0
    };
    devices * (costs.of(role).device_bytes + kernel)
}

/// Memory that each node of a role uses for itself: its process, and the cache of a gateway.
fn own_bytes(costs: &Coefficients, role: Role, load: &Load) -> f64 {
    let entries = if role == Role::Gateway {
        load.cached()
    } else {
        0.0
    };
    costs.of(role).base_bytes + entries * CACHED_ENTRY_BYTES
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
    let of = machine.of(role);
    let cores = cores(costs, role, load, machine.utilisation);
    let bytes = bytes(costs, role, load.devices);
    let own_cores = own_cores(costs, role, load);
    let core_room = of.usable_cores() - own_cores;
    let byte_room = of.usable_bytes() - own_bytes(costs, role, load);
    let connections = if role == Role::Edge {
        load.devices
    } else {
        0.0
    };
    let is_enough = core_room > 0.0 && byte_room > 0.0;
    let count = (cores / core_room)
        .max(bytes / byte_room)
        .max(connections / of.device_max_connections)
        .ceil()
        .max(1.0);
    Nodes {
        role,
        cores: cores + own_cores * if is_enough { count } else { 1.0 },
        bytes,
        count: is_enough.then_some(count),
    }
}

/// What there is one of, in the order in which it is exceeded as the devices grow.
fn limits(costs: &Coefficients, load: &Load, machine: &Machine) -> Vec<Limit> {
    let has_cores = |role, used: f64| used <= machine.of(role).usable_cores();
    let has_bytes = |role, load: &Load, parts: f64| {
        let used = own_bytes(costs, role, load) + bytes(costs, role, load.devices) / parts;
        used <= machine.of(role).usable_bytes()
    };
    let by_cpu = |role, load: &Load| has_cores(role, cores(costs, role, load, machine.utilisation));
    let return_us = |load: &Load| load.returns() * costs.redis.return_us;
    let lookup_us = |load: &Load| load.calls() * load.uncached() * costs.redis.lookup_us;
    let limit = |what, fits: &dyn Fn(&Load) -> bool| {
        let devices = max_devices(load, fits)?;
        Some(Limit { what, devices })
    };
    let limits = [
        limit("one Redis: CPU", &|load| by_cpu(Role::Redis, load)),
        limit("one Redis: memory", &|load| {
            has_bytes(Role::Redis, load, 1.0)
        }),
        limit("one PostgreSQL: CPU", &|load| by_cpu(Role::Postgres, load)),
        limit("one PostgreSQL: tables in memory", &|load| {
            has_bytes(Role::Postgres, load, 1.0)
        }),
        limit("notifications of each gateway", &|load| {
            has_cores(Role::Gateway, own_cores(costs, Role::Gateway, load))
        }),
        limit("one stream of device events, at least", &|load| {
            has_cores(Role::Redis, return_us(load) / US_PER_S)
        }),
        limit("leases of a cluster", &|load| {
            has_cores(Role::Redis, lookup_us(load) / US_PER_S)
        }),
        limit("64 parts of the directory", &|load| {
            let used = (lookup_us(load) + return_us(load)) / US_PER_S;
            has_cores(Role::Redis, used / DIRECTORY_PARTS)
                && has_bytes(Role::Redis, load, DIRECTORY_PARTS)
        }),
    ];
    let mut limits: Vec<_> = limits.into_iter().flatten().collect();
    limits.sort_by(|one, other| one.devices.total_cmp(&other.devices));
    limits
}

/// The devices up to which something fits, at what each of them does; absent if any number does.
fn max_devices(load: &Load, fits: &dyn Fn(&Load) -> bool) -> Option<f64> {
    let devices = |exponent| 10_f64.powf(exponent);
    let fits = |exponent: f64| {
        let devices = devices(exponent);
        fits(&Load { devices, ..*load })
    };
    (!fits(MAX_EXPONENT)).then(|| devices(bisect(MAX_EXPONENT, fits)))
}

/// The number from 0 to `max` up to which a condition holds.
fn bisect(max: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, max);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// What one process of each role uses of a machine with this many cores that they share: cores, and
/// bytes of memory, without that of the kernel.
#[must_use]
pub fn predict(costs: &Coefficients, load: &Load, machine_cores: f64) -> Vec<(Role, f64, f64)> {
    let used =
        |role, utilisation| cores(costs, role, load, utilisation) + own_cores(costs, role, load);
    let total = |utilisation| -> f64 { Role::ALL.map(|role| used(role, utilisation)).iter().sum() };
    // The busier the machine, the less do its processes use: they meet at one utilisation.
    let utilisation = bisect(1.0, |utilisation| {
        total(utilisation) > utilisation * machine_cores
    });
    let memory = |role| own_bytes(costs, role, load) + load.devices * costs.of(role).device_bytes;
    Role::ALL
        .map(|role| (role, used(role, utilisation), memory(role)))
        .to_vec()
}

#[cfg(test)]
mod tests;
