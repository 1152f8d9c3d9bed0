//! What all resources share: authentication, request bodies, limits, responses and their errors.

pub(crate) mod api;
pub(crate) mod auth;
pub(crate) mod content;
pub(crate) mod documents;
pub(crate) mod error;
pub(crate) mod etag;
pub(crate) mod idempotency;
pub(crate) mod label;
pub(crate) mod limits;
pub(crate) mod merge;
pub(crate) mod response;
mod strict_json;
