//! Repeated checks of a credential that is used for longer than one request.
//! Invariant: the credential itself is not stored for that.

use http::HeaderMap;
use switchboard_bus::TokenCheck;
use switchboard_runtime::{budget::Owner, problem::Problem};

use crate::{
    Authenticator,
    authenticator::{ParsedCredential, parse_credential},
    key_cache::KeyHash,
    problems,
};

/// What has to be checked again of a credential after its authentication.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialCheck(Basis);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Basis {
    Key(KeyHash),
    /// The key, the expiry and the revocation of a token.
    Token(TokenCheck),
}

impl CredentialCheck {
    /// Whether the check queries the store, which may take a while; a token is checked without I/O.
    #[must_use]
    pub const fn needs_store(&self) -> bool {
        matches!(self.0, Basis::Key(_))
    }
}

impl Authenticator {
    /// What to check again later of the credential in the `Authorization` header, which was just
    /// authenticated.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`], except that a key is not looked up.
    pub fn credential_check(&self, headers: &HeaderMap) -> Result<CredentialCheck, Problem> {
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
            Basis::Key(hash) => match self.keys.lookup(hash, Owner::System, || true).await {
                Ok(Some(caller)) => !self.bus.is_suspended(caller.org),
                Ok(None) | Err(_) => false,
            },
            Basis::Token(check) => self.bus.recheck(&check).is_ok(),
        }
    }
}
