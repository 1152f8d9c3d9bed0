//! Access to organisations: owners of settings, API keys, access tokens, the keys that sign and
//! seal, and the log of administrative actions.

pub(crate) mod api_keys;
pub(crate) mod audit_log;
pub(crate) mod master_keys;
pub(crate) mod owner;
pub(crate) mod scope_list;
mod sealing_keys;
pub(crate) mod signing_keys;
pub(crate) mod tokens;
pub(crate) mod wrapped_keys;
