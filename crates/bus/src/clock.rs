//! The wall clock of a node, and the ids that it generates: the system's, or virtual ones in a
//! simulation.

#[cfg(not(test))]
pub(crate) use switchboard_runtime::clock::{unix_now_ms, unix_time};
#[cfg(not(test))]
use uuid::Uuid;

#[cfg(test)]
pub(crate) use crate::simulation::{unique_id, unix_now_ms, unix_time};

/// An id that no other node generates. Later ones are greater.
#[cfg(not(test))]
pub(crate) fn unique_id() -> Uuid {
    Uuid::now_v7()
}
