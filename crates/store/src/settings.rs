//! Settings: organisations, templates, NPCs, their prompts and resources, and the idempotency keys
//! of requests that change them.

pub(crate) mod id_names;
pub(crate) mod idempotent_requests;
pub(crate) mod npcs;
pub(crate) mod orgs;
mod prompts;
pub(crate) mod resources;
pub(crate) mod templates;
