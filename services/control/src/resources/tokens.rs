//! `/v1/tokens`: access tokens for devices and clients.
//!
//! Invariant: a token has no scope that its creator does not have, and reaches nothing that its
//! creator does not reach. A revocation is in PostgreSQL before its request is answered.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use switchboard_identity::{Caller, QuotaError, outside_key};
use switchboard_protocol::{
    id::TokenId,
    token::{Claims, Outside, Scope, Scopes, Subject},
};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Json, Path, Problem, ProblemKind, Query},
    quota::{Quota, QuotaExceeded},
};
use switchboard_store::{IssuedToken, ListedToken, RevokedToken};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireAdmin, RequireIssuer},
        error::ControlError,
        idempotency::{Created, Idempotent},
        response::JsonResponse,
    },
    signing_keys,
};

/// The lifetime of a token when the request has none.
const DEFAULT_TTL_S: u64 = 3_600;

/// An access token to issue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// The holder of the token. The token of a device has the scope `device` and no other; other
    /// holders cannot have this scope.
    subject: Subject,
    /// The scopes of the token. The caller must have them, too.
    #[schema(min_items = 1, max_items = 16, example = json!(["device"]))]
    scopes: Vec<Scope>,
    /// Lifetime in seconds. Default: one hour. The operator sets the maximum.
    #[schema(minimum = 1, maximum = 4_294_967_295_u64, example = 3600)]
    ttl_s: Option<u64>,
}

/// An issued access token (RFC 6749, section 5.1). No other response has it.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    /// The token, a JWT signed with EdDSA.
    #[schema(
        max_length = 4_096,
        example = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkZXZpY2U6dG95LTEifQ.c2ln"
    )]
    access_token: String,
    /// The authentication scheme of the token.
    #[schema(pattern = "^Bearer$", example = "Bearer")]
    token_type: &'static str,
    /// Lifetime in seconds.
    #[schema(minimum = 1, maximum = 4_294_967_295_u64, example = 3600)]
    expires_in: u64,
    /// Unique identifier, to revoke the token.
    token_id: TokenId,
}

