//! The conversations' part of the API's document: its kinds of problems, and the limits out of the code.
//! Never: what devices say and hear, which their own protocol describes.

use serde_json::json;
use switchboard_runtime::api::{Document, ProblemKind};

use crate::over_http::{
    asked::{SUBJECT_BYTES, TEXT_BYTES},
    routes,
};

/// What the operations are grouped by.
const TAGS: &[(&str, &str)] = &[(
    "Conversations",
    "What is said to NPCs, and what they answer.",
)];

/// What goes wrong here and not on every route.
const PROBLEMS: &[ProblemKind] = &[
    ProblemKind::new("unknown_npc", 404, "the organisation has no such NPC"),
    ProblemKind::new(
        "too_many_turns",
        429,
        "as much is being answered for this organisation as may be at a time",
    ),
    ProblemKind::new(
        "rate_limited",
        429,
        "this comes faster than the limit allows",
    ),
    ProblemKind::new(
        "too_many_turns",
        503,
        "as much is being answered as can be at a time",
    ),
    ProblemKind::new(
        "store_unavailable",
        503,
        "what is on record cannot be read or written at the moment",
    ),
];

/// What the routes of conversations say of themselves.
#[must_use]
pub fn document() -> Document {
    Document::new(routes().into_openapi(), PROBLEMS)
        .tagged(TAGS)
        .limited(
            "NewWords",
            "/text",
            &json!({"minLength": 1, "maxLength": TEXT_BYTES}),
        )
        .limited(
            "NewWords",
            "/subject",
            &json!({"minLength": 1, "maxLength": SUBJECT_BYTES}),
        )
}
