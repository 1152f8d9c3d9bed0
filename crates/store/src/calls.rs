//! Calls that outlive their request: stored and queued calls, calls with an idempotency key, and the
//! journal of synchronous ones.

pub(crate) mod call_end_listener;
pub(crate) mod call_queues;
pub(crate) mod idempotent_calls;
pub(crate) mod journal;
mod reach;
pub(crate) mod recent_calls;
pub(crate) mod stored_calls;
