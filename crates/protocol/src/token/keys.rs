//! Signs and verifies access tokens.
//!
//! Invariant: EdDSA is the only algorithm, only the given keys are accepted, and every claim but the
//! restrictions is required.

mod key_set;

use std::{collections::HashMap, fmt, str::FromStr, sync::Arc};

use chrono::{DateTime, Utc};
use ed25519_dalek as dalek;
use jwt_compact::{
    AlgorithmExt, Claims as JwtClaims, Header, UntrustedToken, ValidationError, alg::Ed25519,
    jwk::JsonWebKey,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{AccessError, Claims, Restrictions, Scopes, Subject};
use crate::id::{OrgId, TokenId};

pub use key_set::{KeySetError, SignedKeySet};

const ISSUER: &str = "switchboard";
const AUDIENCE: &str = "switchboard";
/// The audience of a token with restrictions: nodes of releases that do not know them refuse it.
const RESTRICTED_AUDIENCE: &str = "switchboard restricted";
/// The audience of a token with a label among its restrictions, for the same reason.
const LABELLED_AUDIENCE: &str = "switchboard labelled";
/// Our own tokens have some 400 bytes, and up to 3,000 with restrictions.
const MAX_TOKEN_BYTES: usize = 4_096;
/// The prefix of the public key's SHA-256 that is its id.
const KID_BYTES: usize = 8;

/// The id of a key: the first 8 bytes of the public key's SHA-256. Written as 16 lower-case
/// hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; KID_BYTES]);

impl KeyId {
    fn compute(key: &dalek::VerifyingKey) -> Self {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        Self([a, b, c, d, e, f, g, h])
    }

    /// Creates the id of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KID_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; KID_BYTES] {
        self.0
    }
}

impl FromStr for KeyId {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let id = u64::from_str_radix(text, 16).map_err(|_| AccessError::BadKey)?;
        let id = Self(id.to_be_bytes());
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(AccessError::BadKey)
        }
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// An Ed25519 private key. Wiped from memory when dropped, and absent from `Debug` output. (I16)
pub struct SigningKey {
    secret: dalek::SigningKey,
    kid: String,
}

impl SigningKey {
    /// Creates the key of this seed.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let secret = dalek::SigningKey::from_bytes(seed);
        let kid = KeyId::compute(&secret.verifying_key()).to_string();
        Self { secret, kid }
    }

    /// Returns the public half.
    #[must_use]
    pub fn verifying_key(&self) -> VerifyingKey {
        let jwk = serde_json::to_value(JsonWebKey::from(&self.secret.verifying_key()));
        let x = jwk
            .ok()
            .and_then(|jwk| jwk.get("x")?.as_str().map(str::to_owned));
        VerifyingKey {
            kid: self.kid.clone(),
            x: x.unwrap_or_default(),
        }
    }

    /// Signs a token with these claims.
    ///
    /// # Errors
    /// When a time is out of the range of dates.
    pub fn sign(&self, claims: &Claims) -> Result<String, AccessError> {
        let mut jwt = JwtClaims::new(CustomClaims {
            iss: ISSUER.into(),
            aud: audience(claims.restrictions.as_deref()).into(),
            sub: claims.subject.clone(),
            org: claims.org,
            scope: claims.scopes.to_string(),
            jti: claims.id,
            restrictions: claims.restrictions.as_deref().cloned(),
        });
        jwt.issued_at = Some(date(claims.issued_at)?);
        jwt.expiration = Some(date(claims.expires_at)?);
        let header = Header::empty()
            .with_token_type("JWT")
            .with_key_id(self.kid.as_str());
        Ed25519
            .token(&header, &jwt, &self.secret)
            .map_err(|_| AccessError::Malformed)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

/// The public half of a signing key; in JSON a JWK of RFC 8037.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Jwk", from = "Jwk")]
pub struct VerifyingKey {
    /// The key id: the first 16 hexadecimal digits of the key's SHA-256.
    pub kid: String,
    /// The key in base64url.
    pub x: String,
}

impl VerifyingKey {
    fn decode_point(&self) -> Result<dalek::VerifyingKey, AccessError> {
        let jwk = serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "x": self.x });
        let jwk: JsonWebKey<'_> = serde_json::from_value(jwk).map_err(|_| AccessError::BadKey)?;
        dalek::VerifyingKey::try_from(&jwk).map_err(|_| AccessError::BadKey)
    }

    fn decode(&self) -> Result<(KeyId, dalek::VerifyingKey), AccessError> {
        let key = self.decode_point()?;
        let id = KeyId::compute(&key);
        if id.to_string() == self.kid {
            Ok((id, key))
        } else {
            Err(AccessError::BadKey)
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Jwk {
    kty: Kty,
    crv: Crv,
    kid: String,
    x: String,
}

#[derive(Serialize, Deserialize)]
enum Kty {
    #[serde(rename = "OKP")]
    Okp,
}

#[derive(Serialize, Deserialize)]
enum Crv {
    Ed25519,
}

impl From<VerifyingKey> for Jwk {
    fn from(VerifyingKey { kid, x }: VerifyingKey) -> Self {
        Self {
            kty: Kty::Okp,
            crv: Crv::Ed25519,
            kid,
            x,
        }
    }
}

impl From<Jwk> for VerifyingKey {
    fn from(Jwk { kid, x, .. }: Jwk) -> Self {
        Self { kid, x }
    }
}

/// The keys that tokens may be signed with; several during a key rotation.
#[derive(Debug, Clone, Default)]
pub struct VerifyingKeys {
    by_id: HashMap<KeyId, dalek::VerifyingKey>,
}

impl VerifyingKeys {
    /// Creates the set of accepted keys.
    ///
    /// # Errors
    /// When one of them is not an Ed25519 key with its own id.
    pub fn new(keys: impl IntoIterator<Item = VerifyingKey>) -> Result<Self, AccessError> {
        let decoded = keys.into_iter().map(|key| key.decode());
        Ok(Self {
            by_id: decoded.collect::<Result<_, _>>()?,
        })
    }

    /// Whether tokens may be signed with this key.
    #[must_use]
    pub fn contains(&self, key: KeyId) -> bool {
        self.by_id.contains_key(&key)
    }

    /// Whether every key of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.by_id.keys().all(|key| other.contains(*key))
    }

    /// Verifies signature, issuer, audience, expiry and shape. The caller checks revocation and
    /// [`Claims::check_lifetime`].
    ///
    /// # Errors
    /// When the token is invalid at `now_unix_s`. There is no leeway.
    pub fn verify(&self, token: &str, now_unix_s: u64) -> Result<Claims, AccessError> {
        self.verify_with_key(token, now_unix_s)
            .map(|(claims, _)| claims)
    }

    /// Verifies as [`Self::verify`], and returns the key that signed.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn verify_with_key(
        &self,
        token: &str,
        now_unix_s: u64,
    ) -> Result<(Claims, KeyId), AccessError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AccessError::Malformed);
        }
        let token = UntrustedToken::new(token).map_err(|_| AccessError::Malformed)?;
        let kid = token
            .header()
            .key_id
            .as_deref()
            .ok_or(AccessError::Malformed)?;
        let id = kid.parse::<KeyId>().map_err(|_| AccessError::UnknownKey)?;
        let key = self.by_id.get(&id).ok_or(AccessError::UnknownKey)?;
        let validated = Ed25519
            .validator::<CustomClaims>(key)
            .validate(&token)
            .map_err(|error| match error {
                ValidationError::InvalidSignature => AccessError::BadSignature,
                _ => AccessError::Malformed,
            })?;
        Ok((read_claims(validated.claims(), now_unix_s)?, id))
    }
}

