//! Secrets of webhooks, and signatures as defined by Standard Webhooks.
//!
//! Invariant: secrets are stored sealed.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use secrecy::SecretBox;
use switchboard_identity::Seal;
use switchboard_store::{Store, StoreError};

/// The prefix of an encoded secret.
const PREFIX: &str = "whsec_";
/// The purpose of the sealing key.
const PURPOSE: &str = "webhook secrets";
const BYTES: usize = 32;

/// The secret that signs the deliveries of a webhook.
pub(crate) struct Secret([u8; BYTES]);

impl Secret {
    pub(crate) fn generate() -> Self {
        Self(rand::random())
    }

    /// The form that the owner of the webhook gets.
    pub(crate) fn encoded(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(self.0))
    }

    /// The signature of one attempt.
    pub(super) fn sign(&self, id: &str, timestamp: i64, payload: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, format!("{id}.{timestamp}.{payload}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

/// Seals secrets with a key that all processes share.
pub(crate) struct SecretVault(Seal);

impl SecretVault {
    pub(crate) async fn load(store: &Store) -> Result<Self, StoreError> {
        let new = SecretBox::new(Box::new(rand::random::<[u8; 32]>()));
        let key = store.sealing_key(PURPOSE, &new).await?;
        Ok(Self(Seal::with_key(&key)))
    }

    pub(crate) fn seal(&self, secret: &Secret) -> Option<Vec<u8>> {
        self.0.seal(&secret.0)
    }

    /// The secret, if it was sealed with this key.
    pub(super) fn unseal(&self, sealed: &[u8]) -> Option<Secret> {
        let bytes = self.0.unseal(sealed)?;
        bytes.try_into().ok().map(Secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value is from the Python library of the specification.
    #[test]
    fn signature_matches_the_specification() {
        let secret = Secret(*b"0123456789abcdef0123456789ABCDEF");
        assert_eq!(
            secret.encoded(),
            "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY="
        );
        assert_eq!(
            secret.sign("whd_1", 1_700_000_000, "{\"a\": \"玩具\"}"),
            "v1,VgSJlpQiTY7DpFBhe8wZ0wmS9s0RfL0vsI0WmcPOKDM="
        );
    }
}
