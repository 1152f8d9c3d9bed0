//! An authenticated caller, and its extractor for handlers.

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use switchboard_protocol::{
    id::{ApiKeyId, OrgId, TokenId},
    token::{Scope, Scopes, Subject},
};
use switchboard_runtime::problem::Problem;

use crate::{Authenticator, problems};

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The organisation whose devices and settings the caller can access.
    pub org: OrgId,
    /// The scopes of the credential.
    pub scopes: Scopes,
    /// The credential.
    pub credential: Credential,
}

/// The credential of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// An API key.
    ApiKey(ApiKeyId),
    /// An access token.
    AccessToken {
        /// The token's `jti`.
        id: TokenId,
        /// The token's subject.
        subject: Subject,
    },
}

/// The key of per-caller limits: an API key, or the subject of access tokens, which is the same for
/// successive tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerId {
    /// An API key.
    Key(ApiKeyId),
    /// A subject of an organisation.
    Subject(OrgId, Subject),
}

impl Credential {
    /// The name of the caller, the same for all tokens of one subject. Unique within an
    /// organisation only.
    #[must_use]
    pub fn caller_name(&self) -> String {
        match self {
            Self::ApiKey(id) => id.to_string(),
            Self::AccessToken { subject, .. } => subject.to_string(),
        }
    }
}

impl Caller {
    /// The key of its limits.
    #[must_use]
    pub fn id(&self) -> CallerId {
        match &self.credential {
            Credential::ApiKey(id) => CallerId::Key(*id),
            Credential::AccessToken { subject, .. } => CallerId::Subject(self.org, subject.clone()),
        }
    }

    /// Requires a scope.
    ///
    /// # Errors
    /// A 403 problem with the missing scope.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(scope) {
            Ok(())
        } else {
            Err(problems::insufficient_scope(scope))
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
            .authenticate(&parts.headers, &parts.extensions)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_scope_is_in_the_problem() {
        let caller = Caller {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            scopes: [Scope::Call].into_iter().collect(),
            credential: Credential::ApiKey("key_0000000000000000000000000000abcd".parse().unwrap()),
        };
        assert!(caller.require(Scope::Call).is_ok());
        let refused = caller.require(Scope::Admin).unwrap_err();
        assert_eq!(
            (refused.status().as_u16(), refused.slug()),
            (403, "insufficient_scope")
        );
        assert!(refused.detail.contains("`admin`"), "{}", refused.detail);
    }
}
