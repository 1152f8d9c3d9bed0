//! `POST /v1/orgs`: an organisation and its first API key. `/v1/org`: what the caller's own organisation sets about itself.
//! Never: one made by anybody but the operator, or shown to or changed by somebody of another.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, header};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    access::Scope,
    id::{ApiKeyId, NpcId, OrgId},
};
use switchboard_runtime::problem::{Json, Problem, internal};
use switchboard_store::{Org, OrgSettings, OrgWrite, Owner};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Administrator, Member, Operator},
    api_keys,
    document::{self, Unambiguous, invalid},
    error::ControlError,
    label::{self, Label},
    limits::{Limit::Line, Rule, rule},
    once::{Made, Once},
    patch, precondition,
};

/// An organisation about to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrg {
    /// What people call it.
    name: Label,
}

/// An organisation just made. The secret is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedOrg {
    /// The organisation.
    org_id: OrgId,
    /// What people call it.
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

/// What an organisation sets about itself.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = OrgSettings)]
pub(crate) struct Settings {
    /// What people call it.
    #[schema(example = "Toy factory")]
    name: String,
    /// The NPC that answers for devices through which none speaks; null for none.
    #[serde(default)]
    default_npc_id: Option<NpcId>,
}

/// An organisation as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Org)]
pub(crate) struct ShownOrg {
    /// Its id.
    org_id: OrgId,
    #[serde(flatten)]
    settings: Settings,
    /// 1 at first, one more with each change, also when the NPC that answers for it is removed.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// When it was made.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// When it was changed last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// The limits; docs/settings.md repeats them.
pub(crate) const RULES: &[Rule] = &[rule("/name", Line(label::LONGEST))];

/// What is shown and not set.
const READ_ONLY: [&str; 4] = ["org_id", "version", "created_at", "updated_at"];

/// An organisation, and its version as an entity tag.
type Shown = (
    AppendHeaders<[(HeaderName, String); 1]>,
    axum::Json<ShownOrg>,
);

impl From<Org> for ShownOrg {
    fn from(org: Org) -> Self {
        Self {
            org_id: org.id,
            settings: Settings {
                name: org.settings.name,
                default_npc_id: org.settings.default_npc,
            },
            version: org.version,
            created_at: org.created_at,
            updated_at: org.updated_at,
        }
    }
}

/// Makes an organisation and its first API key.
#[utoipa::path(
    post, path = "/v1/orgs", tag = "Organisations", operation_id = "createOrg",
    request_body(content = NewOrg),
    responses((status = 201, body = CreatedOrg, description = "It is made; the secret is shown this once", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("operator" = [])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "operator_only", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Operator: Operator,
    Acting(control): Acting,
    Once(ticket, Json(NewOrg { name })): Once<Json<NewOrg>>,
) -> Result<Response, ControlError> {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let secret = ApiKeySecret::generate();
    let first_key = api_keys::new_key("first key", &secret, Scope::ALL.into_iter().collect());
    let mut creation = ticket.begin(&control.store, Owner::Installation).await?;
    creation.create_org(org, name.as_str(), &first_key).await?;
    let created = CreatedOrg {
        org_id: org,
        name,
        api_key: secret.expose_secret().to_owned(),
        api_key_id: first_key.id,
    };
    let response = ticket
        .commit(creation, Made::new(&created).secret())
        .await?;
    tracing::info!(org.id = %org, "an organisation was created");
    Ok(response)
}

/// Shows the caller's organisation.
#[utoipa::path(
    get, path = "/v1/org", tag = "Organisations", operation_id = "getOrg",
    responses((status = 200, body = ShownOrg, description = "The organisation", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Member(reader): Member,
) -> Result<Shown, ControlError> {
    Ok(shown(control.org(reader.org).await?))
}

/// Changes what a merge patch (RFC 7396) names; null removes. What changes nothing makes no version.
#[utoipa::path(
    patch, path = "/v1/org", tag = "Organisations", operation_id = "changeOrg",
    request_body(content = ref("#/components/schemas/OrgPatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = ShownOrg, description = "The organisation as it is now", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn change(
    Administrator(author): Administrator,
    Acting(control): Acting,
    headers: HeaderMap,
    Json(Unambiguous(patch)): Json<Unambiguous>,
) -> Result<Shown, ControlError> {
    let current = control.org(author.org).await?;
    precondition::require(&headers, current.version)?;
    let settings = patched(&current, patch)?;
    if settings == current.settings {
        return Ok(shown(current));
    }
    let store = &control.store;
    let write = store.replace_org(current.id, current.version, &settings);
    match write.await? {
        OrgWrite::Written(org) => {
            tracing::info!(org.id = %org.id, org.version = org.version, "an organisation was changed");
            Ok(shown(org))
        }
        OrgWrite::Stale => Err(precondition::stale().into()),
        OrgWrite::UnknownNpc => Err(unknown_npc(settings.default_npc).into()),
    }
}

impl Control {
    /// A caller's own, which is there as long as there are callers.
    async fn org(&self, id: OrgId) -> Result<Org, ControlError> {
        let org = self.store.org(id).await?;
        org.ok_or_else(|| {
            tracing::error!(org.id = %id, "a caller's organisation is not there");
            internal().into()
        })
    }
}

/// The settings after a merge patch of the organisation as it is shown.
fn patched(current: &Org, sent: Value) -> Result<OrgSettings, Problem> {
    let after = patch::merged(&ShownOrg::from(current.clone()), sent, &READ_ONLY)?;
    let settings: Settings = document::read(&after, "", RULES)?;
    Ok(OrgSettings {
        name: settings.name,
        default_npc: settings.default_npc_id,
    })
}

fn shown(org: Org) -> Shown {
    let headers = AppendHeaders([(header::ETAG, precondition::etag(org.version))]);
    (headers, axum::Json(org.into()))
}

fn unknown_npc(named: Option<NpcId>) -> Problem {
    let named = named.map_or_else(String::new, |id| id.to_string());
    let detail = format!("`/default_npc_id` names {named}, and there is no such NPC.");
    invalid("/default_npc_id", detail)
}
