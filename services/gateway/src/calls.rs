//! Calls over REST: synchronous, asynchronous and queued.
//!
//! A synchronous call goes through [`create`], [`request`], [`attempt`] and [`response`], and
//! through [`idempotency`] if it has an `Idempotency-Key`, and through [`stream`] if its caller reads
//! its progress. Asynchronous and queued calls are
//! stored by [`queue`] before they are accepted; [`item`] serves their state. [`group`] makes synchronous
//! calls of many devices. Synchronous calls that have ended are in the journal, which [`recent`] serves.

mod attempt;
#[cfg(test)]
mod compatibility;
pub(crate) mod create;
mod ended;
pub(crate) mod group;
mod idempotency;
pub(crate) mod item;
pub(crate) mod mode;
pub(crate) mod notification;
mod queue;
pub(crate) mod recent;
pub(crate) mod request;
mod response;
pub(crate) mod stream;
mod view;

pub(crate) use attempt::Attempt;
pub(crate) use ended::OpenCall;
pub(crate) use queue::{AsyncCalls, start_background};
pub(crate) use request::CallRequest;
pub(crate) use response::milliseconds;
