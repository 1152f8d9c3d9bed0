//! The keys that tokens are signed with: the first one is made when it is needed.
//! Never: a private key outside this process and its database.

use secrecy::{ExposeSecret, SecretBox};
use switchboard_protocol::access::{SigningKey, VerifyingKey};
use switchboard_store::{NewSigningKey, Store, StoreError, StoredSigningKey};

/// The keys in force.
pub(crate) struct Keys {
    /// The one that signs.
    pub(crate) signing: SigningKey,
    /// All that may verify a living token.
    pub(crate) verifying: Vec<VerifyingKey>,
}

/// Reads the keys, and makes the first one if there is none. Replicas that start together agree on one.
pub(crate) async fn load(store: &Store) -> Result<Keys, StoreError> {
    let stored = store.signing_keys().await?;
    if let Some(keys) = Keys::among(&stored) {
        return Ok(keys);
    }
    let seed: [u8; 32] = rand::random();
    let kid = SigningKey::from_seed(&seed).verifying_key().kid;
    let made = NewSigningKey {
        kid,
        seed: SecretBox::new(Box::new(seed)),
    };
    if store.add_first_signing_key(&made).await? {
        tracing::info!(
            key.id = made.kid,
            "a key to sign access tokens with was made"
        );
    }
    let stored = store.signing_keys().await?;
    Keys::among(&stored).ok_or(StoreError::Unavailable(None))
}

impl Keys {
    fn among(stored: &[StoredSigningKey]) -> Option<Self> {
        let grow = |key: &StoredSigningKey| SigningKey::from_seed(key.seed.expose_secret());
        let signing = stored
            .iter()
            .find(|key| key.retired_at.is_none())
            .map(grow)?;
        let verifying = stored.iter().map(|key| grow(key).verifying_key()).collect();
        Some(Self { signing, verifying })
    }
}
