//! The wall clock of a node: the system's, or a virtual one in a simulation.

#[cfg(not(test))]
pub(crate) use switchboard_runtime::clock::{unix_now_ms, unix_time};

#[cfg(test)]
pub(crate) use crate::simulation::{unix_now_ms, unix_time};
