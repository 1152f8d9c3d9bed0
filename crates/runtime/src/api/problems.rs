//! Problem kinds that every route of a kind can return, and the schema of a problem document.

use serde_json::{Map, Value, json};

use crate::problem::ProblemKind;

/// Kinds of every route.
pub(super) const ALWAYS: &[ProblemKind] = &[ProblemKind::Internal];

/// Kinds of routes that authenticate their caller. Those of the operator verify other credentials too:
/// only a caller that is known receives `operator_only`.
pub(super) const AUTHENTICATED: &[ProblemKind] = &[
    ProblemKind::MissingCredentials,
    ProblemKind::CredentialsUnverifiable,
    ProblemKind::SessionExpired,
    ProblemKind::CrossSiteRequest,
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
];

/// Kinds of routes that accept a credential of an organisation.
pub(super) const CREDENTIALS: &[ProblemKind] = &[
    ProblemKind::InsufficientScope,
    ProblemKind::OrganisationRequired,
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

/// The name of the schema of a kind. Kinds with the same type and status share one.
pub(super) fn schema_name(kind: ProblemKind) -> String {
    let words = kind.slug().split('_');
    let words = words.map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_ascii_uppercase() + rest
    });
    let name: String = words.collect();
    let others = ProblemKind::ALL.iter();
    let mut others = others.filter(|other| other.slug() == kind.slug());
    let has_statuses = others.any(|other| other.status() != kind.status());
    let status = if has_statuses {
        kind.status().as_str().to_owned()
    } else {
        String::new()
    };
    format!("{name}{status}Problem")
}

/// The schema of each kind that an operation names.
pub(super) fn schemas(document: &Value) -> Map<String, Value> {
    let text = document["paths"].to_string();
    let named = ProblemKind::ALL
        .iter()
        .map(|kind| (schema_name(*kind), *kind));
    let named = named.filter(|(name, _)| text.contains(&format!("/schemas/{name}\"")));
    named.map(|(name, kind)| (name, schema_of(kind))).collect()
}

/// A problem document of one kind.
fn schema_of(kind: ProblemKind) -> Value {
    let mut schema = schema();
    let slug = format!("/problems/{}", kind.slug());
    let status = kind.status().as_u16();
    schema["description"] = format!("{} ({status}): {}.", kind.title(), kind.when()).into();
    let members = &mut schema["properties"];
    members["type"] = json!({
        "type": "string", "const": slug, "examples": [slug],
        "description": members["type"]["description"],
    });
    members["status"] = json!({
        "type": "integer", "const": status, "examples": [status],
        "description": members["status"]["description"],
    });
    schema
}

/// Schema of a problem document.
pub(super) fn schema() -> Value {
    let text = |description: &str, max_length: u16, example: &str| json!({"type": "string", "description": description, "maxLength": max_length, "examples": [example]});
    json!({
        "type": "object", "additionalProperties": true,
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
