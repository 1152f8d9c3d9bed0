//! End-to-end tests: real processes, Redis, PostgreSQL and sockets, observed only from outside.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, which reports the line"
)]

#[path = "../support/data_folder.rs"]
mod data_folder;
#[path = "../support/eventually.rs"]
mod eventually;
#[path = "../support/haproxy.rs"]
mod haproxy;
#[path = "../support/redis_server.rs"]
mod redis_server;
#[path = "../support/s3_server.rs"]
mod s3_server;
#[path = "../support/snapshot.rs"]
mod snapshot;

mod access;
mod baseline;
mod calls;
mod clients;
mod cluster;
mod collector;
mod command_line;
mod compatibility;
mod conversations;
mod device;
mod durability;
mod faults;
mod hostile;
mod idempotency;
mod ingestion_load;
mod lost_responses;
mod mcp;
mod metrics;
mod models;
mod objects;
mod presence;
mod program;
mod provider;
mod restart;
mod rolling;
mod skills;
mod stdio;
mod stored_calls;
mod system;
mod traces;
mod turns;
mod voices;
mod webhooks;
