//! `/v1/session`: who a caller is, and the sessions of the console.
//!
//! Invariant: a page of another site neither begins nor ends a session.

mod sign_in;
mod view;

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, State},
    response::{IntoResponse, Response},
};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use switchboard_identity::{
    ApiKeySecret, Holder, KeyHash, Transport, check_site, cleared_cookies, set_cookie,
};
use switchboard_runtime::{
    http::caller,
    problem::{Json, Problem, ProblemKind},
};
use utoipa::ToSchema;

use crate::{
    Control,
    http::{
        auth::{Identity, WhoAmI},
        error::ControlError,
        response::JsonResponse,
    },
};

pub use sign_in::SignInCode;
pub(crate) use sign_in::rate;
use view::SessionView;

/// A body has one secret. Protects what has no credential yet.
pub(crate) const MAX_BYTES: usize = 4 * 1024;

/// A secret that begins a session: one of the two.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// An API key, or the operator key.
    #[schema(value_type = Option<String>, max_length = 1024, example = "sb_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG")]
    api_key: Option<SecretString>,
    /// The one-time code that `switchboard up` prints: valid for 10 minutes, on its machine only.
    #[schema(value_type = Option<String>, max_length = 64, example = json!(null))]
    code: Option<SecretString>,
}

/// A client that may try to sign in. The body is not read before.
pub(crate) struct Candidate {
    transport: Transport,
    is_loopback: bool,
    extensions: Extensions,
}

impl FromRequestParts<Arc<Control>> for Candidate {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        check_site(&parts.headers)?;
        let transport = Transport::of(&parts.headers, &parts.extensions);
        let transport = transport.ok_or_else(insecure)?;
        control.sign_ins.take(&caller(&parts.extensions))?;
        Ok(Self {
            transport,
            is_loopback: Transport::is_loopback(&parts.headers, &parts.extensions),
            extensions: parts.extensions.clone(),
        })
    }
}

/// Begins a session of the console: the response sets its cookie.
///
/// Only over HTTPS, or over HTTP on the machine itself. A session ends 12 hours after its sign-in,
/// after an hour without use, and with its key.
#[utoipa::path(
    post, path = "/v1/session", tag = "Session", operation_id = "createSession",
    request_body(content = SignIn),
    responses((status = 200, body = SessionView, description = "The session", headers(
        ("Set-Cookie" = String, description = "The cookie of the session"),
        ("Cache-Control" = String, description = "`no-store`"),
    ))),
    security(()),
    extensions(("x-problems" = json!(["insecure_session", "cross_site_request", "sign_in_code_refused", "unknown_api_key", "token_malformed", "org_suspended", "rate_limited", "credentials_unverifiable", "store_unavailable"]))),
)]
pub(crate) async fn create(
    State(control): State<Arc<Control>>,
    candidate: Candidate,
    Json(request): Json<SignIn>,
) -> Result<Response, ControlError> {
    let (holder, identity) = control.sign_in(request, &candidate).await?;
    let sessions = control.authenticator.sessions();
    let started = sessions.start(holder, candidate.transport).await?;
    let view = control
        .session_view(&identity, Some(started.ends_at))
        .await?;
    let mut response = JsonResponse::ok(&view).into_response();
    set_cookie(response.headers_mut(), started.cookie);
    Ok(response)
}

/// Shows who the caller is: its organisation, its scopes, and what restricts it.
#[utoipa::path(
    get, path = "/v1/session", tag = "Session", operation_id = "getSession",
    responses((status = 200, body = SessionView, description = "The caller", headers(("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = []), ("operator" = [])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    WhoAmI { identity, ends_at }: WhoAmI,
) -> Result<Response, ControlError> {
    let view = control.session_view(&identity, ends_at).await?;
    let mut response = JsonResponse::ok(&view).into_response();
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

/// Ends the session: the response removes its cookie.
///
/// A copy of the cookie remains valid until the session would have ended; revoking the API key ends it.
#[utoipa::path(
    delete, path = "/v1/session", tag = "Session", operation_id = "deleteSession",
    responses((status = 204, description = "Ended, or there was none", headers(("Set-Cookie" = String, description = "Removes the cookie")))),
    security(()),
    extensions(("x-problems" = json!(["cross_site_request"]))),
)]
pub(crate) async fn delete(headers: HeaderMap) -> Result<Response, Problem> {
    check_site(&headers)?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    for cookie in cleared_cookies() {
        set_cookie(response.headers_mut(), cookie);
    }
    Ok(response)
}

impl Control {
    async fn sign_in(
        &self,
        request: SignIn,
        candidate: &Candidate,
    ) -> Result<(Holder, Identity), ControlError> {
        let key = match (request.api_key, request.code) {
            (Some(key), None) => key,
            (None, Some(code)) => self.key_of_code(&code, candidate.is_loopback)?,
            _ => {
                return Err(ControlError::invalid(
                    "api_key",
                    "Send either `api_key` or `code`.",
                ));
            }
        };
        let key = key.expose_secret().trim();
        let hash: [u8; 32] = Sha256::digest(key).into();
        if self.is_operator_key(&hash) {
            return Ok((Holder::Operator(KeyHash::from(hash)), Identity::Operator));
        }
        let secret = ApiKeySecret::parse(key).ok_or_else(not_a_key)?;
        let signed_in = self.authenticator.sign_in(&secret, &candidate.extensions);
        let caller = signed_in.await?;
        let holder = Holder::ApiKey(KeyHash::of(&secret));
        Ok((holder, Identity::Caller(caller)))
    }

    fn key_of_code(&self, code: &SecretString, is_loopback: bool) -> Result<SecretString, Problem> {
        if !is_loopback {
            return Err(refused_code(
                "A one-time code is for a browser on the machine of `switchboard up`. Sign in with an API key.",
            ));
        }
        let key = self
            .sign_in_code
            .as_ref()
            .and_then(|known| known.take(code));
        key.ok_or_else(|| {
            refused_code(
                "The one-time code is wrong, was used before, or is older than 10 minutes. Sign in with an API key, or start `switchboard up` again.",
            )
        })
    }

    /// Whether this is the SHA-256 of the operator key.
    pub(crate) fn is_operator_key(&self, hash: &[u8; 32]) -> bool {
        let expected = self.operator_key.as_ref();
        expected.is_some_and(|expected| {
            let expected: [u8; 32] = Sha256::digest(expected.expose_secret()).into();
            KeyHash::from(expected).eq_constant_time(hash)
        })
    }
}

fn insecure() -> Problem {
    Problem::new(
        ProblemKind::InsecureSession,
        "A session needs HTTPS: browsers keep its cookie over HTTP only on the machine itself. Use https://, or \
         http://127.0.0.1 there. If a proxy ends HTTPS, let it send `X-Forwarded-Proto: https`.",
    )
}

fn not_a_key() -> Problem {
    Problem::new(
        ProblemKind::MalformedCredential,
        "This is not an API key: `sb_` and 43 characters.",
    )
    .header(header::WWW_AUTHENTICATE, "Bearer")
}

fn refused_code(detail: &str) -> Problem {
    Problem::new(ProblemKind::SignInCodeRefused, detail).header(header::WWW_AUTHENTICATE, "Bearer")
}
