//! Verifies access tokens with the published keys.

use std::time::Duration;

use arc_swap::ArcSwapOption;
use switchboard_protocol::{
    id::TokenId,
    token::{AccessError, Claims, VerifyingKey, VerifyingKeys},
};
use switchboard_runtime::clock::unix_time;
use tokio::sync::{Notify, broadcast};

use crate::{backend::KeySet, bus::Bus, error::BusError, transport::Message};

/// Revocations that a subscriber may lag behind.
const REVOCATION_CAPACITY: usize = 256;

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// This node has not received the control plane's keys yet, so it cannot verify any token.
    #[error("this node has not received the keys to verify tokens yet")]
    NoKeys,
    /// The token is invalid, expired or revoked.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// The public keys and the revoked tokens that this node knows.
///
/// The control plane publishes both to the backend; every node keeps a copy:
///
/// ```text
///   control: publish_keys, revoke ─► backend (keys, revoked, version)
///        │                              ▲ every 2 s, after KeysChanged and after a reconnect:
///        │                              │ read if the version has changed
///        └─ KeysChanged, TokenRevoked ─► node: no keys ──replace──► verifies tokens
/// ```
///
/// - Published keys replace the former ones. Revocations are added, and stay until the token has
///   expired.
/// - A revocation reaches connected nodes immediately by broadcast. A node that missed the
///   broadcast reads it within 2 s.
/// - Nodes verify tokens without any request. While the bus is not reachable they continue with
///   the keys that they have.
/// - Subscribers receive each revocation once ([`Bus::revocations`]), so that an edge can close
///   the connection of a revoked token.
///
/// Invariant: no token is accepted before keys were received.
pub(crate) struct TokenKeys {
    keys: ArcSwapOption<VerifyingKeys>,
    revoked: papaya::HashMap<TokenId, u64>,
    revocations: broadcast::Sender<TokenId>,
    keys_received: Notify,
}

impl TokenKeys {
    pub(crate) fn new() -> Self {
        Self {
            keys: ArcSwapOption::empty(),
            revoked: papaya::HashMap::new(),
            revocations: broadcast::channel(REVOCATION_CAPACITY).0,
            keys_received: Notify::new(),
        }
    }

    fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        let keys = self.keys.load();
        let keys = keys.as_ref().ok_or(TokenError::NoKeys)?;
        let claims = keys.verify(token, unix_time().as_secs())?;
        if self.is_revoked(claims.id) {
            return Err(AccessError::Revoked.into());
        }
        Ok(claims)
    }

    fn is_revoked(&self, token: TokenId) -> bool {
        self.revoked.pin().contains_key(&token)
    }

    /// Replaces the keys, if the set has any, and adds its revocations.
    pub(crate) fn replace(&self, set: KeySet) -> Result<(), AccessError> {
        if !set.keys.is_empty() {
            self.keys.store(Some(VerifyingKeys::new(set.keys)?.into()));
            self.keys_received.notify_waiters();
        }
        for (token, expires_at) in set.revoked {
            self.revoke(token, expires_at);
        }
        Ok(())
    }

    pub(crate) fn revoke(&self, token: TokenId, expires_at: u64) {
        if expires_at > unix_time().as_secs()
            && self.revoked.pin().insert(token, expires_at).is_none()
        {
            // There may be no subscriber; the set decides.
            let _ = self.revocations.send(token);
        }
    }

    /// Removes revocations of tokens that have expired.
    pub(crate) fn remove_expired(&self) {
        let now = unix_time().as_secs();
        self.revoked.pin().retain(|_, expires_at| *expires_at > now);
    }
}

impl Bus {
    /// Verifies an access token: signature, issuer, audience, expiry, revocation.
    ///
    /// # Errors
    /// [`TokenError`] when one of these fails, or when this node has no keys yet.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        self.0.token_keys.verify(token)
    }

    /// Whether this node has received the keys to verify tokens.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.0.token_keys.keys.load().is_some()
    }

    /// Waits until this node has received the keys to verify tokens.
    ///
    /// # Errors
    /// [`BusError::Timeout`] when that takes longer than `limit`.
    pub async fn wait_for_keys(&self, limit: Duration) -> Result<(), BusError> {
        let received = async {
            loop {
                let keys_received = self.0.token_keys.keys_received.notified();
                if self.has_keys() {
                    return;
                }
                keys_received.await;
            }
        };
        let received = tokio::time::timeout(limit, received).await;
        received.map_err(|_| BusError::Timeout(limit))
    }

    /// Subscribes to revocations. A subscriber that lags must check all tokens with
    /// [`Bus::is_revoked`].
    #[must_use]
    pub fn revocations(&self) -> broadcast::Receiver<TokenId> {
        self.0.token_keys.revocations.subscribe()
    }

    /// Whether a token is known to be revoked.
    #[must_use]
    pub fn is_revoked(&self, token: TokenId) -> bool {
        self.0.token_keys.is_revoked(token)
    }

    /// Publishes the keys to all nodes, in place of the former ones, and adds revoked tokens with
    /// their expiry in Unix seconds. Earlier revocations stay.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn publish_keys(
        &self,
        keys: Vec<VerifyingKey>,
        revoked: Vec<(TokenId, u64)>,
    ) -> Result<(), BusError> {
        let node = &self.0;
        node.backend.publish_keys(Some(&keys), &revoked).await?;
        node.keys_changed.notify_one();
        node.broadcast(&Message::KeysChanged).await
    }

    /// Revokes a token on all nodes.
    ///
    /// # Errors
    /// When the bus is not reachable; some nodes may know the revocation then.
    pub async fn revoke(&self, token: TokenId, expires_at_unix_s: u64) -> Result<(), BusError> {
        let node = &self.0;
        node.token_keys.revoke(token, expires_at_unix_s);
        let revoked = [(token, expires_at_unix_s)];
        node.backend.publish_keys(None, &revoked).await?;
        node.broadcast(&Message::TokenRevoked {
            token,
            expires_at: expires_at_unix_s,
        })
        .await
    }
}
