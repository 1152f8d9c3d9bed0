//! What can go wrong between a node and the bus.
//! Never: an error that leaves open whether something was sent; that is an outcome.

use std::time::Duration;

/// The bus could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// There is no verified connection now; it is being rebuilt.
    #[error("the bus is not reachable")]
    Unavailable,
    /// No answer in time; the connection is being checked.
    #[error("the bus did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// More waits than may: to be sent to that node, or to be answered.
    #[error("too much waits already")]
    Overloaded,
    /// What was to be kept is no such thing, or too large: it is the same at every attempt.
    #[error("the bus does not keep this: {0}")]
    Unfit(String),
    /// The bus answered something that this version does not understand, or refused.
    #[error("the bus refused: {0}")]
    Unexpected(String),
    /// The registry has a bus's metrics already.
    #[error("the metrics of the bus can not be registered")]
    Metrics(#[source] std::sync::Arc<prometheus::Error>),
    /// The address is not one.
    #[error("the Redis URL is not usable: {0}")]
    Address(String),
}

impl From<redis::RedisError> for BusError {
    fn from(error: redis::RedisError) -> Self {
        if error.is_timeout() || error.is_io_error() || error.is_connection_dropped() {
            return Self::Unavailable;
        }
        match error.code() {
            // A server that is being replaced, or a slot on its way.
            Some("CLUSTERDOWN" | "MASTERDOWN" | "READONLY" | "LOADING" | "TRYAGAIN") => {
                Self::Unavailable
            }
            Some("MOVED" | "ASK" | "CROSSSLOT") => Self::Unexpected(format!(
                "{error}; a cluster is named by a URL that begins with redis+cluster://"
            )),
            _ => Self::Unexpected(error.to_string()),
        }
    }
}
