//! Reads the credential out of a request and finds out whose it is.
//! Never: a database query for an access token; those are judged by their signature.

use http::{HeaderMap, header};
use prometheus::{IntCounterVec, Registry};
use switchboard_bus::Bus;
use switchboard_runtime::{
    metrics::Group,
    problem::{Problem, internal},
};
use switchboard_store::{Store, StoreError};

use crate::{ApiKeySecret, Caller, Credential, key_verdicts::KeyVerdicts, refusal};

/// Finds out who is calling; cheap to clone.
///
/// An API key is looked up by its hash and remembered for 3 s, so a revoked one is refused within that time; while
/// the database is away, a key that was good within the last 5 minutes stays good. An access token is judged by
/// signature, expiry and the revocations that came over the bus.
#[derive(Clone)]
pub struct Authenticator {
    pub(crate) keys: KeyVerdicts,
    pub(crate) bus: Bus,
    failures: Option<IntCounterVec>,
}

/// A credential as it came, told by its form.
pub(crate) enum Presented<'a> {
    Key(ApiKeySecret),
    Token(&'a str),
}

impl Authenticator {
    /// Asks this store about API keys and this bus about access tokens.
    #[must_use]
    pub fn new(store: Store, bus: Bus) -> Self {
        Self {
            keys: KeyVerdicts::new(store),
            bus,
            failures: None,
        }
    }

    /// The same, with a count of who was not let in at this service, by the reason.
    ///
    /// # Errors
    /// When the registry has such a metric already.
    pub fn counted(self, service: &str, registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_http").of_service(service);
        let help = "Requests without a credential that is good, by what was wrong with it";
        let failures =
            group.named_counters("auth_failures_total", help, "kind", refusal::kinds())?;
        Ok(Self {
            failures: Some(failures),
            ..self
        })
    }

    /// Whom the `Authorization` header names.
    ///
    /// # Errors
    /// A 401 problem that says what was wrong, with `WWW-Authenticate: Bearer`; 503 when this node cannot judge.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let judged = match presented(headers) {
            Ok(Presented::Key(secret)) => self.by_key(&secret).await,
            Ok(Presented::Token(token)) => self.by_token(token),
            Err(problem) => Err(problem),
        };
        judged.inspect_err(|problem| self.count(problem))
    }

    fn count(&self, problem: &Problem) {
        let is_known = refusal::kinds().any(|kind| kind == problem.slug);
        if let Some(failures) = self.failures.as_ref().filter(|_| is_known) {
            failures.with_label_values(&[problem.slug]).inc();
        }
    }

    async fn by_key(&self, secret: &ApiKeySecret) -> Result<Caller, Problem> {
        match self.keys.judge(secret.hash()).await {
            Ok(Some(caller)) => Ok(caller),
            Ok(None) => Err(refusal::unknown_api_key()),
            Err(error) => Err(unjudged(&error)),
        }
    }

    fn by_token(&self, token: &str) -> Result<Caller, Problem> {
        let claims = self
            .bus
            .verify(token)
            .map_err(|error| refusal::token(&error))?;
        Ok(Caller {
            org: claims.org,
            scopes: claims.scopes,
            credential: Credential::AccessToken {
                id: claims.id,
                subject: claims.subject,
            },
        })
    }
}

fn unjudged(error: &StoreError) -> Problem {
    if error.is_unavailable() {
        tracing::warn!(error = error.report(), "an API key could not be looked up");
        return refusal::unavailable("API keys cannot be looked up at the moment.");
    }
    tracing::error!(error = error.report(), "an API key could not be looked up");
    internal()
}

pub(crate) fn presented(headers: &HeaderMap) -> Result<Presented<'_>, Problem> {
    let credential = bearer(headers).ok_or_else(refusal::missing_credentials)?;
    if let Some(secret) = ApiKeySecret::parse(credential) {
        Ok(Presented::Key(secret))
    } else if credential.bytes().filter(|byte| *byte == b'.').count() == 2 {
        Ok(Presented::Token(credential))
    } else {
        Err(refusal::malformed())
    }
}

/// The credential of an `Authorization: Bearer` header. (RFC 6750, section 2.1; RFC 9110: the scheme's case is free.)
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credential) = value.split_once(' ')?;
    let credential = credential.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !credential.is_empty()).then_some(credential)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credential_is_found() {
        fn check(value: &str, expect: Option<&str>) {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            assert_eq!(bearer(&headers), expect, "{value:?}");
        }
        check("Bearer abc", Some("abc"));
        check("bearer  abc ", Some("abc"));
        check("Bearer", None);
        check("Bearer ", None);
        check("Basic abc", None);
        check("abc", None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
