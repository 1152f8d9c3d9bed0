//! Conversations: what one is, and where they are stored.

mod latest;
pub(crate) mod model;
pub(crate) mod store;
