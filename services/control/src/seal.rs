//! Authenticated encryption of stored secrets. Stored responses are sealed with the credential of
//! their caller; secrets that the installation needs itself are sealed with a key of its own.
//!
//! Invariant: nothing in the database can unseal a response without its credential.

use http::{HeaderMap, header};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{ExposeSecret, SecretBox};
use sha2::{Digest, Sha256};

/// Separates this hash of a credential from any other.
const PURPOSE: &[u8] = b"switchboard idempotent answer";

/// A key that seals and unseals texts.
pub(crate) struct Seal([u8; 32]);

impl Seal {
    /// The seal for responses to this credential under this idempotency key. The database has the
    /// plain hash of a credential at most, which does not lead to this hash. Credentials are long
    /// and random, so a fast hash is sufficient.
    pub(crate) fn for_credential(headers: &HeaderMap, key: &str) -> Self {
        let credential = headers
            .get(header::AUTHORIZATION)
            .map_or(&[][..], |value| value.as_bytes());
        let mut hash = Sha256::new();
        for part in [PURPOSE, credential, key.as_bytes()] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The seal with this key.
    pub(crate) fn with_key(key: &SecretBox<Vec<u8>>) -> Self {
        Self(Sha256::digest(key.expose_secret()).into())
    }

    fn key(&self) -> Option<LessSafeKey> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0).ok()?;
        Some(LessSafeKey::new(key))
    }

    /// A random nonce, followed by the encrypted text.
    pub(crate) fn seal(&self, text: &[u8]) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut sealed = text.to_vec();
        self.key()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                &mut sealed,
            )
            .ok()?;
        Some([nonce.as_slice(), &sealed].concat())
    }

    /// The text, if it was sealed with this key.
    pub(crate) fn unseal(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self
            .key()?
            .open_in_place(nonce, Aad::empty(), &mut text)
            .ok()?
            .len();
        text.truncate(length);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_credential_unseals() {
        let seal = |credential: &str, key: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, credential.parse().unwrap());
            Seal::for_credential(&headers, key)
        };
        let sealed = seal("Bearer a", "k").seal(b"secret").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        let unseal = |seal: Seal| seal.unseal(&sealed);
        assert_eq!(
            unseal(seal("Bearer a", "k")).as_deref(),
            Some(&b"secret"[..])
        );
        assert_eq!(unseal(seal("Bearer b", "k")), None);
        assert_eq!(unseal(seal("Bearer a", "l")), None);
        assert_eq!(seal("Bearer a", "k").unseal(b"short"), None);
    }
}
