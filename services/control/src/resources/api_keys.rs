//! `/v1/api-keys`: the API keys of an organisation.
//!
//! Invariant: a key has no scope that its creator does not have and reaches nothing that its creator
//! does not reach, and its secret is sent once.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::StatusCode;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use switchboard_identity::{ApiKeySecret, Caller, outside_key};
use switchboard_protocol::{
    id::{ApiKeyId, DeviceId},
    label::DeviceLabel,
    token::{MAX_PATTERNS, MAX_PATTERNS_JSON_BYTES, Restrictions, Scope, Scopes, ServicePattern},
};
use switchboard_runtime::{
    paging::{Cursor, JsonElements, Limit, List, Paging},
    problem::{Json, Path, Problem, ProblemKind, Query},
    quota::Quota,
};
use switchboard_store::{ApiKey, ApiKeyLimits, KeyRevocation, NewApiKey};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireAdmin},
        error::ControlError,
        idempotency::{Created, Idempotent},
        label::Label,
        response::JsonResponse,
    },
    resources::tokens::{grantable_scopes, scope_list},
};

/// An API key to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequest {
    /// Display name.
    name: Label,
    /// The scopes of the key. Default: all scopes of the caller.
    #[schema(min_items = 1, max_items = 16, example = json!(["call", "read"]))]
    scopes: Option<Vec<Scope>>,
    /// The end of the key's validity (RFC 3339). Default: it does not expire.
    #[schema(example = "2027-01-02T03:04:05Z")]
    expires_at: Option<DateTime<Utc>>,
    /// The beginning of the ids of the devices that the key reaches. Default: that of the caller.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-")]
    device_prefix: Option<DeviceId>,
    /// The label of the devices that the key reaches: those that have it at the time of a request, at most 10,000.
    /// Default: that of the caller.
    device_label: Option<DeviceLabel>,
    /// The services that the key reaches: names, or beginnings of names followed by `*`; at most 1,500
    /// bytes as JSON. Default: those of the caller.
    #[schema(min_items = 1, max_items = 32, example = json!(["wave", "led.*"]))]
    services: Option<Vec<ServicePattern>>,
}

/// A created API key, with its secret. No other response has the secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedKey {
    /// The secret, sent as `Authorization: Bearer`.
    #[schema(
        pattern = "^sb_[A-Za-z0-9_-]{43}$",
        example = "sb_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
    )]
    api_key: String,
    #[serde(flatten)]
    key: ApiKeyView,
}

/// An API key, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyView {
    /// Unique identifier.
    api_key_id: ApiKeyId,
    /// Display name.
    #[schema(example = "backend")]
    name: String,
    /// The first characters of the secret, to recognise the key.
    #[schema(max_length = 16, example = "sb_01234567")]
    prefix: String,
    /// The scopes of the key.
    #[schema(min_items = 1, max_items = 5, example = json!(["call", "read"]))]
    scopes: Vec<Scope>,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of revocation (RFC 3339); null while the key is valid.
    #[schema(example = json!(null))]
    revoked_at: Option<DateTime<Utc>>,
    /// The end of its validity (RFC 3339); null if it does not expire.
    #[schema(example = json!(null))]
    expires_at: Option<DateTime<Utc>>,
    /// The beginning of the ids of the devices that it reaches; null for all devices.
    #[schema(max_length = 64, example = json!(null))]
    device_prefix: Option<String>,
    /// The label of the devices that it reaches; null for all devices.
    #[schema(max_length = 63, example = json!(null))]
    device_label: Option<String>,
    /// The services that it reaches; null for all services.
    #[schema(min_items = 1, max_items = 32, value_type = Option<Vec<ServicePattern>>, example = json!(null))]
    services: Option<Vec<String>>,
    /// When it was last used, to the minute (RFC 3339); null if it was not used yet.
    #[schema(example = "2026-01-02T03:04:05Z")]
    last_used_at: Option<DateTime<Utc>>,
}

