//! The gateway's part of the API document. The MCP endpoints are not in it: MCP describes itself.

use serde_json::{Value, json};
use switchboard_runtime::{api::Document, problem::ProblemKind};

use crate::{
    calls::{
        item::MAX_WAIT_MS,
        mode::MAX_QUEUE_TTL,
        request::{MAX_SERVICE_BYTES, MAX_TIMEOUT_MS},
    },
    devices::labels::MAX_NOTE_CHARS,
    routes,
};

/// The groups of operations.
const TAGS: &[(&str, &str)] = &[
    (
        "Devices",
        "Lists and disconnects devices, and calls their services.",
    ),
    ("Calls", "The state of asynchronous and queued calls."),
    ("Events", "What happens in the organisation, as it happens."),
];

/// The problems that only some of the routes respond with.
const PROBLEMS: &[ProblemKind] = &[
    ProblemKind::OutsideKey,
    ProblemKind::UnknownDevice,
    ProblemKind::UnknownService,
    ProblemKind::InvalidParams,
    ProblemKind::DeviceOffline,
    ProblemKind::DeviceOnline,
    ProblemKind::ServiceChanged,
    ProblemKind::TooManyApprovals,
    ProblemKind::CallInProgress,
    ProblemKind::UnknownCall,
    ProblemKind::CallSent,
    ProblemKind::CallEnded,
    ProblemKind::Overloaded,
    ProblemKind::TooManyListeners,
    ProblemKind::QueueFull,
    ProblemKind::QuotaExceeded,
    ProblemKind::ParamsTooLarge,
    ProblemKind::RateLimited,
    ProblemKind::CallCancelled,
    ProblemKind::CallLost,
    ProblemKind::CallTimedOut,
    ProblemKind::NotAcceptable,
    ProblemKind::BusUnavailable,
    ProblemKind::StoreUnavailable,
];

/// The API document of the gateway's REST routes.
#[must_use]
pub fn document() -> Document {
    let document = Document::new(routes().into_openapi(), PROBLEMS).tagged(TAGS);
    constraints()
        .iter()
        .fold(document, |document, (schema, pointer, keywords)| {
            document.limited(schema, pointer, keywords)
        })
}

/// Keywords that come from constants, and examples, by schema and pointer.
fn constraints() -> Vec<(&'static str, &'static str, Value)> {
    let timeout = json!({"minimum": 1, "maximum": MAX_TIMEOUT_MS});
    let expiry = json!({"minimum": 1, "maximum": MAX_QUEUE_TTL.as_secs() * 1_000});
    let result = json!({"examples": [{"success": true, "data": "2026-01-02 03:04:05"}]});
    let services = json!({"examples": [{"wave": {"description": "Waves", "parameters": {}}}]});
    let an_object = json!({"examples": [{"type": "object"}]});
    let annotations = json!({"examples": [{"readOnlyHint": false}]});
    vec![
        ("NewCall", "/timeout_ms", timeout.clone()),
        ("NewGroupCall", "/timeout_ms", timeout),
        (
            "NewGroupCall",
            "/service",
            json!({"maxLength": MAX_SERVICE_BYTES}),
        ),
        (
            "NewGroupCall",
            "/params",
            json!({"examples": [{"format": "simple"}]}),
        ),
        ("GroupCallItem", "/result", result.clone()),
        (
            "GroupCallItem",
            "/problem",
            json!({"examples": [{"type": "/problems/offline", "title": "Device offline", "status": 409}]}),
        ),
        ("ServiceApproval", "/parameters", an_object.clone()),
        ("ServiceApproval", "/output", an_object.clone()),
        ("ServiceApproval", "/annotations", annotations.clone()),
        ("Approved", "/parameters", an_object.clone()),
        ("Approved", "/output", an_object),
        ("Approved", "/annotations", annotations),
        ("NewCall", "/expires_in_ms", expiry),
        (
            "NewCall",
            "/service",
            json!({"maxLength": MAX_SERVICE_BYTES}),
        ),
        (
            "NewCall",
            "/params",
            json!({"examples": [{"format": "simple"}]}),
        ),
        ("NewCall", "/input", json!({"examples": [{}]})),
        ("DevicePatch", "/note", json!({"maxLength": MAX_NOTE_CHARS})),
        ("DeviceNotes", "/note", json!({"maxLength": MAX_NOTE_CHARS})),
        ("Device", "/note", json!({"maxLength": MAX_NOTE_CHARS})),
        ("WaitMs", "", json!({"minimum": 0, "maximum": MAX_WAIT_MS})),
        ("CallResult", "/result", result.clone()),
        ("StoredCall", "/result", result.clone()),
        ("StoredCallEnd", "/result", result),
        ("Device", "/services", services),
        (
            "Device",
            "/approvals",
            json!({"examples": [{"wave": "approved"}]}),
        ),
        (
            "Device",
            "/service_names/*",
            json!({"maxLength": MAX_SERVICE_BYTES}),
        ),
    ]
}
