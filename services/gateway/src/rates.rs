//! How often a caller may ask and a device be called.
//! Never: a wait; what comes too often is refused at once, with the time after which it would not be.

use switchboard_identity::{Caller, CallerId};
use switchboard_protocol::{id::DeviceKey, outcome::Delivered};
use switchboard_runtime::{
    metrics::Counters,
    problem::Problem,
    rates::{Buckets, TooOften},
};

use crate::{Config, metrics::Shed};

/// The buckets of one gateway.
pub(crate) struct Rates {
    callers: Buckets<CallerId>,
    devices: Buckets<DeviceKey>,
    shed: Counters<Shed>,
}

impl Rates {
    pub(crate) fn new(config: &Config, shed: Counters<Shed>) -> Self {
        Self {
            shed,
            callers: Buckets::new(config.caller_rate_per_s, config.caller_burst),
            devices: Buckets::new(config.called_device_rate_per_s, config.called_device_burst),
        }
    }

    /// Takes one request out of a caller's bucket.
    pub(crate) fn admit_caller(&self, caller: &Caller) -> Result<(), Problem> {
        let taken = self.callers.take(&caller.id());
        let taken = taken.inspect_err(|_| self.shed.inc(Shed::CallerRate));
        taken.map_err(not_sent)
    }

    /// Takes one call out of a device's bucket.
    pub(crate) fn admit_call(&self, device: &DeviceKey) -> Result<(), TooOften> {
        let taken = self.devices.take(device);
        taken.inspect_err(|_| self.shed.inc(Shed::DeviceRate))
    }

    /// Forgets the buckets that are full again.
    pub(crate) fn sweep(&self) {
        self.callers.sweep();
        self.devices.sweep();
    }
}

/// What came too often did not reach a device.
pub(crate) fn not_sent(refused: TooOften) -> Problem {
    Problem::from(refused).with("delivered", Delivered::No)
}
