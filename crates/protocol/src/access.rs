//! Access tokens: EdDSA-signed JWTs that any node verifies offline. (RFC 7519, RFC 8037.)
//! Never: a clock, a revocation list, or a private key that prints itself.

mod claims;
mod keys;
mod scope;

pub use claims::{Claims, Subject};
pub use keys::{SigningKey, VerifyingKey, VerifyingKeys};
pub use scope::{Scope, Scopes};

/// Why a token gives no access, or a text is no part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Not an EdDSA-signed JWT with all of our claims.
    #[error("this is no access token; get one with `POST /v1/tokens`")]
    Malformed,
    /// Signed with a key that is not, or no longer, ours.
    #[error("the access token is signed with an unknown key; get a new one")]
    UnknownKey,
    /// The signature does not belong to the claims.
    #[error("the access token's signature is wrong")]
    BadSignature,
    /// Too old.
    #[error("the access token expired at {at} (Unix time); get a new one")]
    Expired {
        /// When it ended, in Unix seconds.
        at: u64,
    },
    /// Issued for somebody else.
    #[error("the access token is for another audience")]
    WrongAudience,
    /// Issued by somebody else.
    #[error("the access token is from another issuer")]
    WrongIssuer,
    /// Taken back before its time. Found by whoever knows the revocations, not by verification.
    #[error("the access token was revoked")]
    Revoked,
    /// A public key that is no Ed25519 key, or not the one its id says.
    #[error("not an Ed25519 public key whose id is the head of its SHA-256")]
    BadKey,
    /// A scope we do not have.
    #[error("a scope is one of `device`, `call`, `read` and `admin`")]
    UnknownScope,
    /// A subject of another form.
    #[error(
        "a subject is `device:` or `client:` and 1 to 64 characters out of A-Z a-z 0-9 . _ : -"
    )]
    BadSubject,
}

impl AccessError {
    /// What [`Self::code`] may answer.
    pub const CODES: [&str; 10] = [
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
    ];

    /// The stable name of the error.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed() {
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
        ];
        assert_eq!(errors.map(|error| error.code()), AccessError::CODES);
    }
}
