//! What must outlive every process: organisations, keys, tokens and what is known of devices. Every line of SQL is here.
//! Never: a query without an organisation where rows belong to one, HTTP, Redis, or a retry that the caller does not see.

mod api_keys;
mod config;
mod database;
mod devices;
mod error;
mod facts;
mod idempotent_calls;
mod orgs;
mod registrations;
mod schema_version;
mod scope_list;
mod sealing_keys;
mod signing_keys;
#[cfg(feature = "testing")]
pub mod testing;
mod tokens;

pub use api_keys::{ApiKey, KeyRevocation, NewApiKey};
pub use config::Config;
pub use database::Store;
pub use devices::StoredDevice;
pub use error::StoreError;
pub use facts::{DeviceFact, DeviceNews};
pub use idempotent_calls::{CallKey, NewCall, RememberedCall, StoredOutcome};
pub use schema_version::SchemaVersion;
pub use signing_keys::{NewSigningKey, StoredSigningKey};
pub use tokens::{IssuedToken, RevokedToken};
