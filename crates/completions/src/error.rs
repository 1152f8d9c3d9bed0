//! Errors of completions and of their configuration.

use std::time::Duration;

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    /// All usable providers requested a pause that ends after the deadline.
    #[error("all usable providers are busy for at least {} ms", after.as_millis())]
    Busy {
        /// The shortest requested pause.
        after: Duration,
    },
    /// No provider replied, for reasons that do not depend on the request.
    #[error("no provider replies: {0}")]
    Unavailable(String),
    /// The providers reject this request.
    #[error("every provider rejects the request: {0}")]
    Rejected(String),
    /// The reply ended early, after a part of its text was sent to the sink.
    #[error("the reply was interrupted: {0}")]
    Interrupted(String),
    /// The reply was not complete by the deadline. A part of its text may have been sent.
    #[error("the reply was not complete by the deadline")]
    TimedOut,
}

impl CompletionError {
    /// All values of [`Self::kind`].
    pub(crate) const KINDS: [&str; 5] = ["busy", "unavailable", "refused", "broken_off", "late"];

    /// The kind, as a label of metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::Unavailable(_) => "unavailable",
            Self::Rejected(_) => "refused",
            Self::Interrupted(_) => "broken_off",
            Self::TimedOut => "late",
        }
    }
}

/// The configuration of the providers is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file that lists providers.
    #[error("the providers in {file}: {reason}")]
    File {
        /// Its path.
        file: String,
        /// The invalid field, and what is valid.
        reason: String,
    },
    /// One provider, from flags or from the file.
    #[error("the provider {name:?}: {reason}")]
    Provider {
        /// Its name.
        name: String,
        /// What is invalid, and what is valid.
        reason: String,
    },
    /// TLS is not available.
    #[error("TLS for requests to providers is not available: {0}")]
    Tls(String),
    /// A metric is invalid.
    #[error("cannot create the metrics of completions")]
    Metrics(#[from] prometheus::Error),
}
