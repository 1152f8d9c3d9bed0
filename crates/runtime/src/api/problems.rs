//! The kinds of problems that routes answer with, as the document tells of them.
//! Never: a kind that a route of the document names and nobody explains; a test looks for them.

use serde_json::{Value, json};

/// One kind of problem: `type` is `/problems/<slug>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemKind {
    /// Its name.
    pub slug: &'static str,
    /// The status it comes with.
    pub status: u16,
    /// When it happens.
    pub when: &'static str,
}

impl ProblemKind {
    /// A kind of problem.
    #[must_use]
    pub const fn new(slug: &'static str, status: u16, when: &'static str) -> Self {
        Self { slug, status, when }
    }
}

/// Of every route.
pub(super) const ALWAYS: &[ProblemKind] = &[ProblemKind::new("internal", 500, "a mistake of ours")];

/// Of routes that ask who is calling.
pub(super) const OF_CALLERS: &[ProblemKind] = &[
    ProblemKind::new("missing_credentials", 401, "no `Authorization: Bearer`"),
    ProblemKind::new(
        "credentials_unverifiable",
        503,
        "this node cannot judge the credential at the moment",
    ),
];

/// Of routes that take an organisation's credential.
pub(super) const OF_CREDENTIALS: &[ProblemKind] = &[
    ProblemKind::new("unknown_api_key", 401, "never made, or revoked"),
    ProblemKind::new(
        "token_malformed",
        401,
        "neither an API key nor an access token",
    ),
    ProblemKind::new(
        "token_unknown_key",
        401,
        "signed with a key that is not ours",
    ),
    ProblemKind::new(
        "token_bad_signature",
        401,
        "the signature does not belong to the claims",
    ),
    ProblemKind::new("token_expired", 401, "too old"),
    ProblemKind::new("token_wrong_audience", 401, "issued for somebody else"),
    ProblemKind::new("token_wrong_issuer", 401, "issued by somebody else"),
    ProblemKind::new("token_revoked", 401, "taken back before its time"),
    ProblemKind::new(
        "insufficient_scope",
        403,
        "the credential does not have the scope",
    ),
];

/// Of routes with any body.
pub(super) const OF_BODIES: &[ProblemKind] = &[
    ProblemKind::new("empty_body", 400, "nothing was sent"),
    ProblemKind::new("incomplete_body", 400, "the body broke off"),
    ProblemKind::new("body_timeout", 408, "the body did not arrive in time"),
    ProblemKind::new("body_too_large", 413, "more bytes than the server takes"),
];

/// Of routes with a JSON body.
pub(super) const OF_JSON: &[ProblemKind] = &[
    ProblemKind::new(
        "malformed_json",
        400,
        "no JSON; `line` and `column` say where",
    ),
    ProblemKind::new("unsupported_media_type", 415, "not declared as JSON"),
    ProblemKind::new(
        "invalid_body",
        422,
        "JSON of another shape; `pointer` or `field` says where",
    ),
];

/// Of routes with a query.
pub(super) const OF_QUERIES: &[ProblemKind] = &[ProblemKind::new(
    "invalid_query",
    400,
    "a parameter of the query does not do",
)];

/// Of routes that take an Idempotency-Key.
pub(super) const OF_KEYED: &[ProblemKind] = &[
    ProblemKind::new(
        "invalid_idempotency_key",
        400,
        "not one key of 1 to 255 visible ASCII characters",
    ),
    ProblemKind::new(
        "idempotency_key_reused",
        422,
        "the key was used for another request",
    ),
];

/// Of routes that take If-Match.
pub(super) const OF_CONDITIONAL: &[ProblemKind] = &[
    ProblemKind::new("precondition_required", 428, "no If-Match"),
    ProblemKind::new(
        "precondition_failed",
        412,
        "it is not in the version that If-Match names",
    ),
];

/// Named by the routes that have them.
pub(super) const NAMED: &[ProblemKind] = &[
    ProblemKind::new(
        "not_found",
        404,
        "there is nothing of this name, or not for this caller",
    ),
    ProblemKind::new(
        "invalid_path",
        422,
        "a part of the path has not the form that it must have",
    ),
];

/// How a problem document looks.
pub(super) fn schema() -> Value {
    let text = |description: &str, most: u16, example: &str| json!({"type": "string", "description": description, "maxLength": most, "examples": [example]});
    json!({
        "type": "object",
        "description": "A problem document (RFC 9457). Kinds can have further members.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {
                "type": "string", "pattern": "^/problems/[a-z_]{1,64}$", "examples": ["/problems/invalid_body"],
                "description": "What kind of problem it is, for programs; it stays the same over versions.",
            },
            "title": text("What kind of problem it is, for people.", 100, "Invalid body"),
            "status": {
                "type": "integer", "minimum": 400, "maximum": 599, "examples": [422],
                "description": "The status of the response.",
            },
            "detail": text("What was wrong this time, and what would be right.", 65_535, "`/name` must be a string."),
            "pointer": text("Where in the body (RFC 6901).", 65_535, "/name"),
            "field": text("Which member of the body.", 65_535, "name"),
        },
    })
}
