//! Conversations: what one is, and where they are stored.

pub(crate) mod model;
pub(crate) mod store;