/// Our own claims. The JWT crate defines `exp` and `iat`.
#[derive(Serialize, Deserialize)]
struct CustomClaims {
    iss: String,
    aud: String,
    sub: Subject,
    org: OrgId,
    scope: String,
    jti: TokenId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restrictions: Option<Restrictions>,
}

fn audience(restrictions: Option<&Restrictions>) -> &'static str {
    match restrictions {
        None => AUDIENCE,
        Some(restrictions) if restrictions.device_label.is_none() => RESTRICTED_AUDIENCE,
        Some(_) => LABELLED_AUDIENCE,
    }
}

fn read_claims(jwt: &JwtClaims<CustomClaims>, now_unix_s: u64) -> Result<Claims, AccessError> {
    let custom = &jwt.custom;
    if custom.iss != ISSUER {
        return Err(AccessError::WrongIssuer);
    }
    if custom.aud != audience(custom.restrictions.as_ref()) {
        return Err(AccessError::WrongAudience);
    }
    let expires_at = unix_s(jwt.expiration)?;
    if expires_at <= now_unix_s {
        return Err(AccessError::Expired { at: expires_at });
    }
    Ok(Claims {
        id: custom.jti,
        org: custom.org,
        subject: custom.sub.clone(),
        scopes: custom
            .scope
            .parse::<Scopes>()
            .map_err(|_| AccessError::Malformed)?,
        restrictions: custom.restrictions.clone().map(Arc::new),
        issued_at: unix_s(jwt.issued_at)?,
        expires_at,
    })
}

fn date(unix_s: u64) -> Result<DateTime<Utc>, AccessError> {
    let seconds = i64::try_from(unix_s).ok();
    seconds
        .and_then(|seconds| DateTime::from_timestamp(seconds, 0))
        .ok_or(AccessError::Malformed)
}

fn unix_s(date: Option<DateTime<Utc>>) -> Result<u64, AccessError> {
    let seconds = date
        .map(|date| date.timestamp())
        .ok_or(AccessError::Malformed)?;
    u64::try_from(seconds).map_err(|_| AccessError::Malformed)
}

#[cfg(test)]
mod tests;
