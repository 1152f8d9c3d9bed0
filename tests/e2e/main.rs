//! The whole system as its users meet it: real processes, real Redis, real Postgres, real sockets.
//! Never: a look inside a process; what is not seen from outside is not promised.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says where it failed by panicking there"
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

mod access;
mod baseline;
mod busy;
mod calls;
mod clients;
mod collector;
mod command_line;
mod conversations;
mod device;
mod durability;
mod faults;
mod hostile;
mod idempotency;
mod kept_calls;
mod lost_answers;
mod mcp;
mod metrics;
mod models;
mod objects;
mod plant;
mod presence;
mod program;
mod provider;
mod restart;
mod rolling;
mod site;
mod skills;
mod stdio;
mod traces;
mod turns;
mod voices;
mod webhooks;
