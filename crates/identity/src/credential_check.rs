//! Repeated checks of a credential that is used for longer than one request.
//! Invariant: the credential itself is not stored for that.

use http::{Extensions, HeaderMap};
use switchboard_bus::TokenCheck;
use switchboard_runtime::{budget::Owner, clock::unix_time, problem::Problem};

use crate::{
    Authenticator, Holder, KeyHash,
    authenticator::{ParsedCredential, parse_credential},
    problems,
    session::SentSession,
};

/// What has to be checked again of a credential after its authentication.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialCheck(Basis);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Basis {
    Key(KeyHash),
    /// The key of a session, and the Unix second in which it ends.
    Session(KeyHash, u64),
    /// The key, the expiry and the revocation of a token.
    Token(TokenCheck),
}

impl CredentialCheck {
    /// Whether the check queries the store, which may take a while; a token is checked without I/O.
    #[must_use]
    pub const fn needs_store(&self) -> bool {
        matches!(self.0, Basis::Key(_) | Basis::Session(..))
    }
}

impl Authenticator {
    /// What to check again later of the credential of a request, which was just authenticated.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`], except that a key is not looked up.
    pub fn credential_check(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<CredentialCheck, Problem> {
        if let Some(SentSession(sent)) = extensions.get() {
            let session = sent.map_err(|refusal| refusal.problem())?;
            return match session.holder() {
                Holder::ApiKey(key) => Ok(CredentialCheck(Basis::Session(key, session.ends_at()))),
                Holder::Operator(_) => Err(problems::organisation_required()),
            };
        }
        Ok(CredentialCheck(match parse_credential(headers)? {
            ParsedCredential::Key(secret) => Basis::Key(KeyHash::of(&secret)),
            ParsedCredential::Token(token) => {
                let (_, check) = self
                    .bus
                    .verify_for_connection(token)
                    .map_err(|error| problems::token(&error))?;
                Basis::Token(check)
            }
        }))
    }

    /// Whether a request with this credential would still be authenticated. Checks of the same key
    /// within 3 s share one lookup. False if the database has been unavailable for longer than the
    /// fallback lasts.
    pub async fn is_still_valid(&self, check: &CredentialCheck) -> bool {
        match check.0 {
            Basis::Session(_, ends_at) if ends_at <= unix_time().as_secs() => false,
            Basis::Key(hash) | Basis::Session(hash, _) => {
                match self.keys.lookup(hash, Owner::System, || true).await {
                    Ok(Some(caller)) => !self.bus.is_suspended(caller.org),
                    Ok(None) | Err(_) => false,
                }
            }
            Basis::Token(check) => self.bus.recheck(&check).is_ok(),
        }
    }
}
