//! The token keys as the control plane signs them, for nodes that trust only its signature.

use jwt_compact::{
    AlgorithmExt, Claims as JwtClaims, Header, UntrustedToken, ValidationError, alg::Ed25519,
};
use serde::{Deserialize, Serialize};

use super::{KeyId, SigningKey, VerifyingKey, VerifyingKeys, date, unix_s};
use crate::token::AccessError;

/// The `typ` of the JWT: a key set is never taken for an access token, nor the other way round.
const TYPE: &str = "keyset+jwt";
/// Some thousand keys, of which there are rarely more than two.
const MAX_KEY_SET_BYTES: usize = 256 * 1024;

/// The token keys at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedKeySet {
    /// The keys that tokens may be signed with.
    pub keys: Vec<VerifyingKey>,
    /// A later set has a higher number; at most 2^53.
    pub sequence: u64,
    /// From then on the set is not adopted, in Unix seconds.
    pub expires_at: u64,
}

/// Why a published key set is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It has no signature.
    #[error("it is not signed; does the control plane have a master key?")]
    Unsigned,
    /// It is not a signed key set.
    #[error("it is not a signed key set")]
    Malformed,
    /// Another key signed it.
    #[error("it is signed with another key than --key-set-public-key")]
    UnknownKey,
    /// The signature does not match.
    #[error("its signature is wrong")]
    BadSignature,
    /// It is too old.
    #[error("it expired at {at} (Unix time); is a control plane running?")]
    Expired {
        /// When it expired, in Unix seconds.
        at: u64,
    },
    /// A later set was adopted before.
    #[error("it is older than the one in use")]
    Outdated,
}

#[derive(Serialize, Deserialize)]
struct KeySetClaims {
    keys: Vec<VerifyingKey>,
    seq: u64,
}

impl SigningKey {
    /// Signs a set of token keys.
    ///
    /// # Errors
    /// When the time is out of the range of dates.
    pub fn sign_key_set(&self, set: &SignedKeySet) -> Result<String, AccessError> {
        let mut jwt = JwtClaims::new(KeySetClaims {
            keys: set.keys.clone(),
            seq: set.sequence,
        });
        jwt.expiration = Some(date(set.expires_at)?);
        let header = Header::empty()
            .with_token_type(TYPE)
            .with_key_id(self.kid.as_str());
        Ed25519
            .token(&header, &jwt, &self.secret)
            .map_err(|_| AccessError::Malformed)
    }
}

impl VerifyingKey {
    /// Creates a key from its base64url, as in the `x` of a JWK.
    ///
    /// # Errors
    /// [`AccessError::BadKey`] when it is not an Ed25519 public key.
    pub fn from_base64url(x: &str) -> Result<Self, AccessError> {
        let mut key = Self {
            kid: String::new(),
            x: x.to_owned(),
        };
        key.kid = KeyId::compute(&key.decode_point()?).to_string();
        Ok(key)
    }
}

impl VerifyingKeys {
    /// Verifies a signed key set with these keys.
    ///
    /// # Errors
    /// Why it is refused at `now_unix_s`. There is no leeway.
    pub fn verify_key_set(&self, text: &str, now_unix_s: u64) -> Result<SignedKeySet, KeySetError> {
        if text.len() > MAX_KEY_SET_BYTES {
            return Err(KeySetError::Malformed);
        }
        let token = UntrustedToken::new(text).map_err(|_| KeySetError::Malformed)?;
        if token.header().token_type.as_deref() != Some(TYPE) {
            return Err(KeySetError::Malformed);
        }
        let kid = token.header().key_id.as_deref();
        let key = kid
            .and_then(|kid| kid.parse::<KeyId>().ok())
            .and_then(|id| self.by_id.get(&id))
            .ok_or(KeySetError::UnknownKey)?;
        let validated = Ed25519
            .validator::<KeySetClaims>(key)
            .validate(&token)
            .map_err(|error| match error {
                ValidationError::InvalidSignature => KeySetError::BadSignature,
                _ => KeySetError::Malformed,
            })?;
        let claims = validated.claims();
        let expires_at = unix_s(claims.expiration).map_err(|_| KeySetError::Malformed)?;
        if expires_at <= now_unix_s {
            return Err(KeySetError::Expired { at: expires_at });
        }
        Ok(SignedKeySet {
            keys: claims.custom.keys.clone(),
            sequence: claims.custom.seq,
            expires_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{OrgId, TokenId},
        token::Claims,
    };
    use uuid::Uuid;

    const NOW: u64 = 1_800_000_000;

    fn signer(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    fn set() -> SignedKeySet {
        SignedKeySet {
            keys: vec![signer(1).verifying_key(), signer(2).verifying_key()],
            sequence: 7,
            expires_at: NOW + 10,
        }
    }

    fn pinned(seed: u8) -> VerifyingKeys {
        VerifyingKeys::new([signer(seed).verifying_key()]).unwrap()
    }

    #[test]
    fn signed_key_set_verifies_to_the_same() {
        let signed = signer(9).sign_key_set(&set()).unwrap();
        assert_eq!(pinned(9).verify_key_set(&signed, NOW), Ok(set()));
        let x = signer(9).verifying_key().x;
        let key = VerifyingKey::from_base64url(&x);
        assert_eq!(key, Ok(signer(9).verifying_key()));
        for wrong in ["", "AAAA", &x[1..]] {
            let refused = VerifyingKey::from_base64url(wrong);
            assert_eq!(refused, Err(AccessError::BadKey), "{wrong}");
        }
    }

    #[test]
    fn foreign_changed_and_expired_key_sets_are_refused() {
        fn check(text: &str, now: u64, expect: KeySetError) {
            assert_eq!(pinned(9).verify_key_set(text, now), Err(expect), "{text}");
        }
        let signed = signer(9).sign_key_set(&set()).unwrap();
        let (expires, foreign) = (set().expires_at, signer(8).sign_key_set(&set()).unwrap());
        check(&signed, expires, KeySetError::Expired { at: expires });
        check(&foreign, NOW, KeySetError::UnknownKey);
        // The payload of one set under the signature of another.
        let mut other = set();
        other.sequence += 1;
        let other = signer(9).sign_key_set(&other).unwrap();
        let (head, _) = other.rsplit_once('.').unwrap();
        let (_, signature) = signed.rsplit_once('.').unwrap();
        check(
            &format!("{head}.{signature}"),
            NOW,
            KeySetError::BadSignature,
        );
        check("", NOW, KeySetError::Malformed);
        check("[]", NOW, KeySetError::Malformed);
    }

    #[test]
    fn access_token_is_no_key_set_and_key_set_no_token() {
        let claims = Claims {
            id: TokenId::from_uuid(Uuid::from_u128(1)),
            org: OrgId::from_uuid(Uuid::from_u128(2)),
            subject: "device:toy-1".parse().unwrap(),
            scopes: "device".parse().unwrap(),
            restrictions: None,
            issued_at: NOW,
            expires_at: NOW + 10,
        };
        let token = signer(9).sign(&claims).unwrap();
        let refused = pinned(9).verify_key_set(&token, NOW);
        assert_eq!(refused, Err(KeySetError::Malformed));
        let signed = signer(9).sign_key_set(&set()).unwrap();
        let refused = pinned(9).verify(&signed, NOW);
        assert_eq!(refused, Err(AccessError::Malformed));
    }
}
