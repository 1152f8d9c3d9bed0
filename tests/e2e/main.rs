//! End-to-end tests: real processes, Redis, PostgreSQL and sockets, observed only from outside.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, which reports the line"
)]

mod access;
mod baseline;
mod black_hole;
mod budgets;
mod calls;
mod clients;
mod cluster;
mod collector;
mod command_line;
mod compatibility;
mod conversations;
mod cut_off;
mod dark_edge;
mod device;
mod durability;
mod failover;
mod faults;
mod hostile;
mod idempotency;
mod ingestion_load;
mod journal;
mod lost_responses;
mod master_key;
mod mcp;
mod memory_limits;
mod metrics;
mod models;
mod neighbours;
mod objects;
mod one_address;
mod overload;
mod postgres_versions;
mod presence;
mod provider;
mod releases;
mod restart;
mod results;
mod rolling;
mod runbooks;
mod secrets;
mod sign_in_code;
mod skills;
mod speech;
mod stdio;
mod stored_calls;
mod system;
mod talk;
mod traces;
mod turns;
mod voices;
mod webhooks;
