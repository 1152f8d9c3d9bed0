//! Who may change settings: an organisation's administrators, and the operator of the installation.
//! Never: a body read for a caller who may not send one.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::{HeaderMap, StatusCode, header, request::Parts};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use switchboard_identity::Caller;
use switchboard_protocol::access::Scope;
use switchboard_runtime::problem::Problem;
use switchboard_store::Owner;

use crate::Control;

/// A caller with the scope `admin`.
pub(crate) struct Administrator(pub(crate) Caller);

impl FromRequestParts<Arc<Control>> for Administrator {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        authorize(parts, control, Scope::Admin).await.map(Self)
    }
}

/// A caller with the scope `read`.
pub(crate) struct Member(pub(crate) Caller);

impl FromRequestParts<Arc<Control>> for Member {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        authorize(parts, control, Scope::Read).await.map(Self)
    }
}

/// Who writes settings: an organisation's administrator, or the operator, whose settings are public.
pub(crate) struct Author(pub(crate) Owner);

impl FromRequestParts<Arc<Control>> for Author {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        admit(parts, control, Scope::Admin).await.map(Self)
    }
}

/// Who reads settings: a caller with the scope `read`, or the operator, who sees public ones.
pub(crate) struct Reader(pub(crate) Owner);

impl FromRequestParts<Arc<Control>> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        admit(parts, control, Scope::Read).await.map(Self)
    }
}

async fn admit(parts: &mut Parts, control: &Control, scope: Scope) -> Result<Owner, Problem> {
    if admit_operator(&parts.headers, control.operator_key.as_ref()).is_ok() {
        return Ok(Owner::Installation);
    }
    let caller = authorize(parts, control, scope).await?;
    Ok(Owner::Org(caller.org))
}

async fn authorize(parts: &mut Parts, control: &Control, scope: Scope) -> Result<Caller, Problem> {
    let caller = caller(parts, control).await?;
    caller.require(scope)?;
    Ok(caller)
}

/// Who was found to send a request, kept with it.
#[derive(Clone)]
struct Known(Caller);

async fn caller(parts: &mut Parts, control: &Control) -> Result<Caller, Problem> {
    let ask = async |headers: &HeaderMap| control.authenticator.authenticate(headers).await;
    known_or(parts, ask).await
}

/// Who sends a request. It is asked once, however many want to know: the answer is the same for all of them.
async fn known_or(
    parts: &mut Parts,
    ask: impl AsyncFnOnce(&HeaderMap) -> Result<Caller, Problem>,
) -> Result<Caller, Problem> {
    if let Some(Known(caller)) = parts.extensions.get() {
        return Ok(caller.clone());
    }
    let caller = ask(&parts.headers).await?;
    parts.extensions.insert(Known(caller.clone()));
    Ok(caller)
}

/// Whose a request is, and what its sender is called among the owner's.
pub(crate) async fn who(parts: &mut Parts, control: &Control) -> Result<(Owner, String), Problem> {
    if admit_operator(&parts.headers, control.operator_key.as_ref()).is_ok() {
        return Ok((Owner::Installation, "operator".to_owned()));
    }
    let caller = caller(parts, control).await?;
    Ok((Owner::Org(caller.org), caller.credential.holder()))
}

/// The control plane as the sender of a request acts on it: what changes is put down to them. It comes after whoever
/// says whether they may.
pub(crate) struct Acting(pub(crate) Arc<Control>);

impl FromRequestParts<Arc<Control>> for Acting {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let (_, actor) = who(parts, control).await?;
        Ok(Self(Arc::new(control.acting(&actor))))
    }
}

/// Whoever holds the operator key.
pub(crate) struct Operator;

impl FromRequestParts<Arc<Control>> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        admit_operator(&parts.headers, control.operator_key.as_ref())
    }
}

fn admit_operator(
    headers: &HeaderMap,
    operator_key: Option<&SecretString>,
) -> Result<Operator, Problem> {
    let Some(expected) = operator_key else {
        return Err(forbidden(
            "This installation has no operator key, so nobody can do this; \
             its operator sets one with --operator-key or SWITCHBOARD_OPERATOR_KEY.",
        ));
    };
    let sent = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let Some((scheme, key)) = sent.and_then(|value| value.split_once(' ')) else {
        return Err(unauthorized());
    };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthorized());
    }
    if same(key.trim(), expected.expose_secret()) {
        Ok(Operator)
    } else {
        Err(forbidden(
            "Only the operator may do this, and this is not the operator key.",
        ))
    }
}

/// Takes the same time wherever the two differ, and however long they are.
fn same(one: &str, other: &str) -> bool {
    Sha256::digest(one)
        .as_slice()
        .ct_eq(Sha256::digest(other).as_slice())
        .into()
}

fn unauthorized() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "missing_credentials",
        "Missing credentials",
        "Send `Authorization: Bearer` with the operator key.",
    )
    .header(header::WWW_AUTHENTICATE, "Bearer")
}

/// The refusal of what only the operator may do.
pub(crate) fn forbidden(detail: &str) -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "operator_only",
        "Operator only",
        detail,
    )
}

#[cfg(test)]
mod tests {
    use http::Request;
    use switchboard_identity::Credential;
    use switchboard_protocol::id::{ApiKeyId, OrgId};
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn who_sends_a_request_is_asked_once_and_again_for_another() {
        let caller = |number| Caller {
            org: OrgId::from_uuid(Uuid::from_u128(number)),
            scopes: [Scope::Read].into_iter().collect(),
            credential: Credential::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(number))),
        };
        let parts = || Request::new(()).into_parts().0;
        let mut first = parts();
        let refused = known_or(&mut first, async |_| Err(unauthorized())).await;
        assert_eq!(refused.unwrap_err().status, StatusCode::UNAUTHORIZED);
        // Who was not let in is not known.
        let found = known_or(&mut first, async |_| Ok(caller(1))).await;
        assert_eq!(found.unwrap(), caller(1));
        let again = known_or(&mut first, async |_| Err(unauthorized())).await;
        assert_eq!(again.unwrap(), caller(1));
        let second = known_or(&mut parts(), async |_| Ok(caller(2))).await;
        assert_eq!(second.unwrap(), caller(2));
    }

    #[test]
    fn only_the_operator_key_is_admitted() {
        fn check(sent: Option<&str>, key: Option<&str>, expect: Option<u16>) {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, sent.parse().unwrap());
            }
            let key = key.map(SecretString::from);
            let refused = admit_operator(&headers, key.as_ref()).err();
            assert_eq!(
                refused.map(|problem| problem.status.as_u16()),
                expect,
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
