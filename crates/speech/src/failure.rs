//! Why a provider did not recognise or speak.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use secrecy::{ExposeSecret as _, SecretString};
use switchboard_runtime::outbound;

/// The longest pause that a provider may request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// How long others go before a provider that failed.
const FAILED_COOLDOWN: Duration = Duration::from_secs(5);
/// The same for one that rejects the credentials.
const UNAUTHORIZED_COOLDOWN: Duration = Duration::from_secs(30);
/// Time to connect to a server, until it is ready for a request.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// What an error may show of a response.
const MAX_EXCERPT_CHARS: usize = 200;

/// No provider has recognised or spoken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpeechError {
    /// None is configured.
    #[error("no provider is configured")]
    NotConfigured,
    /// The last one failed like this.
    #[error("{0}")]
    Failed(String),
}

/// Why one provider failed. Its text may be logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// There was no complete response.
    #[error("the provider is unavailable: {0}")]
    Unavailable(String),
    /// It asks for a pause.
    #[error("the provider is busy for {} s", .0.as_secs())]
    Busy(Duration),
    /// It rejects the credentials: every request fails.
    #[error("the provider rejects the credentials: {0}")]
    Unauthorized(String),
    /// It rejects this request, for example because it does not know the voice. Others may succeed.
    #[error("the provider rejects the request: {0}")]
    Rejected(String),
    /// The response is none.
    #[error("the response of the provider is invalid: {0}")]
    Invalid(String),
    /// It took too long.
    #[error("the provider sent nothing in time")]
    TimedOut,
}

impl Failure {
    /// How long other providers go first. What one organisation requests affects no other one.
    pub(crate) const fn cooldown(&self) -> Duration {
        match self {
            Self::Busy(after) => *after,
            Self::Unauthorized(_) => UNAUTHORIZED_COOLDOWN,
            Self::Unavailable(_) | Self::Invalid(_) | Self::TimedOut => FAILED_COOLDOWN,
            Self::Rejected(_) => Duration::ZERO,
        }
    }

    /// The failure that a status stands for.
    pub(crate) fn from_status(status: StatusCode, headers: &HeaderMap, detail: &str) -> Self {
        let after = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let after = after.and_then(|seconds| seconds.parse().ok());
        match (status, after) {
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(seconds)) => {
                Self::Busy(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
            }
            (StatusCode::TOO_MANY_REQUESTS, None) => Self::Busy(FAILED_COOLDOWN),
            (
                StatusCode::UNAUTHORIZED | StatusCode::PAYMENT_REQUIRED | StatusCode::FORBIDDEN,
                _,
            ) => Self::Unauthorized(format!("{status}: {detail}")),
            _ if status.is_client_error() => Self::Rejected(format!("{status}: {detail}")),
            _ => Self::Unavailable(format!("{status}: {detail}")),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// The beginning of a response, for an error, without the API key: services repeat one that they reject.
pub(crate) fn excerpt(bytes: &[u8], key: Option<&SecretString>) -> String {
    let text = String::from_utf8_lossy(bytes);
    let printable = text
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char });
    let text: String = printable.take(MAX_EXCERPT_CHARS).collect();
    match key {
        Some(key) => outbound::redact(&text, key.expose_secret()),
        None => text,
    }
}
