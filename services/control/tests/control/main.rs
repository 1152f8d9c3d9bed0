//! The control plane over a real PostgreSQL, a database per test, and a bus inside this process.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod access;
mod api;
mod audit_log;
mod background;
mod cards;
mod cases;
mod embeddings;
mod endpoint;
mod idempotency;
mod installation;
mod isolation;
mod large_pages;
mod memories;
mod memory_search;
mod npc_ownership;
mod npcs;
mod objects;
mod openai_voices;
mod orgs;
mod pictures;
mod provisioning;
mod quota_warnings;
mod quotas;
mod receiver;
mod recordings;
mod session;
mod skills_books;
mod suspension;
mod templates;
mod token_keys;
mod usage;
mod voice_training;
mod voices;
mod webhook_events;
mod webhook_failures;
mod webhooks;
