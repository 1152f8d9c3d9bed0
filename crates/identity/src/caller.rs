//! A caller whose credential was good, and how handlers ask for one.
//! Never: a caller that nobody authenticated.

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use switchboard_protocol::{
    access::{Scope, Scopes, Subject},
    id::{ApiKeyId, OrgId, TokenId},
};
use switchboard_runtime::problem::Problem;

use crate::{Authenticator, refusal};

/// A caller whose credential was good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose devices and settings the caller reaches, and no others.
    pub org: OrgId,
    /// What it may do.
    pub scopes: Scopes,
    /// How it proved who it is.
    pub credential: Credential,
}

/// How a caller proved who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// With an API key.
    ApiKey(ApiKeyId),
    /// With an access token.
    AccessToken {
        /// The token's `jti`.
        id: TokenId,
        /// Whom it names.
        subject: Subject,
    },
}

/// Whoever shares a limit: an API key, or the subject of access tokens, which outlives the token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerId {
    /// An API key.
    Key(ApiKeyId),
    /// A subject of an organisation.
    Subject(OrgId, Subject),
}

impl Credential {
    /// Whoever holds it, by a name that is the same for all tokens of one subject. Of one organisation; two may
    /// call different holders the same.
    #[must_use]
    pub fn holder(&self) -> String {
        match self {
            Self::ApiKey(id) => id.to_string(),
            Self::AccessToken { subject, .. } => subject.to_string(),
        }
    }
}

impl Caller {
    /// By whom its limits are shared.
    #[must_use]
    pub fn id(&self) -> CallerId {
        match &self.credential {
            Credential::ApiKey(id) => CallerId::Key(*id),
            Credential::AccessToken { subject, .. } => CallerId::Subject(self.org, subject.clone()),
        }
    }

    /// Insists on a scope.
    ///
    /// # Errors
    /// A 403 problem that names the missing scope.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(scope) {
            Ok(())
        } else {
            Err(refusal::insufficient_scope(scope))
        }
    }
}

impl<S> FromRequestParts<S> for Caller
where
    S: Send + Sync,
    Authenticator: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Authenticator::from_ref(state)
            .authenticate(&parts.headers)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_scope_is_named() {
        let caller = Caller {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            scopes: [Scope::Call].into_iter().collect(),
            credential: Credential::ApiKey("key_0000000000000000000000000000abcd".parse().unwrap()),
        };
        assert!(caller.require(Scope::Call).is_ok());
        let refused = caller.require(Scope::Admin).unwrap_err();
        assert_eq!(
            (refused.status.as_u16(), refused.slug),
            (403, "insufficient_scope")
        );
        assert!(refused.detail.contains("`admin`"), "{}", refused.detail);
    }
}
