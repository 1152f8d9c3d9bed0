//! `/v1/audit-log`: who changed which setting, and when.
//!
//! Invariant: an entry names the changed members and never holds their values.

use std::{str::FromStr, sync::Arc};

use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use switchboard_protocol::id::{
    ApiKeyId, ApprovalId, AuditEntryId, DeviceId, MemoryId, NpcId, OrgId, PictureId, RecordingId,
    SkillsBookId, TemplateId, TokenId, VoiceId, WebhookId,
};
use switchboard_runtime::{
    paging::{self, Cursor, JsonElements, Limit, List, Order},
    problem::{Problem, Query},
};
use switchboard_store::{AuditEntry, AuditFilter};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::Writer,
        error::ControlError,
        limits::{Limit::Line, Rule, rule},
        response::JsonResponse,
    },
};

/// The maximum length of an actor's name, in characters.
const MAX_ACTOR_CHARS: usize = 256;

/// The limits of ids, subjects of tokens, and names of columns.
pub(crate) const RULES: &[Rule] = &[
    rule("/actor", Line(MAX_ACTOR_CHARS)),
    rule("/resource_id", Line(64)),
    rule("/changed/*", Line(63)),
];

/// The kind of change.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = "changed")]
pub(crate) enum AuditAction {
    Created,
    Changed,
    Removed,
    Revoked,
}

/// The kind of resource.
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
    Recording,
    Device,
    Approval,
}

/// An entry of the audit log: one change of one resource.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditEntryView {
    /// Unique identifier.
    id: AuditEntryId,
    /// Time of the change (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    at: DateTime<Utc>,
    /// The author of the change: the id of an API key, the subject of a token, `operator`, or
    /// `switchboard` for background work.
    #[schema(example = "key_01a1fdc1e83670f68020c071fd533605")]
    actor: String,
    /// The kind of change.
    #[schema(value_type = AuditAction)]
    action: String,
    /// The kind of the changed resource.
    #[schema(value_type = AuditedResource)]
    resource: String,
    /// The id of the changed resource, which may have been deleted since.
    #[schema(example = "tpl_01a1fdc1e83670f68020c071fd533605")]
    resource_id: String,
    /// The names of the changed members.
    #[schema(max_items = 64, example = json!(["persona", "tags"]))]
    changed: Vec<String>,
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditLog {
    /// Oldest first or, with `order=desc`, newest first.
    #[schema(max_items = 200, value_type = Vec<AuditEntryView>)]
    entries: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Maximum number of elements in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
    /// `desc`: newest first.
    #[param(inline, required = false, example = "desc")]
    #[serde(default)]
    order: Order,
    /// Only changes by this actor.
    #[param(max_length = 256, example = "operator")]
    actor: Option<String>,
    /// Only changes of this kind.
    action: Option<AuditAction>,
    /// Only changes of resources of this kind.
    resource: Option<AuditedResource>,
    /// Only changes of the resource with this id.
    #[param(
        pattern = "^[A-Za-z0-9._:-]{1,64}$",
        example = "tpl_01a1fdc1e83670f68020c071fd533605"
    )]
    resource_id: Option<String>,
    /// Only changes at this time or later (RFC 3339).
    #[param(example = "2026-01-02T03:04:05Z")]
    since: Option<DateTime<Utc>>,
    /// Only changes before this time (RFC 3339).
    #[param(example = "2027-01-02T03:04:05Z")]
    until: Option<DateTime<Utc>>,
}

/// Lists the changes of settings, with time and author.
#[utoipa::path(
    get, path = "/v1/audit-log", tag = "Audit log", operation_id = "listAuditEntries",
    params(ListParams),
    responses((status = 200, body = AuditLog, description = "A page of entries")),
    security(("credential" = ["admin"]), ("operator" = [])),
    extensions(("x-problems" = json!(["operator_only", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Writer(owner): Writer,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    if params
        .actor
        .as_ref()
        .is_some_and(|actor| actor.chars().count() > MAX_ACTOR_CHARS)
    {
        let detail = format!("`actor` must have {MAX_ACTOR_CHARS} characters at most.");
        return Err(Problem::invalid_query(detail).into());
    }
    let list = List::new("/v1/audit-log", owner).ordered(params.order);
    let after = list.position(params.cursor)?;
    let (resource_id, device_id) = match params.resource_id.as_deref() {
        Some(id) => parse_resource_id(id)?,
        None => (None, None),
    };
    let filter = AuditFilter {
        actor: params.actor,
        action: params.action.map(stored_name),
        resource: params.resource.map(stored_name),
        resource_id,
        device_id,
        since: params.since,
        until: params.until,
    };
    let store = &control.store;
    let found = store.audit_log(owner, &filter, (params.order, after), limit.fetch_count());
    let (entries, next_cursor) = limit.json_page(
        found.await?,
        |entry| list.cursor(entry.id),
        AuditEntryView::from,
    );
    let entries = AuditLog {
        entries,
        next_cursor,
    };
    Ok(JsonResponse::page(&control, owner, &entries)?)
}

/// The name of a variant in the database, which is the one that serde writes.
fn stored_name(value: impl Serialize) -> String {
    let name = json!(value);
    name.as_str().unwrap_or_default().to_owned()
}

/// The UUID of the id of any audited resource, or the id of a device.
fn parse_resource_id(id: &str) -> Result<(Option<Uuid>, Option<DeviceId>), Problem> {
    fn parse<Id: FromStr>(id: &str, uuid: fn(Id) -> Uuid) -> Option<Uuid> {
        id.parse().ok().map(uuid)
    }
    let uuid = parse(id, TemplateId::uuid)
        .or_else(|| parse(id, NpcId::uuid))
        .or_else(|| parse(id, MemoryId::uuid))
        .or_else(|| parse(id, PictureId::uuid))
        .or_else(|| parse(id, SkillsBookId::uuid))
        .or_else(|| parse(id, VoiceId::uuid))
        .or_else(|| parse(id, WebhookId::uuid))
        .or_else(|| parse(id, RecordingId::uuid))
        .or_else(|| parse(id, ApprovalId::uuid))
        .or_else(|| parse(id, TokenId::uuid))
        .or_else(|| parse(id, ApiKeyId::uuid))
        .or_else(|| parse(id, OrgId::uuid));
    if uuid.is_some() {
        return Ok((uuid, None));
    }
    let device = id.parse().map_err(|_| {
        Problem::invalid_query("`resource_id` is not the id of an audited resource".to_owned())
    })?;
    Ok((None, Some(device)))
}

impl From<AuditEntry> for AuditEntryView {
    fn from(entry: AuditEntry) -> Self {
        let uuid = entry.resource_id;
        let resource_id = match entry.resource.as_str() {
            "device" => entry.device_id.unwrap_or_default(),
            "org" => OrgId::from_uuid(uuid).to_string(),
            "api_key" => ApiKeyId::from_uuid(uuid).to_string(),
            "token" => TokenId::from_uuid(uuid).to_string(),
            "template" => TemplateId::from_uuid(uuid).to_string(),
            "npc" => NpcId::from_uuid(uuid).to_string(),
            "memory" => MemoryId::from_uuid(uuid).to_string(),
            "picture" => PictureId::from_uuid(uuid).to_string(),
            "voice" => VoiceId::from_uuid(uuid).to_string(),
            "approval" => ApprovalId::from_uuid(uuid).to_string(),
            "recording" => RecordingId::from_uuid(uuid).to_string(),
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
