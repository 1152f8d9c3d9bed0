//! What is computed for: the load, the machines and what they cost.

use clap::Args;

use crate::coefficients::Role;

pub(crate) const BYTES_PER_GIB: f64 = 1_073_741_824.0;
/// The share of a machine's memory that its process may use.
const MEMORY_UTILISATION: f64 = 0.8;

/// What an installation has to carry at once.
#[derive(Debug, Clone, Copy, PartialEq, Args)]
pub struct Load {
    /// Connected devices
    #[arg(long, default_value_t = Self::default().devices, value_parser = positive,
          allow_negative_numbers = true)]
    pub devices: f64,

    /// Calls per device and second, all through gateways
    #[arg(long, default_value_t = Self::default().calls_per_device_second, value_parser = amount,
          allow_negative_numbers = true)]
    pub calls_per_device_second: f64,

    /// Share of the devices that lose their connections at once, and come back
    #[arg(long, default_value_t = Self::default().reconnect_fraction, value_parser = share,
          allow_negative_numbers = true)]
    pub reconnect_fraction: f64,

    /// Seconds within which they are connected again
    #[arg(long, default_value_t = Self::default().reconnect_seconds, value_parser = positive,
          allow_negative_numbers = true)]
    pub reconnect_seconds: f64,

    /// Turns of conversations per device and second
    #[arg(long, default_value_t = Self::default().turns_per_device_second, value_parser = amount,
          allow_negative_numbers = true)]
    pub turns_per_device_second: f64,

    /// Entries of the directory that a gateway caches: its setting of that name
    #[arg(long, default_value_t = Self::default().directory_cache, value_parser = amount,
          allow_negative_numbers = true)]
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
    pub(crate) fn calls(&self) -> f64 {
        self.devices * self.calls_per_device_second
    }

    pub(crate) fn returns(&self) -> f64 {
        self.devices * self.reconnect_fraction / self.reconnect_seconds
    }

    pub(crate) fn turns(&self) -> f64 {
        self.devices * self.turns_per_device_second
    }

    /// The entries in the cache of each gateway.
    pub(crate) fn cached(&self) -> f64 {
        self.directory_cache.min(self.devices)
    }

    /// The share of the calls whose device is not in the gateway's cache.
    pub(crate) fn uncached(&self) -> f64 {
        1.0 - self.cached() / self.devices
    }
}

/// The machine of one node. A Redis shard has one core and its share of the memory, because Redis
/// executes commands in one thread.
#[derive(Debug, Clone, Copy, PartialEq, Args)]
pub struct Machine {
    /// Cores of a node's machine; a Redis shard has one of them, and its share of the memory
    #[arg(long, default_value_t = Self::default().cores, value_parser = positive,
          allow_negative_numbers = true)]
    pub cores: f64,

    /// Memory of a node's machine, in GiB; four fifths of it are used
    #[arg(long, default_value_t = Self::default().gib, value_parser = positive,
          allow_negative_numbers = true)]
    pub gib: f64,

    /// Share of the cores that is used while devices come back
    #[arg(long, default_value_t = Self::default().utilisation, value_parser = share,
          allow_negative_numbers = true)]
    pub utilisation: f64,

    /// Connections that an edge accepts: its setting of that name
    #[arg(long, default_value_t = Self::default().device_max_connections, value_parser = positive,
          allow_negative_numbers = true)]
    pub device_max_connections: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cores: 4.0,
            gib: 8.0,
            utilisation: 0.6,
            device_max_connections: 100_000.0,
        }
    }
}

impl Machine {
    pub(crate) fn of(&self, role: Role) -> Self {
        if role != Role::Redis {
            return *self;
        }
        Self {
            cores: 1.0,
            gib: self.gib / self.cores,
            ..*self
        }
    }

    pub(crate) fn usable_cores(&self) -> f64 {
        self.cores * self.utilisation
    }

    pub(crate) fn usable_bytes(&self) -> f64 {
        self.gib * BYTES_PER_GIB * MEMORY_UTILISATION
    }
}

/// What an hour costs. The defaults are list prices of machines on demand, rounded.
#[derive(Debug, Clone, Copy, PartialEq, Args)]
pub struct Prices {
    /// Price of a vCPU for an hour, in dollars
    #[arg(long, default_value_t = Self::default().vcpu_hour, value_parser = amount,
          allow_negative_numbers = true)]
    pub vcpu_hour: f64,

    /// Price of a GiB of memory for an hour, in dollars
    #[arg(long, default_value_t = Self::default().gib_hour, value_parser = amount,
          allow_negative_numbers = true)]
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

fn positive(text: &str) -> Result<f64, String> {
    number(text, "above 0", |value| value > 0.0)
}

fn amount(text: &str) -> Result<f64, String> {
    number(text, "of at least 0", |value| value >= 0.0)
}

fn share(text: &str) -> Result<f64, String> {
    number(text, "from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

fn number(text: &str, range: &str, is_valid: fn(f64) -> bool) -> Result<f64, String> {
    let value = text.parse::<f64>().ok();
    let value = value.filter(|value| value.is_finite() && is_valid(*value));
    value.ok_or_else(|| format!("it is not a number {range}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        machine: Machine,
        #[command(flatten)]
        prices: Prices,
    }

    fn parse(arguments: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(["capacity"].into_iter().chain(arguments.split_whitespace()))
    }

    #[test]
    fn number_outside_its_range_is_refused_with_the_range() {
        for (arguments, range) in [
            ("--devices 0", "above 0"),
            ("--devices -1", "above 0"),
            ("--devices nan", "above 0"),
            ("--devices inf", "above 0"),
            ("--reconnect-seconds 0", "above 0"),
            ("--cores 0", "above 0"),
            ("--utilisation 5", "from 0 to 1"),
            ("--reconnect-fraction -0.1", "from 0 to 1"),
            ("--calls-per-device-second -1", "of at least 0"),
            ("--gib-hour -1", "of at least 0"),
        ] {
            let error = parse(arguments).unwrap_err().to_string();
            let expected = format!("it is not a number {range}");
            assert!(error.contains(&expected), "{arguments}: {error}");
        }
    }

    #[test]
    fn arguments_replace_the_defaults() {
        let parsed = parse("--devices 1e6 --reconnect-fraction 0 --cores 0.5").unwrap();
        let (load, machine) = (Load::default(), Machine::default());
        let expected = Load {
            devices: 1e6,
            reconnect_fraction: 0.0,
            ..load
        };
        assert_eq!(parsed.load, expected);
        assert_eq!(
            parsed.machine,
            Machine {
                cores: 0.5,
                ..machine
            }
        );
        assert_eq!(parsed.prices, Prices::default());
    }
}
