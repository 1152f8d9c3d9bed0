//! What one device, call, reconnect and turn cost each kind of process, as measured.

use serde::{Deserialize, Serialize};

use crate::growth::Series;

/// A kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Owns the connections of devices.
    Edge,
    /// Receives calls.
    Gateway,
    /// Issues tokens and stores device events.
    Control,
    /// Answers turns.
    Chat,
    /// Carries the messages between nodes, and has the directory.
    Redis,
    /// Has what must last.
    Postgres,
}

impl Role {
    /// All roles, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Edge,
        Self::Gateway,
        Self::Control,
        Self::Chat,
        Self::Redis,
        Self::Postgres,
    ];

    /// What its nodes are called in tables.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Edge => "edges",
            Self::Gateway => "gateways",
            Self::Control => "control",
            Self::Chat => "chat",
            Self::Redis => "Redis shards",
            Self::Postgres => "PostgreSQL writers",
        }
    }
}

/// The costs of one role. CPU is in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Memory of a process without devices.
    pub base_bytes: f64,
    /// CPU of a process without work, in each second: leases, polls and metrics.
    #[serde(default)]
    pub base_us: f64,
    /// Memory for each connected device; of PostgreSQL, the size of its tables and indexes.
    pub device_bytes: f64,
    /// CPU of a call where neither it nor its answer meets another message.
    pub call_alone_us: f64,
    /// CPU of a call of many at once on a saturated machine: messages share writes and wake-ups.
    pub call_busy_us: f64,
    /// More CPU of a call whose device is not in the caller's cache of the directory.
    pub lookup_us: f64,
    /// CPU of a connected device in each second: its heartbeats.
    pub idle_us: f64,
    /// CPU of a device that disconnects, and comes back with its token, its resume ticket and the
    /// same services. Of a gateway, the CPU of each gateway: all are notified.
    pub return_us: f64,
    /// CPU of a turn of a conversation, without the model.
    pub turn_us: f64,
}

/// The measured costs of all roles, and how they grow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Coefficients {
    /// On which machine they were measured, in words that begin a sentence.
    pub measured: String,
    /// Costs of an edge.
    pub edge: Costs,
    /// Costs of a gateway.
    pub gateway: Costs,
    /// Costs of the control plane.
    pub control: Costs,
    /// Costs of chat.
    pub chat: Costs,
    /// Costs of Redis.
    pub redis: Costs,
    /// Costs of PostgreSQL.
    pub postgres: Costs,
    /// Memory of the kernel for each connection of an edge.
    pub kernel_bytes: f64,
    /// How the costs grow.
    pub growth: Vec<Series>,
}

impl Coefficients {
    /// The file of the committed coefficients, relative to the root of the repository.
    pub const FILE: &'static str = "crates/capacity/coefficients.json";

    /// The committed coefficients, as of the build.
    ///
    /// # Errors
    /// The file is not valid.
    pub fn committed() -> serde_json::Result<Self> {
        serde_json::from_str(include_str!("../coefficients.json"))
    }

    /// The costs of a role.
    #[must_use]
    pub const fn of(&self, role: Role) -> &Costs {
        match role {
            Role::Edge => &self.edge,
            Role::Gateway => &self.gateway,
            Role::Control => &self.control,
            Role::Chat => &self.chat,
            Role::Redis => &self.redis,
            Role::Postgres => &self.postgres,
        }
    }

    /// The costs of a role, to be changed.
    pub const fn of_mut(&mut self, role: Role) -> &mut Costs {
        match role {
            Role::Edge => &mut self.edge,
            Role::Gateway => &mut self.gateway,
            Role::Control => &mut self.control,
            Role::Chat => &mut self.chat,
            Role::Redis => &mut self.redis,
            Role::Postgres => &mut self.postgres,
        }
    }

    /// Replaces the series of the same axis and system, or adds it.
    pub fn put(&mut self, series: Series) {
        let is_same = |other: &Series| (other.axis, &other.system) == (series.axis, &series.system);
        self.growth.retain(|other| !is_same(other));
        self.growth.push(series);
        self.growth
            .sort_by(|one, other| (one.axis, &one.system).cmp(&(other.axis, &other.system)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::Axis;

    #[test]
    fn committed_coefficients_are_complete() {
        let committed = Coefficients::committed().unwrap();
        for role in Role::ALL {
            let costs = committed.of(role);
            assert!(costs.base_bytes > 0.0, "{role:?}: {costs:?}");
        }
        let of = |role| committed.of(role);
        for cost in [
            of(Role::Edge).device_bytes,
            of(Role::Edge).call_alone_us,
            of(Role::Edge).call_busy_us,
            of(Role::Edge).idle_us,
            of(Role::Edge).return_us,
            of(Role::Gateway).call_busy_us,
            of(Role::Redis).device_bytes,
            of(Role::Redis).lookup_us,
            of(Role::Redis).return_us,
            of(Role::Control).return_us,
            of(Role::Postgres).return_us,
            of(Role::Postgres).device_bytes,
            of(Role::Chat).turn_us,
            committed.kernel_bytes,
        ] {
            assert!(cost > 0.0, "{committed:?}");
        }
        assert!(!committed.growth.is_empty());
    }

    #[test]
    fn series_of_the_same_axis_and_system_is_replaced() {
        let series = |axis, system: &str| Series::new(axis, system);
        let mut coefficients = Coefficients::default();
        coefficients.put(series(Axis::Edges, "one Redis"));
        coefficients.put(series(Axis::Devices, "one Redis"));
        coefficients.put(series(Axis::Edges, "one Redis"));
        coefficients.put(series(Axis::Edges, "a cluster"));
        let kept: Vec<_> = coefficients
            .growth
            .iter()
            .map(|series| (series.axis, series.system.as_str()))
            .collect();
        assert_eq!(
            kept,
            [
                (Axis::Devices, "one Redis"),
                (Axis::Edges, "a cluster"),
                (Axis::Edges, "one Redis"),
            ]
        );
    }
}
