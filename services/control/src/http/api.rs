//! The control plane's part of the OpenAPI document: its tags, problems and limits.
//!
//! Invariant: the limits are the rules that requests are checked against.

use serde_json::json;
use switchboard_catalog::MAX_URI_BYTES;
use switchboard_runtime::{api::Document, problem::ProblemKind};

use super::{
    label,
    limits::{
        Limit::{Items, Line},
        Rule, rule,
    },
};
use crate::resources::{
    audit_log,
    memories::schema as memories,
    npcs::schema as npcs,
    orgs, routes,
    skills_books::{
        query::{PART_RULES, SearchQuery},
        schema as books,
    },
    templates::rules as templates,
    voices::schema as voices,
    webhooks::schema as webhooks,
};

/// The groups of operations.
const TAGS: &[(&str, &str)] = &[
    (
        "Organisations",
        "The owners of devices and settings, and their usage. The operator creates organisations.",
    ),
    (
        "Nodes",
        "The processes of the installation, for its operator.",
    ),
    (
        "Session",
        "Who a caller is, and the sessions of the console: a cookie in place of `Authorization`, for requests with `X-Switchboard-Console: 1` of pages of this installation.",
    ),
    ("API keys", "The credentials of an organisation's backends."),
    ("Tokens", "Temporary credentials of devices and clients."),
    (
        "Templates",
        "The definitions of characters. MCP clients read them as prompts.",
    ),
    (
        "Memories",
        "Facts that templates and NPCs remember. MCP clients read them as resources.",
    ),
    (
        "NPCs",
        "The characters of an organisation, and their devices.",
    ),
    (
        "Pictures",
        "Avatars, and pictures in prompts. MCP clients read them as resources.",
    ),
    (
        "Skills books",
        "Documents that characters search. They are uploaded in parts and parsed in the background.",
    ),
    (
        "Webhooks",
        "HTTP endpoints that receive events of an organisation, and the deliveries to them.",
    ),
    (
        "Voices",
        "The voices of characters: samples with consent, and their training by providers.",
    ),
    (
        "Recordings",
        "What users said to devices, of organisations that switched this on.",
    ),
    (
        "Audit log",
        "The changes of settings, with author and time.",
    ),
];

/// The problems that not every route has.
const PROBLEMS: &[ProblemKind] = &[
    ProblemKind::OperatorOnly,
    ProblemKind::BusUnavailable,
    ProblemKind::PreconditionFailed,
    ProblemKind::InvalidPartNumber,
    ProblemKind::ScopeNotHeld,
    ProblemKind::OutsideKey,
    ProblemKind::InsecureSession,
    ProblemKind::CrossSiteRequest,
    ProblemKind::SignInCodeRefused,
    ProblemKind::UnknownApiKey,
    ProblemKind::TokenMalformed,
    ProblemKind::OrgSuspended,
    ProblemKind::RateLimited,
    ProblemKind::CredentialsUnverifiable,
    ProblemKind::LastAdminKey,
    ProblemKind::Overloaded,
    ProblemKind::PromptNameTaken,
    ProblemKind::RequestInProgress,
    ProblemKind::IdempotencyAnswerSealed,
    ProblemKind::UriTaken,
    ProblemKind::PictureInUse,
    ProblemKind::NoPngAvatar,
    ProblemKind::TemplateInUse,
    ProblemKind::DeviceTaken,
    ProblemKind::SkillsBookInUse,
    ProblemKind::SkillsBookNotUploading,
    ProblemKind::SkillsBookOver,
    ProblemKind::LargerThanDeclared,
    ProblemKind::PartsMissing,
    ProblemKind::SizeMismatch,
    ProblemKind::PartsChanged,
    ProblemKind::Sha256Mismatch,
    ProblemKind::DevicePrefixMismatch,
    ProblemKind::QuotaExceeded,
    ProblemKind::TooManyWebhooks,
    ProblemKind::WebhookDisabled,
    ProblemKind::TooManyDeliveries,
    ProblemKind::DeliveryNotFailed,
    ProblemKind::UnsupportedPicture,
    ProblemKind::BrokenCard,
    ProblemKind::BrokenPicture,
    ProblemKind::PictureTooLarge,
    ProblemKind::RangeNotSatisfiable,
    ProblemKind::ConsentRequired,
    ProblemKind::ConsentEnded,
    ProblemKind::ProviderMissing,
    ProblemKind::VoiceInUse,
    ProblemKind::UnsupportedAudio,
    ProblemKind::BrokenAudio,
    ProblemKind::UnsuitableAudio,
    ProblemKind::SettingsUnavailable,
    ProblemKind::ObjectsUnavailable,
    ProblemKind::ObjectsNotConfigured,
];

/// The rules of each schema.
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
    ("Npc", &[rule("/lapsed/*", Line(MAX_LAPSED_CHARS))]),
    ("NewWebhook", webhooks::RULES),
    ("Webhook", webhooks::RULES),
    ("CreatedWebhook", webhooks::RULES),
    ("OrgSettings", orgs::RULES),
    ("Org", orgs::RULES),
    ("AuditEntry", audit_log::RULES),
    ("Label", &[rule("", Line(label::MAX_CHARS))]),
    ("ApiKey", &[rule("/name", Line(label::MAX_CHARS))]),
    ("CreatedKey", &[rule("/name", Line(label::MAX_CHARS))]),
    (
        "NewMemories",
        &[rule("/memories", Items(1, memories::MAX_BATCH))],
    ),
    ("NewMemory", &[rule("/uri", Line(MAX_URI_BYTES))]),
    ("VoiceSettings", voices::RULES),
    ("VoiceDocument", voices::RULES),
    ("VoiceDocument", voices::SAMPLE_RULES),
    ("VoiceConsent", voices::CONSENT_RULES),
];

/// The maximum length of a pointer to an override: `/overrides/` and the name of a setting.
const MAX_LAPSED_CHARS: usize = 64;

/// Schemas that do not allow unknown members.
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

/// Examples of objects with arbitrary members.
const EXAMPLES: [(&str, &str, &str, &str); 7] = [
    ("CharacterCard", "/data", "name", "Bello"),
    ("CardRest", "/data", "creator", "Anna"),
    ("CardRest", "/root", "create_date", "2026-01-02"),
    ("NewMemory", "/metadata", "mood", "happy"),
    ("Memory", "/metadata", "mood", "happy"),
    ("NewNpc", "/overrides", "name", "Rex"),
    ("Npc", "/overrides", "name", "Rex"),
];

/// The control plane's part of the OpenAPI document.
#[must_use]
pub fn document() -> Document {
    let mut document = Document::new(routes().into_openapi(), PROBLEMS).tagged(TAGS);
    for (schema, rules) in LIMITS {
        for rule in *rules {
            document = document.limited(schema, rule.pattern, &rule.limit.as_schema());
        }
    }
    for (schema, place, name, value) in EXAMPLES {
        document = document.limited(schema, place, &json!({"examples": [{name: value}]}));
    }
    for schema in CLOSED {
        document = document.closed(schema);
    }
    document
        .limited("SkillsBookQuery", "", &SearchQuery::as_schema())
        .with_patch("TemplatePatch", "TemplateSettings")
        .with_patch("OrgPatch", "OrgSettings")
        .with_patch("NpcPatch", "NewNpc")
        .with_patch("WebhookPatch", "NewWebhook")
        .with_patch("VoicePatch", "VoiceSettings")
        .with_patch("MemoryPatch", "NewMemory")
}
