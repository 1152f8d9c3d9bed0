//! The errors of requests, and the problem documents that callers receive.
//!
//! Invariant: no message of an internal error is sent to a caller.

use axum::response::{IntoResponse, Response};
use http::header;
use switchboard_identity::QuotaError;
use switchboard_protocol::token::AccessError;
use switchboard_runtime::problem::{self, Problem, ProblemKind};
use switchboard_store::{ObjectError, PictureError, SkillsBookError, StoreError, VoiceError};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// The request is invalid or not allowed.
    #[error("the request was rejected: {}", .0.detail)]
    Problem(Problem),
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The object store failed.
    #[error("the object store failed")]
    Objects(#[from] ObjectError),
    /// The request was processed before; this is its response.
    #[error("the request was processed before")]
    Replayed(Box<Response>),
    /// A token could not be signed.
    #[error("a token could not be signed")]
    Signing(#[from] AccessError),
}

impl ControlError {
    /// There is no such resource that the caller can read.
    pub(crate) fn not_found(kind: &str, id: &str) -> Self {
        let detail = format!("There is no {kind} {id} in this organisation.");
        Self::Problem(Problem::new(ProblemKind::NotFound, detail))
    }

    /// A well-formed body with an invalid member.
    pub(crate) fn invalid(member: &'static str, detail: impl Into<String>) -> Self {
        Self::Problem(Problem::invalid_body(format!("/{member}"), detail))
    }

    /// The problem that the caller receives.
    fn into_problem(self) -> Problem {
        match self {
            Self::Problem(problem) => problem,
            // `into_response` returns it unchanged.
            Self::Replayed(_) => problem::internal(),
            Self::Store(error) if error.is_unavailable() => {
                tracing::warn!(
                    error = error.report(),
                    "the database is unavailable; request rejected"
                );
                Problem::new(
                    ProblemKind::SettingsUnavailable,
                    "The settings are temporarily unavailable. Try again in a moment.",
                )
                .header(header::RETRY_AFTER, 1)
            }
            Self::Store(error) => {
                tracing::error!(
                    error = error.report(),
                    error.kind = error.kind(),
                    "request failed in the store"
                );
                problem::internal()
            }
            Self::Objects(error) => {
                tracing::error!(error = error.report(), "request failed in the object store");
                match error {
                    // The database has a row for a missing object: a retry fails, too.
                    ObjectError::Missing(_) => problem::internal(),
                    _ => Problem::new(
                        ProblemKind::ObjectsUnavailable,
                        "Pictures, skills books and voices are temporarily unavailable. Try again in a moment.",
                    )
                    .header(header::RETRY_AFTER, 1),
                }
            }
            Self::Signing(error) => {
                tracing::error!(%error, "request failed: the token cannot be signed");
                problem::internal()
            }
        }
    }
}

impl From<Problem> for ControlError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<QuotaError> for ControlError {
    fn from(error: QuotaError) -> Self {
        Self::Problem(error.into())
    }
}

impl From<PictureError> for ControlError {
    fn from(error: PictureError) -> Self {
        match error {
            PictureError::NoObjects => Self::Problem(objects_not_configured()),
            PictureError::Objects(error) => Self::Objects(error),
            PictureError::Store(error) => Self::Store(error),
        }
    }
}

impl From<SkillsBookError> for ControlError {
    fn from(error: SkillsBookError) -> Self {
        match error {
            SkillsBookError::NoObjects => Self::Problem(objects_not_configured()),
            SkillsBookError::Objects(error) => Self::Objects(error),
            SkillsBookError::Store(error) => Self::Store(error),
        }
    }
}

impl From<VoiceError> for ControlError {
    fn from(error: VoiceError) -> Self {
        match error {
            VoiceError::NoObjects => Self::Problem(objects_not_configured()),
            VoiceError::Objects(error) => Self::Objects(error),
            VoiceError::Store(error) => Self::Store(error),
        }
    }
}

/// The problem of every request for pictures, skills books and voices without an object store.
pub(crate) fn objects_not_configured() -> Problem {
    Problem::new(
        ProblemKind::ObjectsNotConfigured,
        "This installation has no object store for pictures, skills books, voices and recordings; the operator configures one with --objects or SWITCHBOARD_OBJECTS.",
    )
}

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        match self {
            Self::Replayed(response) => *response,
            other => other.into_problem().into_response(),
        }
    }
}
