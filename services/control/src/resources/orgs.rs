//! `POST /v1/orgs`: the operator creates an organisation and its first API key.
//! `/v1/org`: the settings of the caller's organisation.

pub(crate) mod operator;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::HeaderMap;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    id::{ApiKeyId, NpcId, OrgId},
    token::Scope,
};
use switchboard_runtime::problem::{Json, Problem, internal};
use switchboard_store::{ModelApproval, Org, OrgSettings, OrgWrite, Owner};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireAdmin, RequireOperator, RequireRead},
        documents::{self, StrictJson, invalid},
        error::ControlError,
        etag,
        idempotency::{Created, Idempotent},
        label::{self, Label},
        limits::{
            Limit::{Line, Locale, Number},
            Rule, rule,
        },
        merge,
        response::JsonResponse,
    },
    resources::api_keys,
};

/// An organisation to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrg {
    /// Display name.
    name: Label,
}

/// A created organisation, with the secret of its first API key. No other response has the secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedOrg {
    /// Unique identifier.
    org_id: OrgId,
    /// Display name.
    name: Label,
    /// The secret of its first API key, which has all scopes.
    #[schema(
        pattern = "^sb_[A-Za-z0-9_-]{43}$",
        example = "sb_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
    )]
    api_key: String,
    /// The id of that key.
    api_key_id: ApiKeyId,
}

/// The settings of an organisation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = OrgSettings)]
pub(crate) struct OrgDocument {
    /// Display name.
    #[schema(example = "Toy factory")]
    name: String,
    /// The NPC that answers for devices without an NPC of their own; null if there is none.
    #[serde(default)]
    default_npc_id: Option<NpcId>,
    /// Whether what users say to devices is recorded, from the second message of a conversation.
    #[serde(default)]
    #[schema(example = false)]
    record_speech: bool,
    /// Days until a recording is deleted.
    #[serde(default = "default_retention")]
    #[schema(example = 30)]
    recording_retention_days: i32,
    /// Language of its users, for messages of the service itself to users whose language is not known;
    /// null is English.
    #[serde(default)]
    #[schema(example = "de")]
    locale: Option<String>,
    /// Whether `GET /v1/calls/recent` has the params and results of calls, at most 4 KiB of each. False
    /// deletes those that it has.
    #[serde(default)]
    #[schema(example = false)]
    journal_params: bool,
    /// Whether models call only services that were approved as they are.
    #[serde(default)]
    model_approval: ModelApproval,
}

/// Days until recordings are deleted where nothing is set.
const fn default_retention() -> i32 {
    30
}

/// An organisation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Org)]
pub(crate) struct OrgView {
    /// Unique identifier.
    org_id: OrgId,
    #[serde(flatten)]
    settings: OrgDocument,
    /// Version, starting at 1 and incremented by each change, also when the default NPC is deleted.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of the last change (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// The limits, documented in docs/settings.md.
pub(crate) const RULES: &[Rule] = &[
    rule("/name", Line(label::MAX_CHARS)),
    rule("/recording_retention_days", Number(1.0, 365.0)),
    rule("/locale", Locale),
];

/// Members of the view that clients cannot change.
const READ_ONLY: [&str; 4] = ["org_id", "version", "created_at", "updated_at"];

impl From<Org> for OrgView {
    fn from(org: Org) -> Self {
        Self {
            org_id: org.id,
            settings: OrgDocument {
                name: org.settings.name,
                default_npc_id: org.settings.default_npc,
                record_speech: org.settings.record_speech,
                recording_retention_days: org.settings.recording_retention_days,
                locale: org.settings.locale,
                journal_params: org.settings.journal_params,
                model_approval: org.settings.model_approval,
            },
            version: org.version,
            created_at: org.created_at,
            updated_at: org.updated_at,
        }
    }
}

/// Creates an organisation and its first API key.
#[utoipa::path(
    post, path = "/v1/orgs", tag = "Organisations", operation_id = "createOrg",
    request_body(content = NewOrg),
    responses((status = 201, body = CreatedOrg, description = "Created; the response is the only one with the secret", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "operator_only", "store_unavailable"]))),
)]
pub(crate) async fn create(
    RequireOperator: RequireOperator,
    AuditActor(control): AuditActor,
    Idempotent(guard, Json(NewOrg { name })): Idempotent<Json<NewOrg>>,
) -> Result<Response, ControlError> {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let secret = ApiKeySecret::generate();
    let first_key = api_keys::new_key("first key", &secret, Scope::ALL.into_iter().collect());
    let mut creation = guard.begin(&control.store, Owner::Installation).await?;
    creation.create_org(org, name.as_str(), &first_key).await?;
    let created = CreatedOrg {
        org_id: org,
        name,
        api_key: secret.expose_secret().to_owned(),
        api_key_id: first_key.id,
    };
    let response = guard
        .commit(creation, Created::new(&created).secret())
        .await?;
    tracing::info!(org.id = %org, "organisation created");
    Ok(response)
}

