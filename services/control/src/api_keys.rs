//! `/v1/api-keys`: the keys that an organisation's backends hold.
//! Never: a secret shown a second time, or a key that may more than whoever makes it.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::StatusCode;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    access::{Scope, Scopes},
    id::ApiKeyId,
};
use switchboard_runtime::{
    paging::{Cursor, Limit, List, Paging},
    problem::{Json, Path, Problem, Query},
};
use switchboard_store::{ApiKey, KeyRevocation, NewApiKey};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Administrator},
    error::ControlError,
    label::Label,
    once::{Made, Once},
    tokens::{grantable, listed},
};

/// A key about to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequest {
    /// What people call it.
    name: Label,
    /// What the key may do; all that its maker may, when not given.
    #[schema(min_items = 1, max_items = 16, example = json!(["call", "read"]))]
    scopes: Option<Vec<Scope>>,
}

/// A key just made. The secret is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedKey {
    /// The secret.
    #[schema(
        pattern = "^sb_[A-Za-z0-9_-]{43}$",
        example = "sb_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
    )]
    api_key: String,
    #[serde(flatten)]
    key: ShownKey,
}

/// A key without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ShownKey {
    /// Its id.
    api_key_id: ApiKeyId,
    /// What people call it.
    #[schema(example = "backend")]
    name: String,
    /// How the secret begins, to recognise it.
    #[schema(max_length = 16, example = "sb_01234567")]
    prefix: String,
    /// What it may do.
    #[schema(min_items = 1, max_items = 4, example = json!(["call", "read"]))]
    scopes: Vec<Scope>,
    /// When it was made.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Since when it is refused; null while it is good.
    #[schema(example = json!(null))]
    revoked_at: Option<DateTime<Utc>>,
}

impl From<ApiKey> for ShownKey {
    fn from(key: ApiKey) -> Self {
        Self {
            api_key_id: key.id,
            name: key.name,
            prefix: key.prefix,
            scopes: listed(key.scopes),
            created_at: key.created_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKeys)]
pub(crate) struct Keys {
    /// In the order of their making, revoked ones as well.
    #[schema(max_items = 200)]
    api_keys: Vec<ShownKey>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

/// Makes a key that may no more than its maker.
#[utoipa::path(
    post, path = "/v1/api-keys", tag = "API keys", operation_id = "createApiKey",
    request_body(content = KeyRequest),
    responses((status = 201, body = CreatedKey, description = "It is made; the secret is shown this once", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "scope_not_held", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Once(ticket, Json(request)): Once<Json<KeyRequest>>,
) -> Result<Response, ControlError> {
    let scopes = match &request.scopes {
        Some(asked) => grantable(asked, &caller)?,
        None => caller.scopes,
    };
    let secret = ApiKeySecret::generate();
    let key = new_key(request.name.as_str(), &secret, scopes);
    let mut creation = ticket.begin(&control.store, caller.org).await?;
    let key = creation.create_api_key(caller.org, &key).await?;
    let id = key.id;
    let created = CreatedKey {
        api_key: secret.expose_secret().to_owned(),
        key: key.into(),
    };
    let response = ticket
        .commit(creation, Made::new(&created).secret())
        .await?;
    tracing::info!(org.id = %caller.org, api_key.id = %id, "an API key was created");
    Ok(response)
}

/// Lists the keys of the organisation, without their secrets.
#[utoipa::path(
    get, path = "/v1/api-keys", tag = "API keys", operation_id = "listApiKeys",
    params(Paging),
    responses((status = 200, body = Keys, description = "A page of keys")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Keys>, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let list = List::of("/v1/api-keys", caller.org);
    let after = list.after(paging.cursor)?;
    let found = control
        .store
        .api_keys(caller.org, after, limit.probe())
        .await?;
    let (keys, next_cursor) = limit.cut(found, |key| list.behind(key.id));
    Ok(axum::Json(Keys {
        api_keys: keys.into_iter().map(ShownKey::from).collect(),
        next_cursor,
    }))
}

/// Revokes a key. It is refused within seconds.
#[utoipa::path(
    delete, path = "/v1/api-keys/{id}", tag = "API keys", operation_id = "revokeApiKey",
    params(("id" = ApiKeyId, Path, description = "The key")),
    responses((status = 204, description = "It is revoked, or was before")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "last_admin_key", "store_unavailable"]))),
)]
pub(crate) async fn revoke(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let unknown = || ControlError::unknown("API key", &id);
    let key: ApiKeyId = id.parse().map_err(|_| unknown())?;
    match control.store.revoke_api_key(caller.org, key).await? {
        KeyRevocation::Revoked => {}
        KeyRevocation::Unknown => return Err(unknown()),
        KeyRevocation::LastAdmin => return Err(last_admin().into()),
    }
    tracing::info!(org.id = %caller.org, api_key.id = %key, "an API key was revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// A key with this secret, ready to be stored.
pub(crate) fn new_key(name: &str, secret: &ApiKeySecret, scopes: Scopes) -> NewApiKey {
    NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: name.to_owned(),
        prefix: secret.shown_prefix().to_owned(),
        secret_hash: secret.hash(),
        scopes,
    }
}

fn last_admin() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "last_admin_key",
        "Last admin key",
        "Nobody could administer the organisation without this key; create another with the scope `admin` first.",
    )
}
