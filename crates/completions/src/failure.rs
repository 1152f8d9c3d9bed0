//! Failures of requests to one provider.

use std::{error::Error, time::Duration};

use crate::{CompletionError, tool_calls::LimitExceeded};

/// Pause after a failure for which the provider states none.
pub(crate) const DEFAULT_BACKOFF: Duration = Duration::from_secs(5);

/// Why one provider did not reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It is overloaded and requests a pause.
    Busy { after: Duration },
    /// It is unreachable, failing or too slow. It is retried after all others.
    Unavailable { reason: String, recovery: Recovery },
    /// It rejects the request.
    Rejected { reason: String, cause: RejectCause },
    /// Its reply is invalid.
    Invalid(String),
    /// The deadline has passed.
    TimedOut,
}

/// The cooldown of an unavailable provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// None: it was sending.
    None,
    /// [`DEFAULT_BACKOFF`].
    Default,
    /// As long as the provider requests.
    RetryAfter(Duration),
}

/// What the provider rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectCause {
    /// This request.
    Request,
    /// The temperature: the model has a fixed one.
    Temperature,
    /// All requests with these credentials.
    Caller,
    /// The model, or the path of the endpoint.
    Model,
}

impl Failure {
    /// The provider is unavailable and has not started to reply.
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable {
            reason: reason.into(),
            recovery: Recovery::Default,
        }
    }

    /// The provider stopped in the middle of a reply.
    pub(crate) fn interrupted(reason: impl Into<String>) -> Self {
        Self::Unavailable {
            reason: reason.into(),
            recovery: Recovery::None,
        }
    }

    /// The error when no text was sent.
    pub(crate) fn into_error(self) -> CompletionError {
        match self {
            Self::Busy { after } => CompletionError::Busy { after },
            Self::Unavailable { reason, .. } | Self::Invalid(reason) => {
                CompletionError::Unavailable(reason)
            }
            Self::Rejected { reason, .. } => CompletionError::Rejected(reason),
            Self::TimedOut => CompletionError::TimedOut,
        }
    }

    /// The error when a part of the text was sent.
    pub(crate) fn after_partial_reply(self) -> CompletionError {
        match self {
            Self::Busy { .. } => CompletionError::Interrupted("the provider is busy".to_owned()),
            Self::Unavailable { reason, .. }
            | Self::Invalid(reason)
            | Self::Rejected { reason, .. } => CompletionError::Interrupted(reason),
            Self::TimedOut => CompletionError::TimedOut,
        }
    }
}

impl From<LimitExceeded> for Failure {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::Invalid(exceeded.to_string())
    }
}

/// An error and its causes on one line. A cause that the text before ends with is left out.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}
