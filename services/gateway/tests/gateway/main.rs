//! The gateway over HTTP, with a real bus inside the process, a real PostgreSQL, and an edge that plays its devices.

#![expect(
    clippy::unwrap_used,
    reason = "a test that fails by panicking says where"
)]

mod calls;
mod devices;
mod idempotency;
mod isolation;
mod kept_calls;
mod mcp;
mod mcp_access;
mod mcp_books;
mod mcp_catalogue;
mod mcp_client;
mod mcp_knowledge;
mod mcp_listeners;
mod mcp_npc_changes;
mod mcp_npcs;
mod mcp_questions;
mod mcp_sites;
mod mcp_talk;
mod stage;
mod usage;
