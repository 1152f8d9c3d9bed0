//! `/v1/tokens`: access tokens for devices and clients.
//! Never: a token that may more than whoever asks for it, or a revocation answered before PostgreSQL has it.

use std::time::Duration;

use axum::response::Response;
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use switchboard_identity::Caller;
use switchboard_protocol::{
    access::{Claims, Scope, Scopes, Subject},
    id::TokenId,
};
use switchboard_runtime::problem::{Json, Path, Problem};
use switchboard_store::{IssuedToken, RevokedToken};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Administrator},
    error::ControlError,
    once::{Made, Once},
    signing,
};

/// How long a token is valid unless the caller says otherwise.
const DEFAULT_TTL_S: u64 = 3_600;

/// A token about to be issued.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// Who holds it. A device gets the scope `device` and no other; nobody else gets that.
    subject: Subject,
    /// What it may do; no more than whoever asks for it.
    #[schema(min_items = 1, max_items = 16, example = json!(["device"]))]
    scopes: Vec<Scope>,
    /// How many seconds it is valid; an hour when not given. The installation sets the most.
    #[schema(minimum = 1, maximum = 4_294_967_295_u64, example = 3600)]
    ttl_s: Option<u64>,
}

/// A token just made. It is shown this once. (RFC 6749, section 5.1.)
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    /// The token, a JWT signed with EdDSA.
    #[schema(
        max_length = 4_096,
        example = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkZXZpY2U6dG95LTEifQ.c2ln"
    )]
    access_token: String,
    /// How it is sent.
    #[schema(pattern = "^Bearer$", example = "Bearer")]
    token_type: &'static str,
    /// How many seconds it is valid.
    #[schema(minimum = 1, maximum = 4_294_967_295_u64, example = 3600)]
    expires_in: u64,
    /// Its id, to revoke it.
    token_id: TokenId,
}

/// Issues an access token for a device or a client.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "Tokens", operation_id = "createToken",
    request_body(content = TokenRequest),
    responses((status = 201, body = CreatedToken, description = "It is issued; it is shown this once", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "scope_not_held", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Once(ticket, Json(request)): Once<Json<TokenRequest>>,
) -> Result<Response, ControlError> {
    let scopes = grantable(&request.scopes, &caller)?;
    check_subject(&request.subject, scopes)?;
    let ttl_s = control.checked_ttl(request.ttl_s)?;
    let signing_key = signing::load(&control.store).await?.signing;
    let claims = claims(&caller, request.subject, scopes, ttl_s);
    let access_token = signing_key.sign(&claims)?;
    let mut creation = ticket.begin(&control.store, caller.org).await?;
    creation.add_token(&record(&claims)?).await?;
    let created = CreatedToken {
        access_token,
        token_type: "Bearer",
        expires_in: ttl_s,
        token_id: claims.id,
    };
    let made = Made::new(&created)
        .secret()
        .for_at_most(Duration::from_secs(ttl_s));
    let response = ticket.commit(creation, made).await?;
    control.metrics.tokens_issued.inc();
    tracing::info!(
        org.id = %caller.org, token.id = %claims.id, token.subject = %claims.subject, "an access token was issued"
    );
    Ok(response)
}

/// Revokes a token. It is refused everywhere within seconds, and its live connections are closed.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", tag = "Tokens", operation_id = "revokeToken",
    params(("id" = TokenId, Path, description = "The token")),
    responses((status = 204, description = "It is revoked, or was before")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn revoke(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
) -> Result<StatusCode, ControlError> {
    let unknown = || ControlError::unknown("token", &id);
    let token: TokenId = id.parse().map_err(|_| unknown())?;
    let revoked = control
        .store
        .revoke_token(caller.org, token)
        .await?
        .ok_or_else(unknown)?;
    tracing::info!(org.id = %caller.org, token.id = %token, "an access token was revoked");
    control.metrics.tokens_revoked.inc();
    control.spread(revoked).await;
    Ok(StatusCode::NO_CONTENT)
}

impl Control {
    fn checked_ttl(&self, asked: Option<u64>) -> Result<u64, ControlError> {
        let longest = self.longest_token_ttl_s;
        match asked {
            None => Ok(DEFAULT_TTL_S.min(longest)),
            Some(ttl_s) if (1..=longest).contains(&ttl_s) => Ok(ttl_s),
            Some(_) => Err(ControlError::invalid(
                "ttl_s",
                format!("`ttl_s` must be from 1 to {longest}."),
            )),
        }
    }

    /// Tells every node. The revocation is on record by now, so a failure only delays it until the trust publisher's
    /// next round, and the caller's request has succeeded.
    async fn spread(&self, revoked: RevokedToken) {
        let expires_at = u64::try_from(revoked.expires_at.timestamp()).unwrap_or_default();
        if let Err(error) = self.bus.revoke(revoked.id, expires_at).await {
            tracing::warn!(%error, token.id = %revoked.id, "a revocation will reach the nodes a few seconds late");
        }
    }
}

/// These scopes as a set, if the caller has them all.
pub(crate) fn grantable(asked: &[Scope], caller: &Caller) -> Result<Scopes, ControlError> {
    if asked.is_empty() {
        return Err(ControlError::invalid(
            "scopes",
            "`scopes` must name at least one scope.",
        ));
    }
    match asked.iter().find(|scope| !caller.scopes.contains(**scope)) {
        None => Ok(asked.iter().copied().collect()),
        Some(scope) => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "scope_not_held",
            "Scope not held",
            format!("The scope `{scope}` cannot be granted by a caller who does not have it."),
        )
        .with("scope", scope)
        .into()),
    }
}

/// Scopes as they are shown.
pub(crate) fn listed(scopes: Scopes) -> Vec<Scope> {
    scopes.iter().collect()
}

/// A device dials in and does nothing else; nobody else dials in.
fn check_subject(subject: &Subject, scopes: Scopes) -> Result<(), ControlError> {
    let dials_in = scopes.contains(Scope::Device);
    let only_dials_in = scopes == [Scope::Device].into_iter().collect();
    match subject {
        Subject::Device(_) if !only_dials_in => Err(ControlError::invalid(
            "scopes",
            "A token for a device has the scope `device` and no other.",
        )),
        Subject::Client(_) if dials_in => Err(ControlError::invalid(
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
        subject,
        scopes,
        issued_at,
        expires_at: issued_at.saturating_add(ttl_s),
    }
}

fn record(claims: &Claims) -> Result<IssuedToken, ControlError> {
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
            "`ttl_s` reaches beyond what a date can say.",
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
