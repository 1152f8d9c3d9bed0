//! `/v1/audit-log`: who changed which setting, and when.
//! Never: an entry of another owner's, or a value that was changed.

use std::{str::FromStr, sync::Arc};

use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use switchboard_protocol::id::{
    ApiKeyId, AuditEntryId, MemoryId, NpcId, OrgId, PictureId, SkillsBookId, TemplateId, TokenId,
    VoiceId, WebhookId,
};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Problem, Query},
};
use switchboard_store::{AuditEntry, AuditFilter};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    access::Author,
    error::ControlError,
    limits::{Limit::Line, Rule, rule},
};

/// The longest name of whoever did something, in characters.
const LONGEST_ACTOR: usize = 256;

/// How long what is shown may be: ids, subjects of tokens, and names of columns.
pub(crate) const RULES: &[Rule] = &[
    rule("/actor", Line(LONGEST_ACTOR)),
    rule("/resource_id", Line(64)),
    rule("/changed/*", Line(63)),
];

/// What was done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = "changed")]
pub(crate) enum AuditAction {
    Created,
    Changed,
    Removed,
    Revoked,
}

/// To what kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = "template")]
pub(crate) enum AuditedResource {
    Org,
    ApiKey,
    Token,
    Template,
    Npc,
    Memory,
    Picture,
    SkillsBook,
    Voice,
    Webhook,
}

/// One change.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct ShownEntry {
    /// Its id.
    id: AuditEntryId,
    /// When.
    #[schema(example = "2026-01-02T03:04:05Z")]
    at: DateTime<Utc>,
    /// Who: an API key's id, a token's subject, `operator`, or `switchboard` by itself.
    #[schema(example = "key_01a1fdc1e83670f68020c071fd533605")]
    actor: String,
    /// What was done.
    #[schema(value_type = AuditAction)]
    action: String,
    /// To what kind of thing.
    #[schema(value_type = AuditedResource)]
    resource: String,
    /// To which; it may be gone.
    #[schema(example = "tpl_01a1fdc1e83670f68020c071fd533605")]
    resource_id: String,
    /// What of it was changed, by name.
    #[schema(max_items = 64, example = json!(["persona", "tags"]))]
    changed: Vec<String>,
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditLog {
    /// The oldest first.
    #[schema(max_items = 200)]
    entries: Vec<ShownEntry>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// The most elements of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the page before.
    cursor: Option<Cursor>,
    /// Only what this one did.
    #[param(max_length = 256, example = "operator")]
    actor: Option<String>,
    /// Only this.
    action: Option<AuditAction>,
    /// Only about things of this kind.
    resource: Option<AuditedResource>,
    /// Only about the thing with this id.
    #[param(
        pattern = "^(org|key|tok|tpl|npc|mem|pic|skb|voice|whk)_[0-9a-f]{32}$",
        example = "tpl_01a1fdc1e83670f68020c071fd533605"
    )]
    resource_id: Option<String>,
    /// Only from this moment on.
    #[param(example = "2026-01-02T03:04:05Z")]
    since: Option<DateTime<Utc>>,
    /// Only before this moment.
    #[param(example = "2027-01-02T03:04:05Z")]
    until: Option<DateTime<Utc>>,
}

/// Lists who changed which setting, and when.
#[utoipa::path(
    get, path = "/v1/audit-log", tag = "Audit log", operation_id = "listAuditLog",
    params(Listing),
    responses((status = 200, body = AuditLog, description = "A page of entries")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["operator_only", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Author(owner): Author,
    Query(listing): Query<Listing>,
) -> Result<axum::Json<AuditLog>, ControlError> {
    let limit = Limit::new(listing.limit)?;
    if listing
        .actor
        .as_ref()
        .is_some_and(|actor| actor.chars().count() > LONGEST_ACTOR)
    {
        let detail = format!("`actor` must have {LONGEST_ACTOR} characters at most.");
        return Err(Problem::invalid_query(detail).into());
    }
    let list = List::of("/v1/audit-log", owner);
    let after = list.after(listing.cursor)?;
    let filter = AuditFilter {
        actor: listing.actor,
        action: listing.action.map(word),
        resource: listing.resource.map(word),
        resource_id: listing.resource_id.as_deref().map(uuid).transpose()?,
        since: listing.since,
        until: listing.until,
    };
    let store = &control.store;
    let found = store.audit_log(owner, &filter, after, limit.probe());
    let (page, next_cursor) = limit.cut(found.await?, |entry| list.behind(entry.id));
    Ok(axum::Json(AuditLog {
        entries: page.into_iter().map(ShownEntry::from).collect(),
        next_cursor,
    }))
}

/// How serde writes it, which is how the database does.
fn word(value: impl Serialize) -> String {
    let written = json!(value);
    written.as_str().unwrap_or_default().to_owned()
}

/// The UUID of an id of any kind that is audited.
fn uuid(id: &str) -> Result<Uuid, Problem> {
    fn read<Id: FromStr>(id: &str, uuid: fn(Id) -> Uuid) -> Option<Uuid> {
        id.parse().ok().map(uuid)
    }
    read(id, TemplateId::uuid)
        .or_else(|| read(id, NpcId::uuid))
        .or_else(|| read(id, MemoryId::uuid))
        .or_else(|| read(id, PictureId::uuid))
        .or_else(|| read(id, SkillsBookId::uuid))
        .or_else(|| read(id, VoiceId::uuid))
        .or_else(|| read(id, WebhookId::uuid))
        .or_else(|| read(id, TokenId::uuid))
        .or_else(|| read(id, ApiKeyId::uuid))
        .or_else(|| read(id, OrgId::uuid))
        .ok_or_else(|| Problem::invalid_query("`resource_id` is no id of a setting".to_owned()))
}

impl From<AuditEntry> for ShownEntry {
    fn from(entry: AuditEntry) -> Self {
        let uuid = entry.resource_id;
        let resource_id = match entry.resource.as_str() {
            "org" => OrgId::from_uuid(uuid).to_string(),
            "api_key" => ApiKeyId::from_uuid(uuid).to_string(),
            "token" => TokenId::from_uuid(uuid).to_string(),
            "template" => TemplateId::from_uuid(uuid).to_string(),
            "npc" => NpcId::from_uuid(uuid).to_string(),
            "memory" => MemoryId::from_uuid(uuid).to_string(),
            "picture" => PictureId::from_uuid(uuid).to_string(),
            "voice" => VoiceId::from_uuid(uuid).to_string(),
            "webhook" => WebhookId::from_uuid(uuid).to_string(),
            _ => SkillsBookId::from_uuid(uuid).to_string(),
        };
        Self {
            id: entry.id,
            at: entry.at,
            actor: entry.actor,
            action: entry.action,
            resource: entry.resource,
            resource_id,
            changed: entry.changed,
        }
    }
}
