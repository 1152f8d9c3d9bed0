//! The control plane over a real PostgreSQL, a database per test, and a bus inside this process.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod access;
mod api;
mod background;
mod cases;
mod idempotency;
mod installation;
mod isolation;
mod memories;
mod npc_ownership;
mod npcs;
mod pictures;
mod recall;
mod skills_books;
mod templates;
