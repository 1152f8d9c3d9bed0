//! The secret of an API key.
//! Invariant: `Debug` does not reveal it.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// The prefix of every secret, so that scanners find leaked ones.
const PREFIX: &str = "sb_";
/// 256 bits as base64url without padding.
const RANDOM_CHARS: usize = 43;
/// How much of a secret may be displayed: enough to recognise it, too little to guess the rest.
const DISPLAY_BYTES: usize = PREFIX.len() + 8;

/// `sb_` and 43 characters of base64url, 256 bits of randomness.
#[derive(Debug, Clone)]
pub struct ApiKeySecret(SecretString);

impl ApiKeySecret {
    /// Generates a secret.
    #[must_use]
    pub fn generate() -> Self {
        let random: [u8; 32] = rand::random();
        Self(SecretString::from(format!(
            "{PREFIX}{}",
            BASE64_URL_SAFE_NO_PAD.encode(random)
        )))
    }

    /// Parses a secret; `None` if the text does not have its form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(PREFIX)?;
        let clean = random
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        (random.len() == RANDOM_CHARS && clean).then(|| Self(SecretString::from(text)))
    }

    /// The hash by which the store finds the key. The secret is random, so a fast hash suffices.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.expose_secret()).into()
    }

    /// The beginning of the secret, for display.
    #[must_use]
    pub fn display_prefix(&self) -> &str {
        self.0
            .expose_secret()
            .get(..DISPLAY_BYTES)
            .unwrap_or(PREFIX)
    }
}

impl ExposeSecret<str> for ApiKeySecret {
    fn expose_secret(&self) -> &str {
        self.0.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_form_is_checked() {
        fn check(text: &str, valid: bool) {
            assert_eq!(ApiKeySecret::parse(text).is_some(), valid, "{text}");
        }
        let body = "x".repeat(RANDOM_CHARS);
        check(&format!("sb_{body}"), true);
        check(&format!("sk_{body}"), false);
        check(&format!("sb_{body}x"), false);
        check(&format!("sb_{}", "é".repeat(20)), false);
        check(&format!("sb_{}.", "x".repeat(RANDOM_CHARS - 1)), false);
        check("sb_", false);
        check("", false);
    }

    #[test]
    fn generated_secrets_are_valid_and_differ() {
        let (one, two) = (ApiKeySecret::generate(), ApiKeySecret::generate());
        assert_ne!(one.hash(), two.hash());
        let again = ApiKeySecret::parse(one.expose_secret()).unwrap();
        assert_eq!(again.hash(), one.hash());
        assert_eq!(one.display_prefix().len(), 11);
        assert!(!format!("{one:?}").contains(one.display_prefix()));
    }
}
