//! The keys that sign access tokens. The first key is generated on demand.
//!
//! Invariant: a private key never leaves this process and its database.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretBox};
use switchboard_protocol::{
    id::OrgId,
    token::{SigningKey, VerifyingKey},
};
use switchboard_store::{NewSigningKey, Store, StoreError, StoredSigningKey};
use tokio::sync::watch;

/// The current keys.
pub(crate) struct Keys {
    /// The key that signs.
    pub(crate) signing: SigningKey,
    /// All keys that may have signed a token that is still valid.
    pub(crate) verifying: Vec<VerifyingKey>,
}

/// The public keys that the workers of this process loaded last. Routes serve them without a query;
/// cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PublicKeys(watch::Sender<Option<Arc<[VerifyingKey]>>>);

impl PublicKeys {
    pub(crate) fn set(&self, keys: &[VerifyingKey]) {
        self.0.send_replace(Some(keys.into()));
    }

    /// `None` before they are loaded.
    pub(crate) fn get(&self) -> Option<Arc<[VerifyingKey]>> {
        self.0.borrow().clone()
    }
}

/// Loads the keys, and generates the first one if there is none. Replicas that start
/// at the same time agree on one. For a request of an organisation, the connection is charged to it.
pub(crate) async fn load(store: &Store, requester: Option<OrgId>) -> Result<Keys, StoreError> {
    let stored = match requester {
        Some(org) => store.signing_keys_for(org).await?,
        None => store.signing_keys().await?,
    };
    if let Some(keys) = Keys::from_stored(&stored) {
        return Ok(keys);
    }
    let seed: [u8; 32] = rand::random();
    let kid = SigningKey::from_seed(&seed).verifying_key().kid;
    let new = NewSigningKey {
        kid,
        seed: SecretBox::new(Box::new(seed)),
    };
    if store.add_first_signing_key(&new).await? {
        tracing::info!(key.id = new.kid, "signing key for access tokens generated");
    }
    let stored = store.signing_keys().await?;
    Keys::from_stored(&stored).ok_or(StoreError::Unavailable(None))
}

impl Keys {
    fn from_stored(stored: &[StoredSigningKey]) -> Option<Self> {
        let from_seed = |key: &StoredSigningKey| SigningKey::from_seed(key.seed.expose_secret());
        let signing = stored
            .iter()
            .find(|key| key.retired_at.is_none())
            .map(from_seed)?;
        let verifying = stored
            .iter()
            .map(|key| from_seed(key).verifying_key())
            .collect();
        Some(Self { signing, verifying })
    }
}
