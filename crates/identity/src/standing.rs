//! A credential that is used for longer than one request: what has to be asked again, and the asking.
//! Never: the credential itself; it is not kept for that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use switchboard_protocol::id::TokenId;
use switchboard_runtime::problem::Problem;

use crate::{
    Authenticator,
    authenticator::{Presented, presented},
    refusal,
};

/// What a credential's goodness hangs on after its first check.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing(Hold);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Hold {
    /// On the key with this hash.
    Key([u8; 32]),
    /// On the time, and on what is revoked.
    Token { id: TokenId, expires_at: u64 },
}

impl Standing {
    /// Whether the store has to be asked, which may take a while; a token is judged on the spot.
    #[must_use]
    pub const fn rests_on_store(&self) -> bool {
        matches!(self.0, Hold::Key(_))
    }
}

impl Authenticator {
    /// What to ask again of the credential in the `Authorization` header, which was good a moment ago.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`], but a key is not looked up.
    pub fn standing(&self, headers: &HeaderMap) -> Result<Standing, Problem> {
        Ok(Standing(match presented(headers)? {
            Presented::Key(secret) => Hold::Key(secret.hash()),
            Presented::Token(token) => {
                let claims = self
                    .bus
                    .verify(token)
                    .map_err(|error| refusal::token(&error))?;
                Hold::Token {
                    id: claims.id,
                    expires_at: claims.expires_at,
                }
            }
        }))
    }

    /// Whether a request with this credential would still be let in: all that use the same key within 3 s share one
    /// question. What nobody can vouch for any more, because the database has been away for too long, is not.
    pub async fn still_good(&self, standing: &Standing) -> bool {
        match standing.0 {
            Hold::Key(hash) => matches!(self.keys.judge(hash).await, Ok(Some(_))),
            Hold::Token { id, expires_at } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                !self.bus.is_revoked(id) && now.unwrap_or(Duration::MAX).as_secs() < expires_at
            }
        }
    }
}
