//! Authentication and authorisation of callers, as axum extractors.
//!
//! Invariant: an extractor of this module comes before the body, so that no body is read for a
//! caller without permission.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use futures_util::future::BoxFuture;
use http::{HeaderMap, header, request::Parts};
use sha2::{Digest, Sha256};
use switchboard_identity::{Caller, Holder, Session};
use switchboard_protocol::token::Scope;
use switchboard_runtime::{
    budget,
    http::authenticated,
    problem::{Problem, ProblemKind},
};
use switchboard_store::Owner;

use crate::Control;

/// A caller with the scope `admin`.
pub(crate) struct RequireAdmin(pub(crate) Caller);

impl FromRequestParts<Arc<Control>> for RequireAdmin {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        authorize(parts, control, Scope::Admin).await.map(Self)
    }
}

/// A caller with the scope `admin` or `provision`.
pub(crate) struct RequireIssuer(pub(crate) Caller);

impl FromRequestParts<Arc<Control>> for RequireIssuer {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        authorize_issuer(parts, control).await.map(Self)
    }
}

/// A caller with the scope `read`.
pub(crate) struct RequireRead(pub(crate) Caller);

impl FromRequestParts<Arc<Control>> for RequireRead {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        authorize(parts, control, Scope::Read).await.map(Self)
    }
}

/// The owner of the settings that a caller may write: the organisation of an administrator, or the
/// installation for the operator, whose settings are public.
pub(crate) struct Writer(pub(crate) Owner);

impl FromRequestParts<Arc<Control>> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        authorize_owner(parts, control, Scope::Admin)
            .await
            .map(Self)
    }
}

/// The owner of the settings that a caller may read beside public ones: its organisation, or the
/// installation for the operator.
pub(crate) struct Reader(pub(crate) Owner);

impl FromRequestParts<Arc<Control>> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        authorize_owner(parts, control, Scope::Read).await.map(Self)
    }
}

// These futures are boxed: each handler polls one pointer, instead of its own inlined
// copy of the authentication.

fn authorize_owner<'a>(
    parts: &'a mut Parts,
    control: &'a Control,
    scope: Scope,
) -> BoxFuture<'a, Result<Owner, Problem>> {
    Box::pin(async move {
        if authenticate_operator(parts, control).is_ok() {
            return Ok(Owner::Installation);
        }
        let caller = authorize(parts, control, scope).await?;
        Ok(Owner::Org(caller.org))
    })
}

fn authorize<'a>(
    parts: &'a mut Parts,
    control: &'a Control,
    scope: Scope,
) -> BoxFuture<'a, Result<Caller, Problem>> {
    Box::pin(async move {
        let caller = authenticate(parts, control).await?;
        caller.require(scope)?;
        Ok(caller)
    })
}

fn authorize_issuer<'a>(
    parts: &'a mut Parts,
    control: &'a Control,
) -> BoxFuture<'a, Result<Caller, Problem>> {
    Box::pin(async move {
        let caller = authenticate(parts, control).await?;
        if !caller.scopes.contains(Scope::Provision) {
            caller.require(Scope::Admin)?;
        }
        Ok(caller)
    })
}

/// The authenticated caller, stored in the extensions of its request.
#[derive(Clone)]
struct CachedCaller(Caller);

async fn authenticate(parts: &mut Parts, control: &Control) -> Result<Caller, Problem> {
    let authenticate = async |parts: &Parts| {
        let (headers, extensions) = (&parts.headers, &parts.extensions);
        let caller = control.authenticator.authenticate(headers, extensions);
        let caller = caller.await?;
        let admitted = control.rates.take(&caller.org);
        admitted.inspect_err(|_| control.metrics.requests_limited.inc())?;
        Ok(caller)
    };
    cached_caller_or(parts, authenticate).await
}

/// A request is authenticated once, however many extractors need its caller.
async fn cached_caller_or(
    parts: &mut Parts,
    authenticate: impl AsyncFnOnce(&Parts) -> Result<Caller, Problem>,
) -> Result<Caller, Problem> {
    if let Some(CachedCaller(caller)) = parts.extensions.get() {
        return Ok(caller.clone());
    }
    let caller = authenticate(parts).await?;
    parts.extensions.insert(CachedCaller(caller.clone()));
    Ok(caller)
}

/// The owner for whom a caller acts, and the caller's name in the audit log of that owner.
pub(crate) fn identify<'a>(
    parts: &'a mut Parts,
    control: &'a Control,
) -> BoxFuture<'a, Result<(Owner, String), Problem>> {
    Box::pin(async move {
        if authenticate_operator(parts, control).is_ok() {
            return Ok((Owner::Installation, "operator".to_owned()));
        }
        let caller = authenticate(parts, control).await?;
        Ok((Owner::Org(caller.org), caller.credential.caller_name()))
    })
}

/// The control plane with a store that records the caller as the actor of every change.
///
/// It does not authorise: it follows an extractor that does.
pub(crate) struct AuditActor(pub(crate) Arc<Control>);

impl FromRequestParts<Arc<Control>> for AuditActor {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let (_, actor) = identify(parts, control).await?;
        Ok(Self(Arc::new(control.with_actor(&actor))))
    }
}

/// Who a caller is.
pub(crate) enum Identity {
    /// The operator.
    Operator,
    /// A caller of an organisation, with any scope.
    Caller(Caller),
}

