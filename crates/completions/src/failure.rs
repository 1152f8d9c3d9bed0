//! Why one provider did not reply, and what follows from that.
//! Never: a decision by the words of a message.

use std::{error::Error, time::Duration};

use crate::{CompletionError, assembly::Excess};

/// How long one is left alone that fails, or that says "too much" and not for how long.
pub(crate) const REST: Duration = Duration::from_secs(5);

/// Why one provider did not reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It wants to be left alone for so long, and may be asked again then.
    Busy { after: Duration },
    /// It is not there, not well, or too slow; it may be asked again when nobody else is left.
    Unavailable { reason: String, rest: Recovery },
    /// It does not take this request.
    Refused { reason: String, about: About },
    /// Its reply is no use.
    Broken(String),
    /// The deadline came first.
    Late,
}

/// How one that is not available is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Not at all: it is alive.
    None,
    /// For a while, as long as there are others.
    Short,
    /// For as long as it says itself.
    Wanted(Duration),
}

/// What it does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// What was asked.
    Request,
    /// How freely the model is to speak: this one has its own way.
    Temperature,
    /// Whoever asks, whatever is asked.
    Caller,
    /// The model, or the place where it is asked.
    Model,
}

impl Failure {
    /// It is not there.
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable {
            reason: reason.into(),
            rest: Recovery::Short,
        }
    }

    /// It was there, and did not come to its end.
    pub(crate) fn interrupted(reason: impl Into<String>) -> Self {
        Self::Unavailable {
            reason: reason.into(),
            rest: Recovery::None,
        }
    }

    /// What the caller is told when this is the end of it.
    pub(crate) fn into_error(self) -> CompletionError {
        match self {
            Self::Busy { after } => CompletionError::Busy { after },
            Self::Unavailable { reason, .. } | Self::Broken(reason) => {
                CompletionError::Unavailable(reason)
            }
            Self::Refused { reason, .. } => CompletionError::Refused(reason),
            Self::Late => CompletionError::Late,
        }
    }

    /// What the caller is told when some of the reply was heard.
    pub(crate) fn after_words(self) -> CompletionError {
        match self {
            Self::Busy { .. } => CompletionError::BrokenOff("it has too much to do".to_owned()),
            Self::Unavailable { reason, .. }
            | Self::Broken(reason)
            | Self::Refused { reason, .. } => CompletionError::BrokenOff(reason),
            Self::Late => CompletionError::Late,
        }
    }
}

impl From<Excess> for Failure {
    fn from(excess: Excess) -> Self {
        Self::Broken(excess.to_string())
    }
}

/// An error and its causes on one line, none of them twice.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
