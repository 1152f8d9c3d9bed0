//! Calls that outlive their request: stored and queued calls, and calls with an idempotency key.

pub(crate) mod call_end_listener;
pub(crate) mod call_queues;
pub(crate) mod idempotent_calls;
pub(crate) mod stored_calls;
