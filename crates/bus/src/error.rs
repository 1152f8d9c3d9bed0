//! Errors between a node and the bus.

use std::time::Duration;

use switchboard_runtime::quota::QuotaExceeded;

/// The bus could not execute a request.
///
/// Invariant: no error leaves open whether a call was sent; that is an outcome of the call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// There is no verified connection; it is being rebuilt.
    #[error("the bus is not reachable")]
    Unavailable,
    /// No reply in time; the connection is being probed.
    #[error("the bus did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// Too much waits to be sent to a node, or too many turns wait for a worker.
    #[error("too many messages or turns are queued")]
    Overloaded,
    /// The organisation has as much as its quota allows.
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// The text of a registration does not fit among those of its organisation.
    #[error(
        "the different registrations of the organisation's connected devices have at most {limit} \
         bytes together"
    )]
    RegistrationsFull {
        /// The most bytes.
        limit: u64,
    },
    /// The value is invalid or too large; a retry fails, too.
    #[error("the bus does not store this value: {0}")]
    Invalid(String),
    /// The bus returned an error, or a reply that this version does not understand.
    #[error("the bus returned an error: {0}")]
    Unexpected(String),
    /// The registry already has the metrics of a bus.
    #[error("cannot register the metrics of the bus")]
    Metrics(#[source] std::sync::Arc<prometheus::Error>),
    /// There is no connection because of TLS: one side expects it and the other does not, or the
    /// server's certificate is not accepted.
    #[error("cannot connect to Redis: {0}")]
    Tls(String),
    /// The Redis URL, or what belongs to it, is invalid.
    #[error("invalid Redis URL: {0}")]
    Address(String),
}

impl From<redis::RedisError> for BusError {
    fn from(error: redis::RedisError) -> Self {
        if error.is_timeout() || error.is_io_error() || error.is_connection_dropped() {
            return Self::Unavailable;
        }
        match error.code() {
            // A server that is being replaced, or a slot that is moving.
            Some("CLUSTERDOWN" | "MASTERDOWN" | "READONLY" | "LOADING" | "TRYAGAIN") => {
                Self::Unavailable
            }
            Some("MOVED" | "ASK" | "CROSSSLOT") => Self::Unexpected(format!(
                "{error}; the URL of a cluster begins with redis+cluster://"
            )),
            _ => Self::Unexpected(error.to_string()),
        }
    }
}
