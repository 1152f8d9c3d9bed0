//! Why there is no reply, and why nothing can be asked at all.
//! Never: a key, or a provider's message without a bound.

use std::time::Duration;

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    /// All that could reply want to be left alone, for longer than there is time.
    #[error("every provider that could reply has too much to do, and is left alone for {} ms", after.as_millis())]
    Busy {
        /// For so long.
        after: Duration,
    },
    /// Nobody replied, and it is not the request's fault.
    #[error("no provider replies: {0}")]
    Unavailable(String),
    /// Whoever was asked does not take this request.
    #[error("every provider refuses the request: {0}")]
    Refused(String),
    /// The reply ended before its end, and some of it was heard already.
    #[error("the reply broke off: {0}")]
    BrokenOff(String),
    /// The deadline came first; some of the reply may have been heard.
    #[error("there was no whole reply by the deadline")]
    Late,
}

impl CompletionError {
    /// What [`Self::kind`] may answer.
    pub(crate) const KINDS: [&str; 5] = ["busy", "unavailable", "refused", "broken_off", "late"];

    /// What it is, as a label of metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
            Self::BrokenOff(_) => "broken_off",
            Self::Late => "late",
        }
    }
}

/// What an operator set is no use.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file that lists providers.
    #[error("the providers in {file}: {reason}")]
    File {
        /// Its path.
        file: String,
        /// Where in it, and what would be right.
        reason: String,
    },
    /// One provider, however it was set.
    #[error("the provider {name:?}: {reason}")]
    Provider {
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// TLS cannot be spoken here.
    #[error("no provider can be asked over TLS: {0}")]
    Tls(String),
    /// The metrics cannot be made.
    #[error("the metrics of completions cannot be made")]
    Metrics(#[from] prometheus::Error),
}
