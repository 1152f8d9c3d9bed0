//! The gateway's part of the API's document: its kinds of problems, and the limits out of the code.
//! Never: the MCP endpoints, which describe themselves in their own protocol.

use serde_json::json;
use switchboard_runtime::api::{Document, ProblemKind};

use crate::{
    calls::{
        by_id::LONGEST_WAIT_MS,
        mode::LONGEST_WAIT,
        request::{LONGEST_TIMEOUT_MS, SERVICE_NAME_BYTES},
    },
    routes,
};

/// What the operations are grouped by.
const TAGS: &[(&str, &str)] = &[
    (
        "Devices",
        "Who is there, and what they do when they are called.",
    ),
    ("Calls", "What became of calls that nobody waited for."),
];

/// What goes wrong here and not on every route.
const PROBLEMS: &[ProblemKind] = &[
    ProblemKind::new("unknown_device", 404, "the organisation has no such device"),
    ProblemKind::new(
        "unknown_service",
        404,
        "the device has not registered such a service",
    ),
    ProblemKind::new(
        "invalid",
        422,
        "the params do not match the schema; `errors` says where",
    ),
    ProblemKind::new("offline", 409, "the device is not connected"),
    ProblemKind::new(
        "call_in_progress",
        409,
        "the call with this Idempotency-Key is under way",
    ),
    ProblemKind::new(
        "unknown_call",
        404,
        "no such call of the organisation is kept",
    ),
    ProblemKind::new("call_sent", 409, "the call is being sent, or has been"),
    ProblemKind::new("call_ended", 409, "the call is over"),
    ProblemKind::new("overloaded", 429, "too much is under way for this device"),
    ProblemKind::new("queue_full", 429, "as many calls wait already as may wait"),
    ProblemKind::new("overloaded", 413, "the params are too large for any device"),
    ProblemKind::new(
        "rate_limited",
        429,
        "this comes faster than the limit allows",
    ),
    ProblemKind::new("cancelled", 499, "the call was cancelled"),
    ProblemKind::new(
        "lost",
        502,
        "the connection failed; the device may have acted",
    ),
    ProblemKind::new(
        "timed_out",
        504,
        "the device did not answer in time; it may have acted",
    ),
    ProblemKind::new(
        "bus_unavailable",
        503,
        "the devices cannot be reached; nothing was sent",
    ),
    ProblemKind::new(
        "store_unavailable",
        503,
        "what is on record cannot be read or written at the moment",
    ),
];

/// What the routes of the gateway say of themselves.
#[must_use]
pub fn document() -> Document {
    let places = [
        (
            "NewCall",
            "/timeout_ms",
            json!({"minimum": 1, "maximum": LONGEST_TIMEOUT_MS}),
        ),
        (
            "NewCall",
            "/expires_in_ms",
            json!({"minimum": 1, "maximum": LONGEST_WAIT.as_secs() * 1_000}),
        ),
        (
            "NewCall",
            "/service",
            json!({"maxLength": SERVICE_NAME_BYTES}),
        ),
        (
            "NewCall",
            "/params",
            json!({"examples": [{"format": "simple"}]}),
        ),
        (
            "WaitMs",
            "",
            json!({"minimum": 0, "maximum": LONGEST_WAIT_MS}),
        ),
        ("NewCall", "/input", json!({"examples": [{}]})),
        (
            "CallResult",
            "/result",
            json!({"examples": [{"success": true, "data": "2026-01-02 03:04:05"}]}),
        ),
        (
            "KeptCall",
            "/result",
            json!({"examples": [{"success": true, "data": "2026-01-02 03:04:05"}]}),
        ),
        (
            "KeptCallEnd",
            "/result",
            json!({"examples": [{"success": true, "data": "2026-01-02 03:04:05"}]}),
        ),
        (
            "Device",
            "/services",
            json!({"examples": [{"wave": {"description": "Waves", "parameters": {}}}]}),
        ),
    ];
    let document = Document::new(routes().into_openapi(), PROBLEMS).tagged(TAGS);
    places
        .iter()
        .fold(document, |document, (schema, place, limits)| {
            document.limited(schema, place, limits)
        })
}
