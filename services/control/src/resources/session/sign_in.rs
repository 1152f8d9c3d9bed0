//! The one-time code of `switchboard up`, and the rate of sign-ins.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use switchboard_runtime::{budget::Owner, rate_limit::TokenBuckets};
use tokio::time::Instant;

/// How long a code is valid.
const TTL: Duration = Duration::from_mins(10);
/// Sign-ins of one address in a second.
const RATE_PER_S: NonZeroU32 = NonZeroU32::MIN;
/// Sign-ins of one address at once.
const BURST: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// The rate of sign-ins: it bounds the guesses of an address, and the queries for them.
pub(crate) fn rate() -> TokenBuckets<Owner> {
    TokenBuckets::new(RATE_PER_S, BURST)
}

/// A code that begins one session with an API key; cheap to clone. Only this process knows it.
#[derive(Clone)]
pub struct SignInCode(Arc<Mutex<Option<Code>>>);

struct Code {
    text: String,
    api_key: SecretString,
    expires_at: Instant,
}

impl SignInCode {
    /// Generates a code for this API key. Returns it with its text, which the process prints.
    #[must_use]
    pub fn generate(api_key: SecretString) -> (Self, String) {
        let text = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>());
        let code = Code {
            text: text.clone(),
            api_key,
            expires_at: Instant::now() + TTL,
        };
        (Self(Arc::new(Mutex::new(Some(code)))), text)
    }

    /// The API key, once. A wrong code leaves the right one valid.
    pub(super) fn take(&self, sent: &SecretString) -> Option<SecretString> {
        let mut slot = self.0.lock();
        let code = slot.take_if(|code| {
            let sent = sent.expose_secret().as_bytes();
            code.text.as_bytes().ct_eq(sent).into()
        })?;
        (Instant::now() < code.expires_at).then_some(code.api_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn code_is_valid_once_and_for_10_minutes() {
        let key = || SecretString::from("sb_key");
        let taken = |code: &SignInCode, text: &str| {
            let key = code.take(&text.into());
            key.map(|key| key.expose_secret().to_owned())
        };
        let (code, text) = SignInCode::generate(key());
        assert_eq!(text.len(), 22);
        assert_eq!(taken(&code, "wrong"), None);
        assert_eq!(taken(&code, ""), None);
        tokio::time::advance(TTL - Duration::from_secs(1)).await;
        assert_eq!(taken(&code.clone(), &text).as_deref(), Some("sb_key"));
        assert_eq!(taken(&code, &text), None);
        let (code, text) = SignInCode::generate(key());
        tokio::time::advance(TTL).await;
        assert_eq!(taken(&code, &text), None);
    }
}
