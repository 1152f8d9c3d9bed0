//! Repeated checks of a credential that is used for longer than one request.
//! Invariant: the credential itself is not stored for that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use switchboard_protocol::id::TokenId;
use switchboard_runtime::problem::Problem;

use crate::{
    Authenticator,
    authenticator::{ParsedCredential, parse_credential},
    problems,
};

/// What has to be checked again of a credential after its authentication.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialCheck(Basis);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Basis {
    /// The API key with this hash.
    Key([u8; 32]),
    /// The expiry and revocation of a token.
    Token { id: TokenId, expires_at: u64 },
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
            ParsedCredential::Key(secret) => Basis::Key(secret.hash()),
            ParsedCredential::Token(token) => {
                let claims = self
                    .bus
                    .verify(token)
                    .map_err(|error| problems::token(&error))?;
                Basis::Token {
                    id: claims.id,
                    expires_at: claims.expires_at,
                }
            }
        }))
    }

    /// Whether a request with this credential would still be authenticated. Checks of the same key
    /// within 3 s share one lookup. False if the database has been unavailable for longer than the
    /// fallback lasts.
    pub async fn is_still_valid(&self, check: &CredentialCheck) -> bool {
        match check.0 {
            Basis::Key(hash) => matches!(self.keys.lookup(hash).await, Ok(Some(_))),
            Basis::Token { id, expires_at } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                !self.bus.is_revoked(id) && now.unwrap_or(Duration::MAX).as_secs() < expires_at
            }
        }
    }
}
