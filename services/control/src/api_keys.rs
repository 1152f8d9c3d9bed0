//! `/v1/api-keys`: the keys that an organisation's backends hold.
//! Never: a secret shown a second time, or a key that may more than whoever makes it.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use http::StatusCode;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    access::{Scope, Scopes},
    id::ApiKeyId,
};
use switchboard_runtime::problem::{Json, Path, Problem, Query};
use switchboard_store::{ApiKey, KeyRevocation, NewApiKey};
use uuid::Uuid;

use crate::{
    Control,
    access::Administrator,
    error::ControlError,
    label::Label,
    tokens::{grantable, listed},
};

const DEFAULT_LIMIT: u16 = 50;
const LARGEST_LIMIT: u16 = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequest {
    name: Label,
    /// What the key may do; all that its maker may, when not given.
    scopes: Option<Vec<Scope>>,
}

/// A key just made. The secret is shown this once.
#[derive(Serialize)]
pub(crate) struct CreatedKey {
    api_key: String,
    #[serde(flatten)]
    key: ShownKey,
}

/// A key without its secret.
#[derive(Serialize)]
pub(crate) struct ShownKey {
    api_key_id: ApiKeyId,
    name: String,
    prefix: String,
    scopes: Vec<Scope>,
    created_at: DateTime<Utc>,
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paging {
    #[serde(default = "default_limit")]
    limit: u16,
    /// The last key of the page before.
    cursor: Option<ApiKeyId>,
}

/// A page of the list.
#[derive(Serialize)]
pub(crate) struct Keys {
    api_keys: Vec<ShownKey>,
    next_cursor: Option<ApiKeyId>,
}

pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Json(request): Json<KeyRequest>,
) -> Result<(StatusCode, axum::Json<CreatedKey>), ControlError> {
    let scopes = match &request.scopes {
        Some(asked) => grantable(asked, &caller)?,
        None => caller.scopes,
    };
    let secret = ApiKeySecret::generate();
    let key = new_key(request.name.as_str(), &secret, scopes);
    let key = control.store.create_api_key(caller.org, &key).await?;
    tracing::info!(org.id = %caller.org, api_key.id = %key.id, "an API key was created");
    let created = CreatedKey {
        api_key: secret.expose_secret().to_owned(),
        key: key.into(),
    };
    Ok((StatusCode::CREATED, axum::Json(created)))
}

pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Query(Paging { limit, cursor }): Query<Paging>,
) -> Result<axum::Json<Keys>, ControlError> {
    if !(1..=LARGEST_LIMIT).contains(&limit) {
        return Err(invalid_limit().into());
    }
    // One more than a page tells whether another page follows.
    let mut keys = control
        .store
        .api_keys(caller.org, cursor, u32::from(limit) + 1)
        .await?;
    let more = keys.len() > usize::from(limit);
    keys.truncate(limit.into());
    let next_cursor = keys.last().filter(|_| more).map(|key| key.id);
    Ok(axum::Json(Keys {
        api_keys: keys.into_iter().map(ShownKey::from).collect(),
        next_cursor,
    }))
}

pub(crate) async fn revoke(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
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

fn invalid_limit() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "invalid_query",
        "Invalid query",
        format!("`limit` must be from 1 to {LARGEST_LIMIT}."),
    )
}

const fn default_limit() -> u16 {
    DEFAULT_LIMIT
}
