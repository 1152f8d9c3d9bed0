//! Problem kinds that every route of a kind can return, and the schema of a problem document.

use serde_json::{Value, json};

use crate::problem::ProblemKind;

/// Kinds of every route.
pub(super) const ALWAYS: &[ProblemKind] = &[ProblemKind::Internal];

/// Kinds of routes that authenticate their caller.
pub(super) const AUTHENTICATED: &[ProblemKind] = &[
    ProblemKind::MissingCredentials,
    ProblemKind::CredentialsUnverifiable,
];

/// Kinds of routes that accept a credential of an organisation.
pub(super) const CREDENTIALS: &[ProblemKind] = &[
    ProblemKind::UnknownApiKey,
    ProblemKind::TokenMalformed,
    ProblemKind::TokenUnknownKey,
    ProblemKind::TokenBadSignature,
    ProblemKind::TokenExpired,
    ProblemKind::TokenWrongAudience,
    ProblemKind::TokenWrongIssuer,
    ProblemKind::TokenRevoked,
    ProblemKind::TokenLifetimeTooLong,
    ProblemKind::TokenIssuedInFuture,
    ProblemKind::OrgSuspended,
    ProblemKind::InsufficientScope,
    ProblemKind::RateLimited,
];

/// Kinds of routes with a body.
pub(super) const BODY: &[ProblemKind] = &[
    ProblemKind::EmptyBody,
    ProblemKind::IncompleteBody,
    ProblemKind::BodyTimeout,
    ProblemKind::BodyTooLarge,
];

/// Kinds of routes with a JSON body.
pub(super) const JSON_BODY: &[ProblemKind] = &[
    ProblemKind::MalformedJson,
    ProblemKind::UnsupportedMediaType,
    ProblemKind::InvalidBody,
];

/// Kinds of routes with a query.
pub(super) const QUERY: &[ProblemKind] = &[ProblemKind::InvalidQuery];

/// Kinds of routes that accept an Idempotency-Key.
pub(super) const IDEMPOTENT: &[ProblemKind] = &[
    ProblemKind::InvalidIdempotencyKey,
    ProblemKind::IdempotencyKeyReused,
];

/// Kinds of routes that require If-Match.
pub(super) const CONDITIONAL: &[ProblemKind] = &[
    ProblemKind::PreconditionRequired,
    ProblemKind::PreconditionFailed,
];

/// Kinds that any route can name.
pub(super) const NAMED: &[ProblemKind] = &[ProblemKind::NotFound];

/// Schema of a problem document.
pub(super) fn schema() -> Value {
    let text = |description: &str, max_length: u16, example: &str| json!({"type": "string", "description": description, "maxLength": max_length, "examples": [example]});
    json!({
        "type": "object",
        "description": "A problem document (RFC 9457). Some types have further members.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {
                "type": "string", "pattern": "^/problems/[a-z_]{1,64}$", "examples": ["/problems/invalid_body"],
                "description": "Stable identifier of the problem type.",
            },
            "title": text("Short description of the problem type.", 100, "Invalid body"),
            "status": {
                "type": "integer", "minimum": 400, "maximum": 599, "examples": [422],
                "description": "The status of the response.",
            },
            "detail": text("Description of this occurrence, with the expected value.", 65_535, "`/name` must be a string."),
            "errors": {
                "type": "array", "description": "What is invalid in the body, or in the params of a call.", "maxItems": 16,
                "items": {
                    "type": "object", "required": ["pointer", "detail"],
                    "properties": {
                        "pointer": text("Location (JSON Pointer, RFC 6901); empty for the whole.", 65_535, "/name"),
                        "detail": text("What is wrong there.", 65_535, "`/name` must be a string."),
                    },
                },
            },
        },
    })
}
