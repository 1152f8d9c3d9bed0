//! Why a request to the control plane was not done, and what of that its caller reads.
//! Never: a source's own words in an answer.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use switchboard_protocol::access::AccessError;
use switchboard_runtime::problem::{self, Problem};
use switchboard_store::{ObjectError, PictureError, SkillsBookError, StoreError, VoiceError};

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// The caller's fault; the problem says what would be right.
    #[error("the request was refused: {}", .0.detail)]
    Refused(Problem),
    /// The store could not do it.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The object store could not do it.
    #[error("the object store failed")]
    Objects(#[from] ObjectError),
    /// The request was done before; this is the answer it had.
    #[error("the request was answered before")]
    Answered(Box<Response>),
    /// A token could not be signed.
    #[error("a token could not be signed")]
    Signing(#[from] AccessError),
}

impl ControlError {
    /// What there is not, or not for this caller.
    pub(crate) fn unknown(kind: &str, id: &str) -> Self {
        let detail = format!("There is no {kind} {id} in this organisation.");
        Self::Refused(Problem::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "Not found",
            detail,
        ))
    }

    /// A well-formed body with a value that does not do.
    pub(crate) fn invalid(field: &'static str, detail: impl Into<String>) -> Self {
        let problem = Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_body",
            "Invalid body",
            detail,
        );
        Self::Refused(problem.with("field", field))
    }

    /// All that may leave the process.
    fn public(self) -> Problem {
        match self {
            Self::Refused(problem) => problem,
            // Answered as it is, before this is asked.
            Self::Answered(_) => problem::internal(),
            Self::Store(error) if error.is_unavailable() => {
                tracing::warn!(
                    error = error.report(),
                    "a request was refused because the database is away"
                );
                Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "store_unavailable",
                    "Settings unavailable",
                    "The settings cannot be read or written at the moment. Try again in a moment.",
                )
                .header(header::RETRY_AFTER, 1)
            }
            Self::Store(error) => {
                tracing::error!(
                    error = error.report(),
                    error.kind = error.kind(),
                    "a request failed in the store"
                );
                problem::internal()
            }
            Self::Objects(error) => {
                tracing::error!(
                    error = error.report(),
                    "a request failed in the object store"
                );
                match error {
                    // What the database knows of and the object store does not: a retry changes nothing.
                    ObjectError::Missing(_) => problem::internal(),
                    _ => Problem::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "objects_unavailable",
                        "Objects unavailable",
                        "Pictures, skills books and voices cannot be read or written at the moment. Try again in a moment.",
                    )
                    .header(header::RETRY_AFTER, 1),
                }
            }
            Self::Signing(error) => {
                tracing::error!(%error, "a request failed because a token could not be signed");
                problem::internal()
            }
        }
    }
}

impl From<Problem> for ControlError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<PictureError> for ControlError {
    fn from(error: PictureError) -> Self {
        match error {
            PictureError::NoObjects => Self::Refused(no_objects()),
            PictureError::Objects(error) => Self::Objects(error),
            PictureError::Store(error) => Self::Store(error),
        }
    }
}

impl From<SkillsBookError> for ControlError {
    fn from(error: SkillsBookError) -> Self {
        match error {
            SkillsBookError::NoObjects => Self::Refused(no_objects()),
            SkillsBookError::Objects(error) => Self::Objects(error),
            SkillsBookError::Store(error) => Self::Store(error),
        }
    }
}

impl From<VoiceError> for ControlError {
    fn from(error: VoiceError) -> Self {
        match error {
            VoiceError::NoObjects => Self::Refused(no_objects()),
            VoiceError::Objects(error) => Self::Objects(error),
            VoiceError::Store(error) => Self::Store(error),
        }
    }
}

/// The answer of every endpoint of pictures, skills books and voices of an installation without a place for them.
pub(crate) fn no_objects() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "objects_not_configured",
        "No place for objects",
        "This installation has no place for pictures, skills books and voices; its operator sets one with --objects or SWITCHBOARD_OBJECTS.",
    )
}

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        match self {
            Self::Answered(response) => *response,
            other => other.public().into_response(),
        }
    }
}
