//! Notifications to clients about changes of the tools, prompts and resources of an endpoint.

pub(super) mod changes;
pub(super) mod editions;
pub(super) mod listeners;
mod npc_changes;
pub(super) mod subscribe;
