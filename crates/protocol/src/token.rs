//! Access tokens: EdDSA-signed JWTs that any node verifies offline. (RFC 7519, RFC 8037; ours)

mod claims;
mod keys;
mod restrictions;
mod scope;

pub use claims::{Claims, MAX_CLOCK_SKEW_S, MAX_TTL_S, Subject};
pub use keys::{KeyId, KeySetError, SignedKeySet, SigningKey, VerifyingKey, VerifyingKeys};
pub use restrictions::{
    MAX_PATTERNS, MAX_PATTERNS_JSON_BYTES, Outside, PatternError, Restrictions, ServicePattern,
};
pub use scope::{Scope, Scopes};

/// Why a token, or a part of one, is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Not an EdDSA-signed JWT with all claims.
    #[error("this is not an access token; get one with `POST /v1/tokens`")]
    Malformed,
    /// Signed with a key that is unknown or no longer accepted.
    #[error("the access token is signed with an unknown key; get a new one")]
    UnknownKey,
    /// The signature does not match the claims.
    #[error("the access token's signature is wrong")]
    BadSignature,
    /// The token has expired.
    #[error("the access token expired at {at} (Unix time); get a new one")]
    Expired {
        /// When it expired, in Unix seconds.
        at: u64,
    },
    /// Valid for longer than any token that is issued.
    #[error("the access token is valid for longer than {MAX_TTL_S} s; get a new one")]
    LifetimeTooLong,
    /// Issued later than now, beyond the difference of clocks.
    #[error("the access token is issued in the future, at {at} (Unix time); check the clocks")]
    IssuedInFuture {
        /// When it is issued, in Unix seconds.
        at: u64,
    },
    /// Issued for another audience.
    #[error("the access token is for another audience")]
    WrongAudience,
    /// Issued by another issuer.
    #[error("the access token is from another issuer")]
    WrongIssuer,
    /// Revoked before its expiry. Verification does not check this; the caller that knows the
    /// revocations does.
    #[error("the access token was revoked")]
    Revoked,
    /// The organisation is suspended. Verification does not check this either.
    #[error("the organisation is suspended; its operator can lift the suspension")]
    OrgSuspended,
    /// Not an Ed25519 public key, or its id does not match.
    #[error("not an Ed25519 public key whose id is the head of its SHA-256")]
    BadKey,
    /// An unknown scope.
    #[error("a scope is one of `device`, `call`, `read`, `admin` and `provision`")]
    UnknownScope,
    /// A subject of another form.
    #[error(
        "a subject is `device:` or `client:` and 1 to 64 characters out of A-Z a-z 0-9 . _ : -"
    )]
    BadSubject,
}

impl AccessError {
    /// All values of [`Self::code`].
    pub const CODES: [&str; 13] = [
        "token_malformed",
        "token_unknown_key",
        "token_bad_signature",
        "token_expired",
        "token_wrong_audience",
        "token_wrong_issuer",
        "token_revoked",
        "bad_key",
        "unknown_scope",
        "bad_subject",
        "token_lifetime_too_long",
        "token_issued_in_future",
        "org_suspended",
    ];

    /// Returns the stable name of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed => "token_malformed",
            Self::UnknownKey => "token_unknown_key",
            Self::BadSignature => "token_bad_signature",
            Self::Expired { .. } => "token_expired",
            Self::WrongAudience => "token_wrong_audience",
            Self::WrongIssuer => "token_wrong_issuer",
            Self::Revoked => "token_revoked",
            Self::BadKey => "bad_key",
            Self::UnknownScope => "unknown_scope",
            Self::BadSubject => "bad_subject",
            Self::LifetimeTooLong => "token_lifetime_too_long",
            Self::IssuedInFuture { .. } => "token_issued_in_future",
            Self::OrgSuspended => "org_suspended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_list_every_error() {
        let errors = [
            AccessError::Malformed,
            AccessError::UnknownKey,
            AccessError::BadSignature,
            AccessError::Expired { at: 1 },
            AccessError::WrongAudience,
            AccessError::WrongIssuer,
            AccessError::Revoked,
            AccessError::BadKey,
            AccessError::UnknownScope,
            AccessError::BadSubject,
            AccessError::LifetimeTooLong,
            AccessError::IssuedInFuture { at: 1 },
            AccessError::OrgSuspended,
        ];
        assert_eq!(errors.map(|error| error.code()), AccessError::CODES);
    }
}
