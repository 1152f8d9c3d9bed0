//! The conversations' part of the OpenAPI document: problem kinds, and limits from the code.

use serde_json::json;
use switchboard_runtime::{api::Document, problem::ProblemKind};

use super::{
    request::{MAX_SUBJECT_BYTES, MAX_TEXT_BYTES},
    routes,
};

/// The tags of the operations.
const TAGS: &[(&str, &str)] = &[(
    "Conversations",
    "Messages to NPCs, and their answers as streams of events.",
)];

/// Problem kinds of these routes, besides the common ones.
const PROBLEMS: &[ProblemKind] = &[
    ProblemKind::UnknownNpc,
    ProblemKind::TooManyOrgTurns,
    ProblemKind::RateLimited,
    ProblemKind::DailyQuotaExceeded,
    ProblemKind::TooManyTurns,
    ProblemKind::Overloaded,
    ProblemKind::ObjectsNotConfigured,
    ProblemKind::ObjectsUnavailable,
    ProblemKind::StoreUnavailable,
];

/// The document of the routes of this service.
#[must_use]
pub fn document() -> Document {
    Document::new(routes().into_openapi(), PROBLEMS)
        .tagged(TAGS)
        .limited(
            "ChatRequest",
            "/text",
            &json!({"maxLength": MAX_TEXT_BYTES}),
        )
        .limited(
            "ChatRequest",
            "/subject",
            &json!({"minLength": 1, "maxLength": MAX_SUBJECT_BYTES}),
        )
}
