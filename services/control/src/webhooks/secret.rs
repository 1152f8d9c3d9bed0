//! Secrets of webhooks, and what is signed with them, as Standard Webhooks has it.
//! Never: a secret stored in the clear, or a signature over anything but what is sent.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use secrecy::SecretBox;
use switchboard_store::{Store, StoreError};

use crate::seal::Seal;

/// What a secret begins with when it is shown.
const PREFIX: &str = "whsec_";
/// What the key is for that secrets are sealed with.
const PURPOSE: &str = "webhook secrets";
const BYTES: usize = 32;

/// What a webhook's deliveries are signed with.
pub(super) struct Secret([u8; BYTES]);

impl Secret {
    pub(super) fn generate() -> Self {
        Self(rand::random())
    }

    /// As its owner is shown it.
    pub(super) fn shown(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(self.0))
    }

    /// The signature of one attempt.
    pub(super) fn sign(&self, id: &str, timestamp: i64, payload: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, format!("{id}.{timestamp}.{payload}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

/// Seals secrets, with a key that all processes on this database share.
pub(super) struct Vault(Seal);

impl Vault {
    pub(super) async fn open(store: &Store) -> Result<Self, StoreError> {
        let fresh = SecretBox::new(Box::new(rand::random::<[u8; 32]>()));
        let key = store.sealing_key(PURPOSE, &fresh).await?;
        Ok(Self(Seal::with_key(&key)))
    }

    pub(super) fn close(&self, secret: &Secret) -> Option<Vec<u8>> {
        self.0.close(&secret.0)
    }

    /// The secret, if it was sealed here.
    pub(super) fn read(&self, sealed: &[u8]) -> Option<Secret> {
        let bytes = self.0.open(sealed)?;
        bytes.try_into().ok().map(Secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with the specification's own library for Python.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = Secret(*b"0123456789abcdef0123456789ABCDEF");
        assert_eq!(
            secret.shown(),
            "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY="
        );
        assert_eq!(
            secret.sign("whd_1", 1_700_000_000, "{\"a\": \"玩具\"}"),
            "v1,VgSJlpQiTY7DpFBhe8wZ0wmS9s0RfL0vsI0WmcPOKDM="
        );
    }
}
