//! Authentication of HTTP requests.
//! Invariant: an access token is verified without a database query.

use http::{Extensions, HeaderMap, header};
use prometheus::{IntCounterVec, Registry};
use switchboard_bus::Bus;
use switchboard_runtime::{
    budget::{Budgets, Owner},
    http::{authenticated, caller},
    metrics::Group,
    problem::{Problem, internal},
};
use switchboard_store::{Store, StoreError};

use crate::{
    ApiKeySecret, Approvals, Caller, Checksum, Credential, Holder, KeyHash, Sessions,
    key_cache::KeyCache, labelled_devices::LabelledDevices, problems, quotas::Quotas,
    session::SentSession,
};

/// Authenticates callers; cheap to clone.
///
/// An API key with a wrong checksum is rejected without a query. Any other is looked up by its hash
/// and cached for 3 s, then looked up in the background while it is in use: a revoked key is rejected
/// within 5 s. While the database is unavailable, a key that was valid within the last 5 minutes remains
/// valid. An access token is verified by its signature, its expiry and the revocations received
/// over the bus. A session is a request with its key, on routes that accept sessions.
#[derive(Clone)]
pub struct Authenticator {
    pub(crate) keys: KeyCache,
    pub(crate) bus: Bus,
    failures: Option<IntCounterVec>,
    quotas: Quotas,
    approvals: Approvals,
    labelled_devices: LabelledDevices,
    pub(crate) sessions: Sessions,
}

/// A credential as received, distinguished by its form.
pub(crate) enum ParsedCredential<'a> {
    Key(ApiKeySecret),
    Token(&'a str),
}

impl Authenticator {
    /// Looks up API keys in this store, and verifies access tokens with the keys of this bus.
    /// Lookups are charged to the budget `key_lookups`.
    #[must_use]
    pub fn new(store: Store, bus: Bus, budgets: &Budgets) -> Self {
        Self {
            quotas: Quotas::new(store.clone(), bus.clone()),
            approvals: Approvals::new(store.clone(), bus.clone(), budgets),
            labelled_devices: LabelledDevices::new(store.clone(), budgets),
            sessions: Sessions::new(store.clone()),
            keys: KeyCache::new(store, budgets),
            bus,
            failures: None,
        }
    }

    /// The quotas of the callers' organisations.
    #[must_use]
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Which services models may call.
    #[must_use]
    pub const fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// Adds counters of failed authentications of this service by reason, and of refusals by quota.
    ///
    /// # Errors
    /// If the registry contains such a metric already.
    pub fn with_metrics(
        self,
        service: &str,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_http").with_service(service);
        let help = "Requests that failed authentication, by reason";
        let failures =
            group.named_counters("auth_failures_total", help, "kind", problems::slugs())?;
        Ok(Self {
            failures: Some(failures),
            quotas: self.quotas.with_metrics(service, registry)?,
            ..self
        })
    }

