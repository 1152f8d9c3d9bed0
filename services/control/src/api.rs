//! The control plane's part of the API's document: its kinds of problems, and the limits out of the rules.
//! Never: a limit that is not the one that a request is held against.

use serde_json::json;
use switchboard_runtime::api::{Document, ProblemKind};
use switchboard_store::LONGEST_URI;

use crate::{
    audit_log, label,
    limits::{
        Limit::{Items, Line},
        Rule, rule,
    },
    memories::shape as memories,
    npcs::shape as npcs,
    orgs, routes,
    skills_books::{
        asked::{PART_RULES, Question},
        shape as books,
    },
    templates::rules as templates,
    voices::shape as voices,
    webhooks::shape as webhooks,
};

/// What the operations are grouped by.
const TAGS: &[(&str, &str)] = &[
    (
        "Organisations",
        "Who owns devices and settings, and what they come to. Made by the operator.",
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
    (
        "Skills books",
        "Documents that characters look things up in, sent in parts and read in the background.",
    ),
    (
        "Webhooks",
        "Where an organisation is told what happens, and what became of that.",
    ),
    (
        "Voices",
        "How characters sound: samples with consent, and what providers make of them.",
    ),
    ("Audit log", "Who changed which setting, and when."),
];

/// What goes wrong here and not on every route.
const PROBLEMS: &[ProblemKind] = &[
    ProblemKind::new("operator_only", 403, "only the operator may do this"),
    ProblemKind::new(
        "invalid_part_number",
        400,
        "parts are numbered from 1 to 10 000",
    ),
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
    ProblemKind::new(
        "no_png_avatar",
        409,
        "the template's avatar is no whole PNG that a card could be put into",
    ),
    ProblemKind::new("template_in_use", 409, "NPCs are made from it"),
    ProblemKind::new(
        "device_taken",
        409,
        "another NPC speaks through one of the devices",
    ),
    ProblemKind::new("skills_book_in_use", 409, "a template or an NPC names it"),
    ProblemKind::new(
        "skills_book_not_uploading",
        409,
        "it takes parts only while it is uploading; `state` says how far it is",
    ),
    ProblemKind::new(
        "skills_book_over",
        409,
        "it has come to its end; `state` says to which",
    ),
    ProblemKind::new(
        "larger_than_declared",
        409,
        "with this part it would have more bytes than was declared",
    ),
    ProblemKind::new(
        "parts_missing",
        409,
        "parts are not there yet; `missing_parts` names them",
    ),
    ProblemKind::new(
        "size_mismatch",
        409,
        "its parts have fewer bytes than was declared",
    ),
    ProblemKind::new(
        "parts_changed",
        409,
        "a part was written while they were checked",
    ),
    ProblemKind::new(
        "sha256_mismatch",
        422,
        "its parts have another SHA-256 than was declared",
    ),
    ProblemKind::new(
        "too_many_webhooks",
        409,
        "the organisation has as many as it may",
    ),
    ProblemKind::new("webhook_disabled", 409, "it is told nothing"),
    ProblemKind::new(
        "too_many_deliveries",
        409,
        "as many wait for the webhook as may",
    ),
    ProblemKind::new(
        "delivery_not_failed",
        409,
        "it has arrived, or is attempted still",
    ),
    ProblemKind::new("unsupported_picture", 415, "no picture of a known type"),
    ProblemKind::new(
        "broken_card",
        422,
        "the PNG is not whole, or has no character card of the second version",
    ),
    ProblemKind::new("broken_picture", 422, "its header says no size"),
    ProblemKind::new("picture_too_large", 422, "too many pixels"),
    ProblemKind::new(
        "range_not_satisfiable",
        416,
        "`Range` asks for bytes that there are not",
    ),
    ProblemKind::new(
        "consent_required",
        422,
        "it is not said who agreed, or to what",
    ),
    ProblemKind::new("consent_ended", 409, "the voice may not be used any more"),
    ProblemKind::new(
        "provider_missing",
        409,
        "the operator has taken the voice's provider away",
    ),
    ProblemKind::new("voice_in_use", 409, "a template or an NPC speaks with it"),
    ProblemKind::new("unsupported_audio", 415, "no sound of a known type"),
    ProblemKind::new(
        "broken_audio",
        422,
        "it does not say how long it plays, or has not the sound that it promises",
    ),
    ProblemKind::new(
        "unsuitable_audio",
        422,
        "too short, too long, or recorded in a way that no voice is made of",
    ),
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
        "this installation has no place for pictures, skills books and voices",
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
    ("NewSkillsBook", books::RULES),
    ("SkillsBook", books::RULES),
    ("SkillsBookPartNumber", PART_RULES),
    ("Npc", &[rule("/lapsed/*", Line(LONGEST_LAPSED))]),
    ("NewWebhook", webhooks::RULES),
    ("Webhook", webhooks::RULES),
    ("CreatedWebhook", webhooks::RULES),
    ("OrgSettings", orgs::RULES),
    ("Org", orgs::RULES),
    ("AuditEntry", audit_log::RULES),
    ("Label", &[rule("", Line(label::LONGEST))]),
    ("ApiKey", &[rule("/name", Line(label::LONGEST))]),
    ("CreatedKey", &[rule("/name", Line(label::LONGEST))]),
    (
        "NewMemories",
        &[rule("/memories", Items(1, memories::LARGEST_BATCH))],
    ),
    ("NewMemory", &[rule("/uri", Line(LONGEST_URI))]),
    ("VoiceSettings", voices::RULES),
    ("VoiceDocument", voices::RULES),
    ("VoiceDocument", voices::SAMPLE_RULES),
    ("VoiceConsent", voices::CONSENT_RULES),
];

/// The longest pointer to an override: `/overrides/` and the name of a setting.
const LONGEST_LAPSED: usize = 64;

/// What is read strictly, member by member.
const CLOSED: [&str; 9] = [
    "OrgSettings",
    "TemplateSettings",
    "NewTemplate",
    "NewNpc",
    "NewSkillsBook",
    "NewWebhook",
    "NewMemory",
    "NewMemories",
    "VoiceSettings",
];

/// Free objects, of which an example says more than a description.
const EXAMPLES: [(&str, &str, &str, &str); 7] = [
    ("CharacterCard", "/data", "name", "Bello"),
    ("CardRest", "/data", "creator", "Anna"),
    ("CardRest", "/root", "create_date", "2026-01-02"),
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
        .limited("SkillsBookQuestion", "", &Question::as_schema())
        .with_patch("TemplatePatch", "TemplateSettings")
        .with_patch("OrgPatch", "OrgSettings")
        .with_patch("NpcPatch", "NewNpc")
        .with_patch("WebhookPatch", "NewWebhook")
        .with_patch("VoicePatch", "VoiceSettings")
}
