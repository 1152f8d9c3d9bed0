//! The key that seals cookies: the same on all nodes, read from the database once.
//!
//! Invariant: cookies that are not sealed by this installation cost at most one query a second.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret as _, SecretBox};
use switchboard_store::{Store, StoreError};
use tokio::sync::Mutex;

use super::Refusal;
use crate::Seal;

/// The purpose of the sealing key.
const PURPOSE: &str = "console sessions";
/// Between two reads of the key, in case it was created or replaced.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Keys that open cookies: the current one and its predecessor.
const MAX_KEYS: usize = 2;
/// Longer than any cookie; protects the decoder.
const MAX_SEALED_BYTES: usize = 512;

/// The keys that this process knows.
pub(super) struct SessionKeys {
    store: Store,
    /// The newest first.
    seals: ArcSwap<Vec<Arc<KnownKey>>>,
    /// When the key was read, and whether it could be. One request reads it for all.
    last_read: Mutex<Option<(Instant, bool)>>,
}

struct KnownKey {
    seal: Seal,
    /// To recognise it.
    bytes: SecretBox<Vec<u8>>,
}

impl SessionKeys {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            seals: ArcSwap::default(),
            last_read: Mutex::new(None),
        }
    }

    /// Seals the content of a cookie. The first one creates the key.
    pub(super) async fn seal(&self, content: &[u8]) -> Result<String, Refusal> {
        if self.seals.load().is_empty() {
            self.create().await?;
        }
        let seals = self.seals.load();
        let newest = seals.first().ok_or(Refusal::Unavailable)?;
        let sealed = newest.seal.seal(content).ok_or(Refusal::Unavailable)?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The content of a cookie, if this installation has sealed it.
    pub(super) async fn open(&self, sealed: &str) -> Result<Option<Vec<u8>>, Refusal> {
        if sealed.len() > MAX_SEALED_BYTES {
            return Ok(None);
        }
        let Ok(sealed) = BASE64_URL_SAFE_NO_PAD.decode(sealed) else {
            return Ok(None);
        };
        if let Some(content) = self.unseal(&sealed) {
            return Ok(Some(content));
        }
        self.refresh().await?;
        Ok(self.unseal(&sealed))
    }

    fn unseal(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let seals = self.seals.load();
        seals.iter().find_map(|key| key.seal.unseal(sealed))
    }

    async fn create(&self) -> Result<(), Refusal> {
        let fresh = SecretBox::new(Box::new(rand::random::<[u8; 32]>()));
        let created = self.store.sealing_key(PURPOSE, &fresh).await;
        self.adopt(created.map_err(|error| unreadable(&error))?);
        Ok(())
    }

    /// Reads the key, unless that was done recently. Without a key, a request waits for the one that
    /// reads it.
    async fn refresh(&self) -> Result<(), Refusal> {
        let has_key = !self.seals.load().is_empty();
        let mut last_read = if has_key {
            match self.last_read.try_lock() {
                Ok(last_read) => last_read,
                Err(_) => return Ok(()),
            }
        } else {
            self.last_read.lock().await
        };
        if let Some((at, is_read)) = *last_read
            && at.elapsed() < READ_INTERVAL
        {
            return if is_read || has_key {
                Ok(())
            } else {
                Err(Refusal::Unavailable)
            };
        }
        let read = self.store.existing_sealing_key(PURPOSE).await;
        *last_read = Some((Instant::now(), read.is_ok()));
        match read {
            Ok(Some(bytes)) => self.adopt(bytes),
            Ok(None) => {}
            // The known ones remain in use.
            Err(error) if has_key => {
                unreadable(&error);
            }
            Err(error) => return Err(unreadable(&error)),
        }
        Ok(())
    }

    fn adopt(&self, bytes: SecretBox<Vec<u8>>) {
        let known = self.seals.load_full();
        let newest = known.first();
        if newest.is_some_and(|key| key.bytes.expose_secret() == bytes.expose_secret()) {
            return;
        }
        let newest = Arc::new(KnownKey {
            seal: Seal::for_browsers(&bytes),
            bytes,
        });
        let others = known.iter().take(MAX_KEYS - 1).cloned();
        let seals = std::iter::once(newest).chain(others).collect();
        self.seals.store(Arc::new(seals));
    }
}

fn unreadable(error: &StoreError) -> Refusal {
    tracing::warn!(
        error = error.report(),
        "the key that seals sessions cannot be read"
    );
    Refusal::Unavailable
}
