//! The control plane's part of the API's document: its kinds of problems, and the limits out of the rules.
//! Never: a limit that is not the one that a request is held against.

use serde_json::json;
use switchboard_runtime::api::{Document, ProblemKind};
use switchboard_store::LONGEST_URI;

use crate::{
    label,
    limits::{
        Limit::{Items, Line},
        Rule, rule,
    },
    memories::shape as memories,
    npcs::shape as npcs,
    routes,
    templates::rules as templates,
};

/// What the operations are grouped by.
const TAGS: &[(&str, &str)] = &[
    (
        "Organisations",
        "Who owns devices and settings. Made by the operator.",
    ),
    ("API keys", "What an organisation's backends hold."),
    ("Tokens", "What devices and clients hold, for a while."),
    (
        "Templates",
        "What characters are made from. Agents read them as MCP prompts.",
    ),
    (
        "Memories",
        "What templates and NPCs remember. Agents read them as MCP resources.",
    ),
    (
        "NPCs",
        "An organisation's characters, and the devices they speak through.",
    ),
    (
        "Pictures",
        "What templates show. Agents read them as MCP resources.",
    ),
];

/// What goes wrong here and not on every route.
const PROBLEMS: &[ProblemKind] = &[
    ProblemKind::new("operator_only", 403, "only the operator may do this"),
    ProblemKind::new(
        "scope_not_held",
        403,
        "a scope that the caller does not have cannot be granted",
    ),
    ProblemKind::new(
        "last_admin_key",
        409,
        "nobody could administer the organisation without this key",
    ),
    ProblemKind::new(
        "prompt_name_taken",
        409,
        "another template has this name as a prompt",
    ),
    ProblemKind::new(
        "request_in_progress",
        409,
        "the request with this Idempotency-Key is under way",
    ),
    ProblemKind::new(
        "idempotency_answer_sealed",
        409,
        "done before, with a secret that only the credential it was given to reads again",
    ),
    ProblemKind::new("uri_taken", 409, "something else is read under this URI"),
    ProblemKind::new("picture_in_use", 409, "a template or an NPC shows it"),
    ProblemKind::new("template_in_use", 409, "NPCs are made from it"),
    ProblemKind::new(
        "device_taken",
        409,
        "another NPC speaks through one of the devices",
    ),
    ProblemKind::new("unsupported_picture", 415, "no picture of a known type"),
    ProblemKind::new("broken_picture", 422, "its header says no size"),
    ProblemKind::new("picture_too_large", 422, "too many pixels"),
    ProblemKind::new(
        "store_unavailable",
        503,
        "the database is away; try again in a moment",
    ),
    ProblemKind::new(
        "objects_unavailable",
        503,
        "the object store is away; try again in a moment",
    ),
    ProblemKind::new(
        "objects_not_configured",
        503,
        "this installation has no place for pictures",
    ),
];

/// Schemas and the rules that hold in them.
const LIMITS: &[(&str, &[Rule])] = &[
    ("TemplateSettings", templates::RULES),
    ("NewTemplate", templates::RULES),
    ("Template", templates::RULES),
    ("NewMemory", memories::RULES),
    ("Memory", memories::RULES),
    ("NewNpc", npcs::RULES),
    ("Npc", npcs::RULES),
    ("Npc", &[rule("/lapsed/*", Line(LONGEST_LAPSED))]),
    ("Label", &[rule("", Line(label::LONGEST))]),
    ("ApiKey", &[rule("/name", Line(label::LONGEST))]),
    ("CreatedKey", &[rule("/name", Line(label::LONGEST))]),
    (
        "NewMemories",
        &[rule("/memories", Items(1, memories::LARGEST_BATCH))],
    ),
    ("NewMemory", &[rule("/uri", Line(LONGEST_URI))]),
];

/// The longest pointer to an override: `/overrides/` and the name of a setting.
const LONGEST_LAPSED: usize = 64;

/// What is read strictly, member by member.
const CLOSED: [&str; 5] = [
    "TemplateSettings",
    "NewTemplate",
    "NewNpc",
    "NewMemory",
    "NewMemories",
];

/// Free objects, of which an example says more than a description.
const EXAMPLES: [(&str, &str, &str, &str); 4] = [
    ("NewMemory", "/metadata", "mood", "happy"),
    ("Memory", "/metadata", "mood", "happy"),
    ("NewNpc", "/overrides", "name", "Rex"),
    ("Npc", "/overrides", "name", "Rex"),
];

/// What the routes of the control plane say of themselves.
#[must_use]
pub fn document() -> Document {
    let mut document = Document::new(routes().into_openapi(), PROBLEMS).tagged(TAGS);
    for (schema, rules) in LIMITS {
        for rule in *rules {
            document = document.limited(schema, rule.at, &rule.limit.as_schema());
        }
    }
    for (schema, place, name, value) in EXAMPLES {
        document = document.limited(schema, place, &json!({"examples": [{name: value}]}));
    }
    for schema in CLOSED {
        document = document.closed(schema);
    }
    document
        .with_patch("TemplatePatch", "TemplateSettings")
        .with_patch("NpcPatch", "NewNpc")
}
