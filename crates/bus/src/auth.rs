//! Verifies access tokens with the published keys.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use switchboard_protocol::{
    id::{OrgId, TokenId},
    token::{AccessError, Claims, KeyId, VerifyingKey, VerifyingKeys},
};
use switchboard_runtime::clock::unix_time;
use tokio::sync::{Notify, watch};

use crate::{backend::KeySet, bus::Bus, error::BusError, transport::Message};

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

/// What has to be checked again of a token that is used for longer than one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenCheck {
    /// The token.
    pub id: TokenId,
    /// The organisation that it belongs to.
    pub org: OrgId,
    /// The key that signed it.
    pub key: KeyId,
    /// Unix seconds.
    pub expires_at: u64,
}

/// The public keys, the revoked tokens and the suspended organisations that this node knows.
///
/// The control plane publishes them to the backend; every node keeps a copy:
///
/// ```text
///   control: publish_keys, revoke ─► backend (keys, revoked, suspended, version)
///        │                              ▲ every 2 s, after KeysChanged and after a reconnect:
///        │                              │ read if the version has changed
///        └─ KeysChanged, TokenRevoked ─► node: no keys ──replace──► verifies tokens
/// ```
///
/// - Published keys and suspended organisations replace the former ones. Revocations are added,
///   and stay until the token has expired.
/// - A revocation reaches connected nodes immediately by broadcast. A node that has fewer
///   revocations than the backend, or may have missed a broadcast, reads all of them within 2 s.
/// - Nodes verify tokens without any request. While the bus is not reachable they continue with
///   the keys that they have.
/// - Subscribers are notified when accepted tokens may be accepted no longer
///   ([`Bus::revocations`]), so that an edge can close their connections.
///
/// Invariant: no token is accepted before keys were received.
pub(crate) struct TokenKeys {
    keys: ArcSwapOption<VerifyingKeys>,
    revoked: papaya::HashMap<TokenId, u64>,
    suspended: ArcSwap<HashSet<OrgId>>,
    /// Whether no revocation was missed, as far as is known.
    is_complete: AtomicBool,
    revocations: watch::Sender<u64>,
    keys_received: Notify,
}

impl TokenKeys {
    pub(crate) fn new() -> Self {
        Self {
            keys: ArcSwapOption::empty(),
            revoked: papaya::HashMap::new(),
            suspended: ArcSwap::default(),
            is_complete: AtomicBool::new(false),
            revocations: watch::channel(0).0,
            keys_received: Notify::new(),
        }
    }

    fn verify(&self, token: &str) -> Result<(Claims, TokenCheck), TokenError> {
        let keys = self.keys.load();
        let keys = keys.as_ref().ok_or(TokenError::NoKeys)?;
        let now_s = unix_time().as_secs();
        let (claims, key) = keys.verify_with_key(token, now_s)?;
        claims.check_lifetime(now_s)?;
        let check = TokenCheck {
            id: claims.id,
            org: claims.org,
            key,
            expires_at: claims.expires_at,
        };
        self.recheck(&check)?;
        Ok((claims, check))
    }

    fn recheck(&self, check: &TokenCheck) -> Result<(), AccessError> {
        let keys = self.keys.load();
        if !keys.as_ref().is_some_and(|keys| keys.contains(check.key)) {
            return Err(AccessError::UnknownKey);
        }
        if self.is_revoked(check.id) {
            return Err(AccessError::Revoked);
        }
        if self.is_suspended(check.org) {
            return Err(AccessError::OrgSuspended);
        }
        if check.expires_at <= unix_time().as_secs() {
            return Err(AccessError::Expired {
                at: check.expires_at,
            });
        }
        Ok(())
    }

    fn is_revoked(&self, token: TokenId) -> bool {
        self.revoked.pin().contains_key(&token)
    }

    fn is_suspended(&self, org: OrgId) -> bool {
        self.suspended.load().contains(&org)
    }