/// Issues an access token for a device or a client.
///
/// With the scope `provision` only for a device. A token of a client has the restrictions of the
/// caller.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "Tokens", operation_id = "createToken",
    request_body(content = TokenRequest),
    responses((status = 201, body = CreatedToken, description = "Issued; the response is the only one with the token", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"]), ("credential" = ["provision"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "scope_not_held", "device_prefix_mismatch", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    RequireIssuer(caller): RequireIssuer,
    AuditActor(control): AuditActor,
    Idempotent(guard, Json(request)): Idempotent<Json<TokenRequest>>,
) -> Result<Response, ControlError> {
    let scopes = if caller.scopes.contains(Scope::Admin) {
        grantable_scopes(&request.scopes, &caller)?
    } else {
        provisionable_scopes(&request)?
    };
    check_subject(&request.subject, scopes)?;
    check_reach(&request.subject, &caller)?;
    let ttl_s = control.checked_ttl(request.ttl_s)?;
    control.admit_token(&caller, &request.subject).await?;
    let keys = signing_keys::load(&control.store, Some(caller.org)).await?;
    let claims = claims(&caller, request.subject, scopes, ttl_s);
    let access_token = keys.signing.sign(&claims)?;
    let mut creation = guard.begin(&control.store, caller.org.into()).await?;
    creation.add_token(&issued_token(&claims)?).await?;
    let created = CreatedToken {
        access_token,
        token_type: "Bearer",
        expires_in: ttl_s,
        token_id: claims.id,
    };
    let created = Created::new(&created)
        .secret()
        .max_ttl(Duration::from_secs(ttl_s));
    let response = guard.commit(creation, created).await?;
    control.metrics.tokens_issued.inc();
    tracing::info!(
        org.id = %caller.org, token.id = %claims.id, token.subject = %claims.subject, "access token issued"
    );
    Ok(response)
}

/// An access token, without the token itself.
#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenView {
    /// Unique identifier.
    token_id: TokenId,
    /// The holder of the token.
    #[schema(value_type = Subject)]
    subject: String,
    /// The scopes of the token.
    #[schema(max_items = 16, example = json!(["device"]))]
    scopes: Vec<Scope>,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of expiry (RFC 3339).
    #[schema(example = "2026-01-02T04:04:05Z")]
    expires_at: DateTime<Utc>,
    /// Time of the revocation (RFC 3339); null if the token was not revoked.
    #[schema(example = "2026-01-02T03:30:00Z")]
    revoked_at: Option<DateTime<Utc>>,
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Tokens {
    /// Newest first.
    #[schema(max_items = 200)]
    tokens: Vec<TokenView>,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Only tokens of this holder.
    #[param(value_type = Option<Subject>, example = "device:toy-1")]
    subject: Option<Subject>,
    /// Maximum number of elements in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
}

impl From<ListedToken> for TokenView {
    fn from(ListedToken { token, revoked_at }: ListedToken) -> Self {
        Self {
            token_id: token.id,
            subject: token.subject,
            scopes: scope_list(token.scopes),
            created_at: token.issued_at,
            expires_at: token.expires_at,
            revoked_at,
        }
    }
}

/// Lists access tokens, newest first.
///
/// Tokens are deleted one day after their expiry.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "Tokens", operation_id = "listTokens",
    params(ListParams),
    responses((status = 200, body = Tokens, description = "A page of tokens")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    let list = List::new("/v1/tokens", caller.org);
    let before = list.position(params.cursor)?;
    let subject = params.subject.map(|subject| subject.to_string());
    let store = &control.store;
    let found = store.tokens(caller.org, subject.as_deref(), before, limit.fetch_count());
    let (tokens, next_cursor) = limit.page(found.await?, |found| list.cursor(found.token.id));
    let tokens = tokens.into_iter().map(TokenView::from).collect();
    let page = Tokens {
        tokens,
        next_cursor,
    };
    Ok(JsonResponse::page(&control, caller.org, &page)?)
}

/// Revokes an access token.
///
/// All nodes reject it within seconds, and close its connections.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", tag = "Tokens", operation_id = "revokeToken",
    params(("id" = TokenId, Path, description = "The token")),
    responses((status = 204, description = "Revoked, now or before")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn revoke(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let not_found = || ControlError::not_found("token", &id);
    let token: TokenId = id.parse().map_err(|_| not_found())?;
    let revoked = control
        .store
        .revoke_token(caller.org, token)
        .await?
        .ok_or_else(not_found)?;
    tracing::info!(org.id = %caller.org, token.id = %token, "access token revoked");
    control.metrics.tokens_revoked.inc();
    control.publish_revocation(revoked).await;
    Ok(StatusCode::NO_CONTENT)
}

impl Control {
    /// Admits a token, and the device that it is for if it has never connected.
    async fn admit_token(&self, caller: &Caller, subject: &Subject) -> Result<(), ControlError> {
        let org = caller.org;
        let quotas = self.authenticator.quotas();
        if let Subject::Device(device) = subject {
            let is_new = async { Ok(self.store.device(org, device).await?.is_none()) };
            let admitted = quotas.admit_if_new(org, Quota::DevicesKnown, is_new);
            admitted.await?;
        }
        if caller.scopes.contains(Scope::Admin) {
            return self.admit(org.into(), &[(Quota::LiveTokens, 1)]).await;
        }
        let half = quotas.admit_part(org, Quota::LiveTokens, 1, 2).await;
        half.map_err(|error| match error {
            QuotaError::Exceeded(exceeded) => half_exceeded(exceeded).into(),
            other => other.into(),
        })
    }

    fn checked_ttl(&self, ttl_s: Option<u64>) -> Result<u64, ControlError> {
        let max = self.max_token_ttl_s;
        match ttl_s {
            None => Ok(DEFAULT_TTL_S.min(max)),
            Some(ttl_s) if (1..=max).contains(&ttl_s) => Ok(ttl_s),
            Some(_) => Err(ControlError::invalid(
                "ttl_s",
                format!("`ttl_s` must be from 1 to {max}."),
            )),
        }
    }

    /// Publishes a revocation to all nodes. It is already stored, so a failure only delays it until
    /// the key publisher runs again; the request has succeeded.
    async fn publish_revocation(&self, revoked: RevokedToken) {
        let expires_at = u64::try_from(revoked.expires_at.timestamp()).unwrap_or_default();
        if let Err(error) = self.bus.revoke(revoked.id, expires_at).await {
            tracing::warn!(%error, token.id = %revoked.id, "a token revocation cannot be published; the key publisher sends it within seconds");
        }
    }
}

/// The scope `device`, for a caller that issues tokens of devices only.
fn provisionable_scopes(request: &TokenRequest) -> Result<Scopes, ControlError> {
    if let Some(scope) = request.scopes.iter().find(|one| **one != Scope::Device) {
        return Err(scope_not_held(*scope).into());
    }
    grantable([Scope::Device].into_iter().collect(), &request.scopes)
}

/// A token of a device is for one that the caller reaches.
fn check_reach(subject: &Subject, caller: &Caller) -> Result<(), Problem> {
    let Subject::Device(device) = subject else {
        return Ok(());
    };
    caller
        .check_device(device)
        .map_err(|outside| match outside {
            Outside::DevicePrefix(prefix) => device_prefix_mismatch(prefix.as_str()),
            outside => outside_key(&outside),
        })
}

/// These scopes as a set, if the caller has all of them.
pub(crate) fn grantable_scopes(
    requested: &[Scope],
    caller: &Caller,
) -> Result<Scopes, ControlError> {
    let held = caller.scopes;
    // Who may issue any token of a device may let others do so.
    let provisions = held.contains(Scope::Admin) && held.contains(Scope::Device);
    let also = provisions.then_some(Scope::Provision);
    grantable(held.iter().chain(also).collect(), requested)
}

fn grantable(held: Scopes, requested: &[Scope]) -> Result<Scopes, ControlError> {
    if requested.is_empty() {
        return Err(ControlError::invalid(
            "scopes",
            "`scopes` must name at least one scope.",
        ));
    }
    match requested.iter().find(|scope| !held.contains(**scope)) {
        None => Ok(requested.iter().copied().collect()),
        Some(scope) => Err(scope_not_held(*scope).into()),
    }
}

fn scope_not_held(scope: Scope) -> Problem {
    Problem::new(
        ProblemKind::ScopeNotHeld,
        format!("The scope `{scope}` cannot be granted by a caller who does not have it."),
    )
    .with("scope", scope)
}

/// A leaked key that only issues tokens for devices leaves the other half to administrators.
fn half_exceeded(exceeded: QuotaExceeded) -> Problem {
    let mut problem = Problem::from(exceeded);
    problem.detail = format!(
        "The organisation has {} access tokens that have not expired. Without the scope `admin`, \
         tokens are issued up to half of the quota `{}`, which is {}. Wait until some expire, or \
         use a credential with the scope `admin`.",
        exceeded.used, exceeded.quota, exceeded.limit
    );
    problem
}

fn device_prefix_mismatch(prefix: &str) -> Problem {
    Problem::new(
        ProblemKind::DevicePrefixMismatch,
        format!("This API key issues tokens for devices whose ids begin with `{prefix}`."),
    )
    .with("device_prefix", prefix)
}

/// Scopes as the API lists them.
pub(crate) fn scope_list(scopes: Scopes) -> Vec<Scope> {
    scopes.iter().collect()
}

/// A token for a device has the scope `device` and no other; only such tokens have it.
fn check_subject(subject: &Subject, scopes: Scopes) -> Result<(), ControlError> {
    let is_device = scopes.contains(Scope::Device);
    let is_device_only = scopes == [Scope::Device].into_iter().collect();
    match subject {
        Subject::Device(_) if !is_device_only => Err(ControlError::invalid(
            "scopes",
            "A token for a device has the scope `device` and no other.",
        )),
        Subject::Client(_) if is_device => Err(ControlError::invalid(
            "scopes",
            "The scope `device` is for tokens whose subject is `device:` and the device's id.",
        )),
        _ => Ok(()),
    }
}

fn claims(caller: &Caller, subject: Subject, scopes: Scopes, ttl_s: u64) -> Claims {
    let issued_at = u64::try_from(Utc::now().timestamp()).unwrap_or_default();
    Claims {
        id: TokenId::from_uuid(Uuid::now_v7()),
        org: caller.org,
        // A token of a device only connects it.
        restrictions: match &subject {
            Subject::Device(_) => None,
            Subject::Client(_) => caller.restrictions.clone(),
        },
        subject,
        scopes,
        issued_at,
        expires_at: issued_at.saturating_add(ttl_s),
    }
}

fn issued_token(claims: &Claims) -> Result<IssuedToken, ControlError> {
    let seconds = |unix_s: u64| {
        i64::try_from(unix_s)
            .ok()
            .and_then(|unix_s| DateTime::from_timestamp(unix_s, 0))
    };
    let (Some(issued_at), Some(expires_at)) =
        (seconds(claims.issued_at), seconds(claims.expires_at))
    else {
        return Err(ControlError::invalid(
            "ttl_s",
            "`ttl_s` ends after the last date that can be represented.",
        ));
    };
    Ok(IssuedToken {
        id: claims.id,
        org: claims.org,
        subject: claims.subject.to_string(),
        scopes: claims.scopes,
        issued_at,
        expires_at,
    })
}