/// Gets the caller's organisation.
#[utoipa::path(
    get, path = "/v1/org", tag = "Organisations", operation_id = "getOrg",
    responses((status = 200, body = OrgView, description = "The organisation", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    RequireRead(caller): RequireRead,
) -> Result<JsonResponse, ControlError> {
    Ok(control.org(caller.org).await?.into())
}

/// Updates the caller's organisation with a JSON merge patch (RFC 7396).
///
/// Null resets a member; a patch without effect creates no version.
#[utoipa::path(
    patch, path = "/v1/org", tag = "Organisations", operation_id = "updateOrg",
    request_body(content = ref("#/components/schemas/OrgPatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = OrgView, description = "The updated organisation", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["objects_not_configured", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn update(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    headers: HeaderMap,
    Json(StrictJson(patch)): Json<StrictJson>,
) -> Result<JsonResponse, ControlError> {
    let current = control.org(caller.org).await?;
    etag::require_version(&headers, current.version)?;
    let settings = apply_patch(&current, patch)?;
    if settings == current.settings {
        return Ok(current.into());
    }
    if settings.record_speech && !current.settings.record_speech {
        control.objects()?;
    }
    let store = &control.store;
    let write = store.replace_org(current.id, current.version, &settings);
    match write.await? {
        OrgWrite::Written(org) => {
            tracing::info!(org.id = %org.id, org.version = org.version, "organisation updated");
            control.setting_changed(org.id.into(), "org", org.id);
            let is_known =
                |of: &OrgSettings| (of.locale.clone(), of.journal_params, of.model_approval);
            let requires_others = settings.model_approval != current.settings.model_approval;
            if is_known(&settings) != is_known(&current.settings) {
                control.publish_quotas().await;
            }
            if settings.default_npc != current.settings.default_npc {
                control.prompts_changed(org.id.into()).await;
            }
            if requires_others {
                control.approvals_changed(org.id).await;
            }
            Ok(org.into())
        }
        OrgWrite::Stale => Err(etag::precondition_failed().into()),
        OrgWrite::UnknownNpc => Err(unknown_npc(settings.default_npc).into()),
    }
}

impl Control {
    /// The organisation of a caller. It exists: deleting it deletes the credentials of its callers.
    pub(super) async fn org(&self, id: OrgId) -> Result<Org, ControlError> {
        let org = self.store.org(id).await?;
        org.ok_or_else(|| {
            tracing::error!(org.id = %id, "the organisation of an authenticated caller does not exist");
            internal().into()
        })
    }
}

/// The settings after a merge patch of the view.
fn apply_patch(current: &Org, patch: Value) -> Result<OrgSettings, Problem> {
    let after = merge::apply(&OrgView::from(current.clone()), patch, &READ_ONLY)?;
    let settings: OrgDocument = documents::parse(&after, "", RULES)?;
    Ok(OrgSettings {
        name: settings.name,
        default_npc: settings.default_npc_id,
        record_speech: settings.record_speech,
        recording_retention_days: settings.recording_retention_days,
        locale: settings.locale,
        journal_params: settings.journal_params,
        model_approval: settings.model_approval,
    })
}

impl From<Org> for JsonResponse {
    fn from(org: Org) -> Self {
        let etag = etag::from_version(org.version);
        Self::ok(&OrgView::from(org)).etag(etag)
    }
}

fn unknown_npc(id: Option<NpcId>) -> Problem {
    let id = id.map_or_else(String::new, |id| id.to_string());
    let detail = format!("`/default_npc_id` is {id}, and there is no such NPC.");
    invalid("/default_npc_id", detail)
}