    /// Replaces the suspended organisations, and the keys if the set has any.
    pub(crate) fn replace(&self, set: KeySet) -> Result<(), AccessError> {
        let suspended: HashSet<OrgId> = set.suspended.into_iter().collect();
        if **self.suspended.load() != suspended {
            self.suspended.store(Arc::new(suspended));
            self.notify_subscribers();
        }
        if set.keys.is_empty() {
            return Ok(());
        }
        let keys = VerifyingKeys::new(set.keys)?;
        let former = self.keys.load();
        let are_removed = former
            .as_ref()
            .is_some_and(|former| !former.is_subset(&keys));
        self.keys.store(Some(Arc::new(keys)));
        self.keys_received.notify_waiters();
        if are_removed {
            self.notify_subscribers();
        }
        Ok(())
    }

    pub(crate) fn revoke(&self, token: TokenId, expires_at: u64) {
        if expires_at > unix_time().as_secs()
            && self.revoked.pin().insert(token, expires_at).is_none()
        {
            self.notify_subscribers();
        }
    }

    fn notify_subscribers(&self) {
        self.revocations
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The revocations of tokens that have not expired at this time.
    pub(crate) fn revocation_count(&self, now_s: u64) -> usize {
        let revoked = self.revoked.pin();
        let is_unexpired = |expires_at: &&u64| **expires_at > now_s;
        revoked.values().filter(is_unexpired).count()
    }

    /// A broadcast may have been missed: all revocations are to be read.
    pub(crate) fn mark_incomplete(&self) {
        self.is_complete.store(false, Ordering::Release);
    }

    /// Whether a broadcast may have been missed since the last call. The caller reads all
    /// revocations then.
    pub(crate) fn take_incomplete(&self) -> bool {
        !self.is_complete.swap(true, Ordering::AcqRel)
    }

    /// Removes revocations of tokens that have expired.
    pub(crate) fn remove_expired(&self) {
        let now = unix_time().as_secs();
        self.revoked.pin().retain(|_, expires_at| *expires_at > now);
    }
}

impl Bus {
    /// Verifies an access token: signature, issuer, audience, lifetime, revocation, and that its
    /// organisation is not suspended.
    ///
    /// # Errors
    /// [`TokenError`] when one of these fails, or when this node has no keys yet.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        self.verify_for_connection(token).map(|(claims, _)| claims)
    }

    /// Verifies an access token as [`Self::verify`], and returns what has to be checked again for
    /// as long as the token is used.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn verify_for_connection(&self, token: &str) -> Result<(Claims, TokenCheck), TokenError> {
        self.0.token_keys.verify(token)
    }

    /// Checks a verified token again: its key, its revocation, its organisation and its expiry.
    ///
    /// # Errors
    /// Why the token is no longer accepted.
    pub fn recheck(&self, check: &TokenCheck) -> Result<(), AccessError> {
        self.0.token_keys.recheck(check)
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

    /// Subscribes to revocations, deletions of keys and suspensions of organisations. Several of
    /// them are one change: a subscriber checks all of its tokens with [`Bus::recheck`].
    #[must_use]
    pub fn revocations(&self) -> watch::Receiver<u64> {
        self.0.token_keys.revocations.subscribe()
    }

    /// Whether a token is known to be revoked.
    #[must_use]
    pub fn is_revoked(&self, token: TokenId) -> bool {
        self.0.token_keys.is_revoked(token)
    }

    /// Whether an organisation is known to be suspended.
    #[must_use]
    pub fn is_suspended(&self, org: OrgId) -> bool {
        self.0.token_keys.is_suspended(org)
    }

    /// What is published. `None` when nothing is, such as after the backend lost its data.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn key_set(&self) -> Result<Option<KeySet>, BusError> {
        self.0.backend.key_set(unix_time().as_secs()).await
    }

    /// Publishes the suspended organisations to all nodes, in place of the former ones.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn publish_suspended_orgs(&self, orgs: &[OrgId]) -> Result<(), BusError> {
        let node = &self.0;
        node.backend.publish_suspended_orgs(orgs).await?;
        node.keys_changed.notify_one();
        node.broadcast(&Message::KeysChanged).await
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
