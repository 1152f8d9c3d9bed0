//! MCP over HTTP: routes, admission, encodings, and the parts of the protocol that concern
//! transport.

pub(super) mod auth;
pub(super) mod binding;
pub(super) mod encoding;
pub(super) mod endpoints;
mod fast_path;
pub(super) mod host_policy;
pub(super) mod metadata;
pub(super) mod protocol_version;
pub(super) mod reservation;
pub(super) mod session;
mod stream;