    /// Authenticates the caller of the `Authorization` header, or else of its session. From then on the request with these
    /// extensions is charged to the caller's organisation.
    ///
    /// # Errors
    /// A 401 problem with the reason and `WWW-Authenticate: Bearer`, or 503 if this node cannot
    /// verify the credential.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, Problem> {
        let result = self.verify(headers, extensions).await;
        let mut caller = result.inspect_err(|problem| self.count(problem))?;
        authenticated(extensions, Owner::Org(caller.org.uuid()));
        self.read_labelled(&mut caller).await?;
        Ok(caller)
    }

    /// Reads which devices have the label that restricts a caller, as they were within the last 3 s. Nothing for one
    /// that no label restricts.
    ///
    /// # Errors
    /// A 403 problem if too many devices have the label, or 503 if the database is unavailable.
    pub async fn read_labelled(&self, caller: &mut Caller) -> Result<(), Problem> {
        let restrictions = caller.restrictions.clone();
        if let Some(label) = restrictions
            .as_ref()
            .and_then(|one| one.device_label.as_ref())
        {
            // Boxed: the future of every request contains it.
            let labelled = Box::pin(self.labelled_devices.of(caller.org, label)).await?;
            caller.labelled = Some(labelled);
        }
        Ok(())
    }

    /// Charges the request with these extensions to the organisation of its credential. For requests
    /// that another service authenticates: one without a valid credential stays charged to its address,
    /// and is not counted as a failure.
    pub async fn charge(&self, headers: &HeaderMap, extensions: &Extensions) {
        let verified = if headers.contains_key(header::AUTHORIZATION) {
            self.verify(headers, extensions).await
        } else {
            // Boxed: the future of every forwarded request contains it.
            match Box::pin(self.sessions.of_forwarded(headers)).await {
                Some(session) => self.verify_holder(session.holder(), extensions).await,
                None => return,
            }
        };
        if let Ok(caller) = verified {
            authenticated(extensions, Owner::Org(caller.org.uuid()));
        }
    }

    /// Authenticates a key that begins a session. From then on the request with these extensions is
    /// charged to its organisation.
    ///
    /// # Errors
    /// As [`Self::authenticate`].
    pub async fn sign_in(
        &self,
        secret: &ApiKeySecret,
        extensions: &Extensions,
    ) -> Result<Caller, Problem> {
        let found = self.authenticate_key(secret, caller(extensions)).await;
        let caller = found.inspect_err(|problem| self.count(problem))?;
        authenticated(extensions, Owner::Org(caller.org.uuid()));
        Ok(caller)
    }

    /// When the access token in the `Authorization` header expires, in Unix seconds. `None` for any
    /// other credential.
    #[must_use]
    pub fn token_expiry(&self, headers: &HeaderMap) -> Option<u64> {
        match parse_credential(headers) {
            Ok(ParsedCredential::Token(token)) => {
                let verified = self.bus.verify(token).ok()?;
                Some(verified.expires_at)
            }
            _ => None,
        }
    }

    async fn verify(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, Problem> {
        if let Some(SentSession(sent)) = extensions.get() {
            let session = sent.map_err(|refusal| refusal.problem())?;
            return self.verify_holder(session.holder(), extensions).await;
        }
        match parse_credential(headers)? {
            ParsedCredential::Key(secret) => {
                self.authenticate_key(&secret, caller(extensions)).await
            }
            ParsedCredential::Token(token) => self.authenticate_token(token),
        }
    }

    async fn verify_holder(
        &self,
        holder: Holder,
        extensions: &Extensions,
    ) -> Result<Caller, Problem> {
        match holder {
            Holder::ApiKey(key) => self.look_up(key, caller(extensions), || true).await,
            Holder::Operator(_) => Err(problems::organisation_required()),
        }
    }

    fn count(&self, problem: &Problem) {
        let is_known = problems::slugs().any(|slug| slug == problem.slug());
        if let Some(failures) = self.failures.as_ref().filter(|_| is_known) {
            failures.with_label_values(&[problem.slug()]).inc();
        }
    }

    async fn authenticate_key(
        &self,
        secret: &ApiKeySecret,
        client: Owner,
    ) -> Result<Caller, Problem> {
        let may_exist = || secret.checksum() != Checksum::Wrong;
        self.look_up(KeyHash::of(secret), client, may_exist).await
    }

    async fn look_up(
        &self,
        key: KeyHash,
        client: Owner,
        may_exist: impl FnOnce() -> bool,
    ) -> Result<Caller, Problem> {
        match self.keys.lookup(key, client, may_exist).await {
            Ok(Some(caller)) if self.bus.is_suspended(caller.org) => Err(problems::org_suspended()),
            Ok(Some(caller)) => Ok(caller),
            Ok(None) => Err(problems::unknown_api_key()),
            Err(error) => Err(lookup_failed(&error)),
        }
    }

    fn authenticate_token(&self, token: &str) -> Result<Caller, Problem> {
        let claims = self
            .bus
            .verify(token)
            .map_err(|error| problems::token(&error))?;
        Ok(Caller {
            org: claims.org,
            scopes: claims.scopes,
            restrictions: claims.restrictions,
            labelled: None,
            credential: Credential::AccessToken {
                id: claims.id,
                subject: claims.subject,
            },
        })
    }
}

fn lookup_failed(error: &StoreError) -> Problem {
    if error.is_unavailable() {
        tracing::warn!(error = error.report(), "API key lookup failed");
        return problems::unavailable("API keys cannot be looked up at the moment.");
    }
    tracing::error!(error = error.report(), "API key lookup failed");
    internal()
}

pub(crate) fn parse_credential(headers: &HeaderMap) -> Result<ParsedCredential<'_>, Problem> {
    let credential = bearer(headers).ok_or_else(problems::missing_credentials)?;
    if let Some(secret) = ApiKeySecret::parse(credential) {
        Ok(ParsedCredential::Key(secret))
    } else if credential.bytes().filter(|byte| *byte == b'.').count() == 2 {
        Ok(ParsedCredential::Token(credential))
    } else {
        Err(problems::malformed())
    }
}

/// The credential of an `Authorization: Bearer` header (RFC 6750, section 2.1). The scheme is
/// case-insensitive (RFC 9110).
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
    fn bearer_credential_is_parsed() {
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
