//! Authentication and authorisation of callers, as axum extractors.
//!
//! Invariant: an extractor of this module comes before the body, so that no body is read for a
//! caller without permission.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use futures_util::future::BoxFuture;
use http::{HeaderMap, header, request::Parts};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use switchboard_identity::Caller;
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
                if problem.kind == ProblemKind::OperatorOnly && control.operator_key.is_some() =>
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
    let operator = check_operator_key(&parts.headers, control.operator_key.as_ref())?;
    authenticated(&parts.extensions, budget::Owner::System);
    Ok(operator)
}

fn check_operator_key(
    headers: &HeaderMap,
    operator_key: Option<&SecretString>,
) -> Result<RequireOperator, Problem> {
    let Some(expected) = operator_key else {
        return Err(operator_only(
            "This installation has no operator key, so this operation is not available; \
             the operator sets one with --operator-key or SWITCHBOARD_OPERATOR_KEY.",
        ));
    };
    let sent = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let Some((scheme, key)) = sent.and_then(|value| value.split_once(' ')) else {
        return Err(missing_credentials());
    };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(missing_credentials());
    }
    if eq_constant_time(key.trim(), expected.expose_secret()) {
        Ok(RequireOperator)
    } else {
        Err(operator_only(
            "Only the operator may do this, and this is not the operator key.",
        ))
    }
}

/// Takes the same time whatever the position of the first difference, and whatever the lengths.
fn eq_constant_time(one: &str, other: &str) -> bool {
    Sha256::digest(one)
        .as_slice()
        .ct_eq(Sha256::digest(other).as_slice())
        .into()
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
    fn operator_key_is_checked() {
        fn check(sent: Option<&str>, key: Option<&str>, expected: Option<u16>) {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, sent.parse().unwrap());
            }
            let key = key.map(SecretString::from);
            let refused = check_operator_key(&headers, key.as_ref()).err();
            assert_eq!(
                refused.map(|problem| problem.status().as_u16()),
                expected,
                "{sent:?}"
            );
        }
        const KEY: Option<&str> = Some("an operator's key");
        check(Some("Bearer an operator's key"), KEY, None);
        check(Some("bearer an operator's key"), KEY, None);
        check(Some("Bearer an operator's ke"), KEY, Some(403));
        check(Some("Bearer "), KEY, Some(403));
        check(Some("Basic an operator's key"), KEY, Some(401));
        check(None, KEY, Some(401));
        check(None, None, Some(403));
        check(Some("Bearer "), None, Some(403));
    }
}