impl From<ApiKey> for ApiKeyView {
    fn from(key: ApiKey) -> Self {
        Self {
            api_key_id: key.id,
            name: key.name,
            prefix: key.prefix,
            scopes: scope_list(key.scopes),
            created_at: key.created_at,
            revoked_at: key.revoked_at,
            expires_at: key.limits.expires_at,
            device_prefix: key.limits.device_prefix,
            device_label: key.limits.device_label,
            services: key.limits.services,
            last_used_at: key.last_used_at,
        }
    }
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApiKeys {
    /// Oldest first, including revoked keys.
    #[schema(max_items = 200, value_type = Vec<ApiKeyView>)]
    api_keys: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

/// Creates an API key.
///
/// It cannot have scopes that the caller does not have, and reaches no other devices and services.
#[utoipa::path(
    post, path = "/v1/api-keys", tag = "API keys", operation_id = "createApiKey",
    request_body(content = KeyRequest),
    responses((status = 201, body = CreatedKey, description = "Created; the response is the only one with the secret", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "scope_not_held", "outside_key", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Idempotent(guard, Json(request)): Idempotent<Json<KeyRequest>>,
) -> Result<Response, ControlError> {
    let scopes = match &request.scopes {
        Some(scopes) => grantable_scopes(scopes, &caller)?,
        None => caller.scopes,
    };
    let limits = checked_limits(&request, &caller)?;
    let more = [(Quota::ApiKeys, 1)];
    control.admit(caller.org.into(), &more).await?;
    let secret = ApiKeySecret::generate();
    let key = new_key(request.name.as_str(), &secret, scopes);
    let mut creation = guard.begin(&control.store, caller.org.into()).await?;
    let key = creation.create_api_key(caller.org, &key, &limits).await?;
    let id = key.id;
    let created = CreatedKey {
        api_key: secret.expose_secret().to_owned(),
        key: key.into(),
    };
    let response = guard
        .commit(creation, Created::new(&created).secret())
        .await?;
    tracing::info!(org.id = %caller.org, api_key.id = %id, "API key created");
    control.setting_changed(caller.org.into(), "key", id);
    Ok(response)
}

/// Lists the API keys of the organisation, without their secrets.
#[utoipa::path(
    get, path = "/v1/api-keys", tag = "API keys", operation_id = "listApiKeys",
    params(Paging),
    responses((status = 200, body = ApiKeys, description = "A page of keys")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Query(paging): Query<Paging>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let list = List::new("/v1/api-keys", caller.org);
    let after = list.position(paging.cursor)?;
    let found = control
        .store
        .api_keys(caller.org, after, limit.fetch_count())
        .await?;
    let (api_keys, next_cursor) =
        limit.json_page(found, |key| list.cursor(key.id), ApiKeyView::from);
    Ok(JsonResponse::page(
        &control,
        caller.org,
        &ApiKeys {
            api_keys,
            next_cursor,
        },
    )?)
}

/// Revokes an API key.
///
/// All nodes reject it within seconds.
#[utoipa::path(
    delete, path = "/v1/api-keys/{id}", tag = "API keys", operation_id = "revokeApiKey",
    params(("id" = ApiKeyId, Path, description = "The API key")),
    responses((status = 204, description = "Revoked, now or before")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "last_admin_key", "store_unavailable"]))),
)]
pub(crate) async fn revoke(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let not_found = || ControlError::not_found("API key", &id);
    let key: ApiKeyId = id.parse().map_err(|_| not_found())?;
    match control.store.revoke_api_key(caller.org, key).await? {
        KeyRevocation::Revoked => {}
        KeyRevocation::Unknown => return Err(not_found()),
        KeyRevocation::LastAdmin => return Err(last_admin().into()),
    }
    tracing::info!(org.id = %caller.org, api_key.id = %key, "API key revoked");
    control.setting_changed(caller.org.into(), "key", key);
    Ok(StatusCode::NO_CONTENT)
}

fn checked_limits(request: &KeyRequest, caller: &Caller) -> Result<ApiKeyLimits, ControlError> {
    if request.expires_at.is_some_and(|at| at <= Utc::now()) {
        return Err(ControlError::invalid(
            "expires_at",
            "`expires_at` must be in the future.",
        ));
    }
    let restrictions = checked_restrictions(request, caller)?;
    let services = restrictions.services.map(|services| {
        let services = services.iter();
        services.map(|one| one.as_str().to_owned()).collect()
    });
    Ok(ApiKeyLimits {
        expires_at: request.expires_at,
        device_prefix: restrictions.device_prefix.map(|one| one.to_string()),
        device_label: restrictions.device_label.map(|one| one.to_string()),
        services,
    })
}

/// The restrictions of the key: at least those of the caller.
fn checked_restrictions(
    request: &KeyRequest,
    caller: &Caller,
) -> Result<Restrictions, ControlError> {
    if let Some(services) = &request.services {
        let bytes = serde_json::to_vec(services).map_or(usize::MAX, |json| json.len());
        if !(1..=MAX_PATTERNS).contains(&services.len()) || bytes > MAX_PATTERNS_JSON_BYTES {
            return Err(ControlError::invalid(
                "services",
                format!(
                    "`services` must have 1 to {MAX_PATTERNS} names or beginnings of names, and at most \
                     {MAX_PATTERNS_JSON_BYTES} bytes as JSON."
                ),
            ));
        }
    }
    let requested = Restrictions {
        device_prefix: request.device_prefix.clone(),
        device_label: request.device_label.clone(),
        services: request.services.clone(),
    };
    let Some(own) = caller.restrictions.as_deref() else {
        return Ok(requested);
    };
    let narrowed = own.narrowed(requested);
    Ok(narrowed.map_err(|outside| outside_key(&outside))?)
}

/// A key with this secret, to be stored.
pub(crate) fn new_key(name: &str, secret: &ApiKeySecret, scopes: Scopes) -> NewApiKey {
    NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: name.to_owned(),
        prefix: secret.display_prefix().to_owned(),
        secret_hash: secret.hash(),
        scopes,
    }
}

fn last_admin() -> Problem {
    Problem::new(
        ProblemKind::LastAdminKey,
        "This is the last key of the organisation with the scope `admin`. Create another one first.",
    )
}