/// Any caller that is authenticated.
pub(crate) struct WhoAmI {
    pub(crate) identity: Identity,
    /// When its session or its token ends, in Unix seconds.
    pub(crate) ends_at: Option<u64>,
}

impl FromRequestParts<Arc<Control>> for WhoAmI {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let identity = match authenticate_operator(parts, control) {
            Ok(RequireOperator) => Identity::Operator,
            Err(_) => Identity::Caller(authenticate(parts, control).await?),
        };
        let session = Session::of(&parts.extensions).map(|session| session.ends_at());
        let ends_at = session.or_else(|| control.authenticator.token_expiry(&parts.headers));
        Ok(Self { identity, ends_at })
    }
}

/// What only the caller has of its credential: what is stored under it is no use to others.
pub(crate) fn secret_of(parts: &Parts) -> Vec<u8> {
    match parts.headers.get(header::AUTHORIZATION) {
        Some(credential) => credential.as_bytes().to_vec(),
        None => Session::of(&parts.extensions)
            .map(|session| session.secret().to_vec())
            .unwrap_or_default(),
    }
}

/// A caller with the operator key.
pub(crate) struct RequireOperator;

impl FromRequestParts<Arc<Control>> for RequireOperator {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        match authenticate_operator(parts, control) {
            // Only a caller that is known learns that it may not.
            Err(problem)
                if Session::is_sent(&parts.extensions)
                    || (problem.kind == ProblemKind::OperatorOnly
                        && control.operator_key.is_some()) =>
            {
                authenticate(parts, control).await?;
                Err(problem)
            }
            checked => checked,
        }
    }
}

/// Requests of the operator are charged to the process.
fn authenticate_operator(parts: &Parts, control: &Control) -> Result<RequireOperator, Problem> {
    let operator = match Session::of(&parts.extensions) {
        Some(session) => check_operator_session(&session, control)?,
        None => check_operator_key(&parts.headers, control)?,
    };
    authenticated(&parts.extensions, budget::Owner::System);
    Ok(operator)
}

fn check_operator_session(
    session: &Session,
    control: &Control,
) -> Result<RequireOperator, Problem> {
    match session.holder() {
        Holder::Operator(key) if control.is_operator_key(key.as_bytes()) => Ok(RequireOperator),
        _ => Err(not_the_operator()),
    }
}

fn check_operator_key(headers: &HeaderMap, control: &Control) -> Result<RequireOperator, Problem> {
    if control.operator_key.is_none() {
        return Err(operator_only(
            "This installation has no operator key, so this operation is not available; \
             the operator sets one with --operator-key or SWITCHBOARD_OPERATOR_KEY.",
        ));
    }
    let key = sent_key(headers).ok_or_else(missing_credentials)?;
    // The hashes are compared in the same time, whatever the lengths of the keys.
    if control.is_operator_key(&Sha256::digest(key).into()) {
        Ok(RequireOperator)
    } else {
        Err(not_the_operator())
    }
}

/// The credential of an `Authorization: Bearer` header, of any form.
fn sent_key(headers: &HeaderMap) -> Option<&str> {
    let sent = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = sent.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

fn not_the_operator() -> Problem {
    operator_only("Only the operator may do this, and this is not the operator key.")
}

fn missing_credentials() -> Problem {
    Problem::new(
        ProblemKind::MissingCredentials,
        "Send `Authorization: Bearer` with the operator key.",
    )
    .header(header::WWW_AUTHENTICATE, "Bearer")
}

/// The problem for callers without the operator key.
pub(crate) fn operator_only(detail: &str) -> Problem {
    Problem::new(ProblemKind::OperatorOnly, detail)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use switchboard_identity::Credential;
    use switchboard_protocol::id::{ApiKeyId, OrgId};
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn request_is_authenticated_once() {
        let caller = |number| Caller {
            org: OrgId::from_uuid(Uuid::from_u128(number)),
            scopes: [Scope::Read].into_iter().collect(),
            restrictions: None,
            labelled: None,
            credential: Credential::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(number))),
        };
        let parts = || Request::new(()).into_parts().0;
        let mut first = parts();
        let refused = cached_caller_or(&mut first, async |_| Err(missing_credentials())).await;
        assert_eq!(
            refused.unwrap_err().status(),
            http::StatusCode::UNAUTHORIZED
        );
        // A failure is not cached.
        let found = cached_caller_or(&mut first, async |_| Ok(caller(1))).await;
        assert_eq!(found.unwrap(), caller(1));
        let again = cached_caller_or(&mut first, async |_| Err(missing_credentials())).await;
        assert_eq!(again.unwrap(), caller(1));
        let second = cached_caller_or(&mut parts(), async |_| Ok(caller(2))).await;
        assert_eq!(second.unwrap(), caller(2));
    }

    #[test]
    fn sent_key_has_the_scheme_bearer() {
        fn check(sent: Option<&str>, expected: Option<&str>) {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, sent.parse().unwrap());
            }
            assert_eq!(sent_key(&headers), expected, "{sent:?}");
        }
        check(Some("Bearer an operator's key"), Some("an operator's key"));
        check(Some("bearer an operator's key"), Some("an operator's key"));
        check(Some("Bearer "), Some(""));
        check(Some("Basic an operator's key"), None);
        check(None, None);
    }
}
