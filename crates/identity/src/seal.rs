//! Authenticated encryption with a key that this installation shares: of stored secrets, and of the
//! state that browsers carry.
//!
//! Invariant: what is sealed for a credential cannot be unsealed with the database alone.

use ring::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use secrecy::{ExposeSecret, SecretBox};
use sha2::{Digest, Sha256};

/// Separates this hash of a credential from any other.
const PURPOSE: &[u8] = b"switchboard idempotent answer";

/// A key that seals and unseals texts.
pub struct Seal {
    key: [u8; 32],
    algorithm: &'static Algorithm,
}

impl Seal {
    /// Creates the seal for responses to this credential under this idempotency key. The database has
    /// the plain hash of a credential at most, which does not lead to this hash. Credentials are long
    /// and random, so a fast hash is sufficient.
    #[must_use]
    pub fn for_credential(credential: &[u8], key: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [PURPOSE, credential, key.as_bytes()] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self::stored(hash.finalize().into())
    }

    /// Creates the seal of this sealing key, for what is stored.
    #[must_use]
    pub fn with_key(key: &SecretBox<Vec<u8>>) -> Self {
        Self::stored(Sha256::digest(key.expose_secret()).into())
    }

    /// Creates the seal of this sealing key, for what browsers carry.
    #[must_use]
    pub fn for_browsers(key: &SecretBox<Vec<u8>>) -> Self {
        Self {
            key: Sha256::digest(key.expose_secret()).into(),
            algorithm: &AES_256_GCM,
        }
    }

    const fn stored(key: [u8; 32]) -> Self {
        Self {
            key,
            algorithm: &CHACHA20_POLY1305,
        }
    }

    fn key(&self) -> Option<LessSafeKey> {
        let key = UnboundKey::new(self.algorithm, &self.key).ok()?;
        Some(LessSafeKey::new(key))
    }

    /// Returns a random nonce, followed by the encrypted text. `None` if the text is too long.
    #[must_use]
    pub fn seal(&self, text: &[u8]) -> Option<Vec<u8>> {
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

    /// Returns the text, if it was sealed with this key.
    #[must_use]
    pub fn unseal(&self, sealed: &[u8]) -> Option<Vec<u8>> {
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
        let seal = |credential: &str, key: &str| Seal::for_credential(credential.as_bytes(), key);
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

    #[test]
    fn key_for_what_is_stored_opens_nothing_of_browsers() {
        let key = SecretBox::new(Box::new(vec![1; 32]));
        let (stored, carried) = (Seal::with_key(&key), Seal::for_browsers(&key));
        let sealed = carried.seal(b"session").unwrap();
        assert_eq!(stored.unseal(&sealed), None);
        assert_eq!(carried.unseal(&sealed).as_deref(), Some(&b"session"[..]));
    }
}
