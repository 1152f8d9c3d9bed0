//! The gateway over HTTP, with a local bus, a PostgreSQL database, and an edge node with devices.

#![expect(
    clippy::unwrap_used,
    reason = "a test that fails by panicking says where"
)]

mod approvals;
mod async_calls;
mod call_streams;
mod calls;
mod connections;
mod devices;
mod event_streams;
mod forwarding;
mod group_calls;
mod idempotency;
mod isolation;
mod journal;
mod labels;
mod large_lists;
mod mcp;
mod mcp_auth;
mod mcp_books;
mod mcp_budgets;
mod mcp_catalog;
mod mcp_client;
mod mcp_elicitation;
mod mcp_host_policy;
mod mcp_listeners;
mod mcp_memory;
mod mcp_npc_changes;
mod mcp_npcs;
mod mcp_progress;
mod mcp_resources;
mod quotas;
mod restrictions;
mod sessions;
mod shares;
mod suspension;
mod test_gateway;
mod usage;
