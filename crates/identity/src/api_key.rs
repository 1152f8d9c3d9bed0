//! The secret of an API key.
//! Invariant: `Debug` does not reveal it.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// The prefix of every secret, so that scanners find leaked ones.
const PREFIX: &str = "sb_";
/// The characters after the prefix.
const BODY_CHARS: usize = 43;
/// 216 bits as base64url.
const RANDOM_CHARS: usize = 36;
/// Marks a secret with a checksum. Secrets of earlier releases are 256 bits as base64url: their
/// last character stands for 4 bits, and is never this one.
const CHECKSUM_MARK: char = '1';
/// How much of a secret may be displayed: enough to recognise it, too little to guess the rest.
const DISPLAY_BYTES: usize = PREFIX.len() + 8;

/// `sb_` and 43 characters of base64url: 36 random ones, 6 of their checksum, and `1`.
///
/// The checksum is no secret: with it, mistyped and invented secrets are rejected without a query.
/// Secrets of earlier releases have none, and remain valid.
#[derive(Debug, Clone)]
pub struct ApiKeySecret(SecretString);

/// Whether a secret can be one that was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// It is that of the secret.
    Valid,
    /// The secret was never issued.
    Wrong,
    /// The secret has the form of an earlier release.
    Absent,
}

impl ApiKeySecret {
    /// Generates a secret.
    #[must_use]
    pub fn generate() -> Self {
        let random: [u8; 27] = rand::random();
        let random = BASE64_URL_SAFE_NO_PAD.encode(random);
        let checksum = checksum(&random);
        Self(SecretString::from(format!(
            "{PREFIX}{random}{checksum}{CHECKSUM_MARK}"
        )))
    }

    /// Parses a secret; `None` if the text does not have its form. [`Self::checksum`] is not checked.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let body = text.strip_prefix(PREFIX)?;
        let clean = body
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        (body.len() == BODY_CHARS && clean).then(|| Self(SecretString::from(text)))
    }

    /// Compares the checksum with the secret.
    #[must_use]
    pub fn checksum(&self) -> Checksum {
        let secret = self.0.expose_secret();
        let Some(body) = secret.strip_suffix(CHECKSUM_MARK) else {
            return Checksum::Absent;
        };
        let parts = body.strip_prefix(PREFIX);
        match parts.and_then(|body| body.split_at_checked(RANDOM_CHARS)) {
            Some((random, sent)) if checksum(random) == sent => Checksum::Valid,
            _ => Checksum::Wrong,
        }
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

/// 36 bits of the SHA-256 of the random characters, as base64url.
fn checksum(random: &str) -> String {
    let hash = Sha256::new().chain_update(PREFIX).chain_update(random);
    let mut checksum = BASE64_URL_SAFE_NO_PAD.encode(hash.finalize());
    checksum.truncate(BODY_CHARS - RANDOM_CHARS - 1);
    checksum
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
        let body = "x".repeat(BODY_CHARS);
        check(&format!("sb_{body}"), true);
        check(&format!("sk_{body}"), false);
        check(&format!("sb_{body}x"), false);
        check(&format!("sb_{}", "é".repeat(20)), false);
        check(&format!("sb_{}.", "x".repeat(BODY_CHARS - 1)), false);
        check("sb_", false);
        check("", false);
    }

    #[test]
    fn generated_secrets_are_valid_and_differ() {
        let (one, two) = (ApiKeySecret::generate(), ApiKeySecret::generate());
        assert_ne!(one.hash(), two.hash());
        let again = ApiKeySecret::parse(one.expose_secret()).unwrap();
        assert_eq!(again.hash(), one.hash());
        assert_eq!(one.checksum(), Checksum::Valid);
        assert_eq!(one.display_prefix().len(), 11);
        assert!(!format!("{one:?}").contains(one.display_prefix()));
    }

    #[test]
    fn changed_secret_has_a_wrong_checksum() {
        let secret = ApiKeySecret::generate();
        let text = secret.expose_secret();
        for at in PREFIX.len()..text.len() - 1 {
            let other = if text.as_bytes()[at] == b'A' {
                "B"
            } else {
                "A"
            };
            let mut changed = text.to_owned();
            changed.replace_range(at..=at, other);
            let changed = ApiKeySecret::parse(&changed).unwrap();
            assert_eq!(changed.checksum(), Checksum::Wrong, "{at}");
        }
    }

    #[test]
    fn secret_of_an_earlier_release_has_no_checksum() {
        for byte in 0..=255 {
            let text = format!("sb_{}", BASE64_URL_SAFE_NO_PAD.encode([byte; 32]));
            let secret = ApiKeySecret::parse(&text).unwrap();
            assert_eq!(secret.checksum(), Checksum::Absent, "{byte}");
        }
        // Nodes of different releases agree on this.
        let text = "sb_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let secret = format!("{text}{}1", checksum(&text[PREFIX.len()..]));
        assert_eq!(secret, FROZEN);
        let secret = ApiKeySecret::parse(FROZEN).unwrap();
        assert_eq!(secret.checksum(), Checksum::Valid);
    }

    const FROZEN: &str = "sb_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAqlrLB41";
}
