//! Sealed texts: answers that hold a secret, with what only their caller has, the credential itself; and what the
//! installation must read again, with a key of its own.
//! Never: anything kept that opens an answer without its credential.

use http::{HeaderMap, header};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{ExposeSecret, SecretBox};
use sha2::{Digest, Sha256};

/// What the key is for, so that it is no other hash of the same credential.
const PURPOSE: &[u8] = b"switchboard idempotent answer";

/// Closes and opens the answers to one caller's requests under one idempotency key.
pub(crate) struct Seal([u8; 32]);

impl Seal {
    /// The database knows a credential by its plain hash, if at all, so nothing in it leads to this one. A credential
    /// is random and long, so a fast hash is as good as a slow one.
    pub(crate) fn new(headers: &HeaderMap, key: &str) -> Self {
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

    /// A seal that whoever has this key has.
    pub(crate) fn with_key(key: &SecretBox<Vec<u8>>) -> Self {
        Self(Sha256::digest(key.expose_secret()).into())
    }

    fn key(&self) -> Option<LessSafeKey> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0).ok()?;
        Some(LessSafeKey::new(key))
    }

    /// A random number, and the text that nobody reads without this seal.
    pub(crate) fn close(&self, text: &[u8]) -> Option<Vec<u8>> {
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

    /// The text, if this is the seal that it was closed with.
    pub(crate) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self
            .key()?
            .open_in_place(nonce, Aad::empty(), &mut text)
            .ok()?
            .len();
        text.truncate(opened);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_credential_opens() {
        let seal = |credential: &str, key: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, credential.parse().unwrap());
            Seal::new(&headers, key)
        };
        let sealed = seal("Bearer a", "k").close(b"secret").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        let open = |seal: Seal| seal.open(&sealed);
        assert_eq!(open(seal("Bearer a", "k")).as_deref(), Some(&b"secret"[..]));
        assert_eq!(open(seal("Bearer b", "k")), None);
        assert_eq!(open(seal("Bearer a", "l")), None);
        assert_eq!(seal("Bearer a", "k").open(b"short"), None);
    }
}
