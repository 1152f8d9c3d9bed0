//! Whose tokens are good: the public keys, less what was revoked.
//! Never: a token accepted before the keys have come.

use std::time::Duration;

use arc_swap::ArcSwapOption;
use switchboard_protocol::{
    access::{AccessError, Claims, VerifyingKey, VerifyingKeys},
    id::TokenId,
};
use switchboard_runtime::clock::unix_time;
use tokio::sync::{Notify, broadcast};

use crate::{backend::TrustRecord, bus::Bus, envelope::Envelope, error::BusError};

/// How many revocations a slow listener may be behind before it must look at everything.
const REVOCATION_BACKLOG: usize = 256;

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The control plane's keys have not come yet: nobody can be told from anybody.
    #[error("this node has no keys yet to check tokens with")]
    NoKeys,
    /// The token is bad, expired or revoked.
    #[error(transparent)]
    Access(#[from] AccessError),
}

pub(crate) struct Trust {
    keys: ArcSwapOption<VerifyingKeys>,
    revoked: papaya::HashMap<TokenId, u64>,
    announced: broadcast::Sender<TokenId>,
    keys_came: Notify,
}

impl Trust {
    pub(crate) fn new() -> Self {
        Self {
            keys: ArcSwapOption::empty(),
            revoked: papaya::HashMap::new(),
            announced: broadcast::channel(REVOCATION_BACKLOG).0,
            keys_came: Notify::new(),
        }
    }

    pub(crate) fn verify(&self, token: &str) -> Result<Claims, TrustError> {
        let keys = self.keys.load();
        let keys = keys.as_ref().ok_or(TrustError::NoKeys)?;
        let claims = keys.verify(token, unix_time().as_secs())?;
        if self.is_revoked(claims.id) {
            return Err(AccessError::Revoked.into());
        }
        Ok(claims)
    }

    pub(crate) fn is_revoked(&self, token: TokenId) -> bool {
        self.revoked.pin().contains_key(&token)
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.keys.load().is_some()
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<TokenId> {
        self.announced.subscribe()
    }

    /// Takes over a record: its keys replace ours, its revocations are added.
    pub(crate) fn adopt(&self, record: TrustRecord) -> Result<(), AccessError> {
        if !record.keys.is_empty() {
            self.keys
                .store(Some(VerifyingKeys::new(record.keys)?.into()));
            self.keys_came.notify_waiters();
        }
        for (token, expires_at) in record.revoked {
            self.revoke(token, expires_at);
        }
        Ok(())
    }

    pub(crate) fn revoke(&self, token: TokenId, expires_at: u64) {
        if expires_at > unix_time().as_secs()
            && self.revoked.pin().insert(token, expires_at).is_none()
        {
            // Nobody may be listening on this node; the set is what counts.
            let _ = self.announced.send(token);
        }
    }

    /// Forgets revocations of tokens that have expired anyway.
    pub(crate) fn sweep(&self) {
        let now = unix_time().as_secs();
        self.revoked.pin().retain(|_, expires_at| *expires_at > now);
    }
}

impl Bus {
    /// Checks an access token: signature, issuer, audience, expiry, revocation.
    ///
    /// # Errors
    /// [`TrustError`] says which of these, or that this node has no keys yet.
    pub fn verify(&self, token: &str) -> Result<Claims, TrustError> {
        self.0.trust.verify(token)
    }

    /// Whether the keys to check tokens with have come.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.0.trust.has_keys()
    }

    /// Waits until the keys to check tokens with have come.
    ///
    /// # Errors
    /// [`BusError::Timeout`] when that takes longer.
    pub async fn trusted(&self, within: Duration) -> Result<(), BusError> {
        let trusted = async {
            loop {
                let keys_came = self.0.trust.keys_came.notified();
                if self.has_keys() {
                    return;
                }
                keys_came.await;
            }
        };
        let trusted = tokio::time::timeout(within, trusted).await;
        trusted.map_err(|_| BusError::Timeout(within))
    }

    /// Tokens as they become revoked. A listener that lags must ask [`Bus::is_revoked`] of all.
    #[must_use]
    pub fn revocations(&self) -> broadcast::Receiver<TokenId> {
        self.0.trust.subscribe()
    }

    /// Whether a token is known to be revoked.
    #[must_use]
    pub fn is_revoked(&self, token: TokenId) -> bool {
        self.0.trust.is_revoked(token)
    }

    /// Tells every node whom to trust: these keys and no others, and none of these tokens
    /// (with their expiry in Unix seconds). Revocations told before stay.
    ///
    /// # Errors
    /// When the bus does not answer.
    pub async fn publish_trust(
        &self,
        keys: Vec<VerifyingKey>,
        revoked: Vec<(TokenId, u64)>,
    ) -> Result<(), BusError> {
        self.0.backend.entrust(Some(&keys), &revoked).await?;
        self.0.trust_changed.notify_one();
        self.0
            .backend
            .broadcast(self.0.pack(&Envelope::TrustChanged))
            .await
    }

    /// Tells every node that a token is revoked.
    ///
    /// # Errors
    /// When the bus does not answer; some nodes may know already.
    pub async fn revoke(&self, token: TokenId, expires_at_unix_s: u64) -> Result<(), BusError> {
        self.0.trust.revoke(token, expires_at_unix_s);
        self.0
            .backend
            .entrust(None, &[(token, expires_at_unix_s)])
            .await?;
        let revoked = Envelope::Revoked {
            token,
            expires_at: expires_at_unix_s,
        };
        self.0.backend.broadcast(self.0.pack(&revoked)).await
    }
}
