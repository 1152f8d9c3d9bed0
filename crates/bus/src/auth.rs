//! Verifies access tokens with the published keys.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use switchboard_protocol::{
    id::{OrgId, TokenId},
    token::{AccessError, Claims, KeyId, KeySetError, VerifyingKey, VerifyingKeys},
};
use tokio::sync::{
    Notify,
    broadcast::{self, error::RecvError},
    watch,
};

use crate::{
    backend::{KeySet, PublishedKeys},
    bus::Bus,
    clock::unix_time,
    error::BusError,
    transport::Message,
};

/// How long a revocation is kept after its token has expired: a node whose clock is behind still
/// accepts the token.
pub(crate) const REVOCATION_KEPT: Duration = Duration::from_hours(24);

/// Changes that wait for a busy subscriber; see [`AccessChanges`]. One takes about 40 bytes.
const CHANGES_CAPACITY: usize = 256;

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
/// - Published keys and suspended organisations replace the former ones, but an older list of
///   suspended organisations does not replace a newer one. Revocations are added, and stay until
///   the token has expired a day ago, by the shared clock ([`OwnLease`](crate::lease::OwnLease)).
/// - A revocation reaches connected nodes immediately by broadcast. A node that has fewer
///   revocations than the backend, or may have missed a broadcast, reads all of them within 2 s.
///   Every minute, and when its own clock was set, it reads all of them in any case.
/// - Nodes verify tokens without any request. While the bus is not reachable they continue with
///   the keys that they have.
/// - Subscribers are notified when accepted tokens may be accepted no longer
///   ([`Bus::revocations`]), so that an edge can close their connections.
/// - A node with pinned keys adopts only keys that one of those has signed. It refuses others, and
///   sets that are older than the one in use, and continues with the keys that it has.
///
/// Invariant: no token is accepted before keys were received.
pub(crate) struct TokenKeys {
    pinned: Option<PinnedKeys>,
    /// Why the published keys are not adopted.
    refusal: ArcSwapOption<KeySetError>,
    keys: ArcSwapOption<VerifyingKeys>,
    revoked: papaya::HashMap<TokenId, u64>,
    suspended: ArcSwap<Suspended>,
    /// Whether no revocation was missed, as far as is known.
    is_complete: AtomicBool,
    revocations: watch::Sender<u64>,
    changes: broadcast::Sender<AccessChange>,
    keys_received: Notify,
}

/// Which tokens may be accepted no longer; see [`Bus::recheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessChange {
    /// This one was revoked.
    Revoked(TokenId),
    /// Any: a key was deleted, an organisation was suspended, or changes were missed.
    Any,
}

/// A subscription to the changes from now on.
#[derive(Debug)]
pub struct AccessChanges(broadcast::Receiver<AccessChange>);

impl AccessChanges {
    /// Waits for the next change; `None` when the node has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<AccessChange> {
        match self.0.recv().await {
            Ok(change) => Some(change),
            Err(RecvError::Lagged(_)) => Some(AccessChange::Any),
            Err(RecvError::Closed) => None,
        }
    }
}

#[derive(Default)]
struct Suspended {
    orgs: HashSet<OrgId>,
    /// The version of the list; see [`Bus::publish_suspended_orgs`].
    version: u64,
}

/// The keys that sign the token keys.
struct PinnedKeys {
    keys: VerifyingKeys,
    /// The number of the latest set that was adopted.
    sequence: AtomicU64,
}

impl PinnedKeys {
    /// The published keys, if they are signed and not older than the latest ones.
    fn verify(&self, signed: Option<&str>) -> Result<Vec<VerifyingKey>, KeySetError> {
        let signed = signed.ok_or(KeySetError::Unsigned)?;
        let set = self.keys.verify_key_set(signed, unix_time().as_secs())?;
        let latest = self.sequence.fetch_max(set.sequence, Ordering::AcqRel);
        if set.sequence < latest {
            return Err(KeySetError::Outdated);
        }
        Ok(set.keys)
    }
}

impl TokenKeys {
    /// # Errors
    /// When a pinned key is not a public key.
    pub(crate) fn new(pinned: Vec<VerifyingKey>) -> Result<Self, AccessError> {
        let pinned = match pinned.is_empty() {
            true => None,
            false => Some(PinnedKeys {
                keys: VerifyingKeys::new(pinned)?,
                sequence: AtomicU64::new(0),
            }),
        };
        Ok(Self {
            pinned,
            refusal: ArcSwapOption::empty(),
            keys: ArcSwapOption::empty(),
            revoked: papaya::HashMap::new(),
            suspended: ArcSwap::default(),
            is_complete: AtomicBool::new(false),
            revocations: watch::channel(0).0,
            changes: broadcast::Sender::new(CHANGES_CAPACITY),
            keys_received: Notify::new(),
        })
    }

    /// Whether only signed keys are adopted.
    pub(crate) const fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Why the published keys are not adopted; `None` if they are.
    pub(crate) fn refusal(&self) -> Option<KeySetError> {
        self.refusal.load().as_deref().copied()
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
        self.suspended.load().orgs.contains(&org)
    }

    /// Replaces the suspended organisations, and the keys if the set has any that this node trusts.
    pub(crate) fn replace(&self, set: KeySet) -> Result<(), AccessError> {
        self.replace_suspended(set.suspended.into_iter().collect(), set.suspended_version);
        if set.keys.is_empty() && set.signed.is_none() {
            return Ok(());
        }
        let keys = match &self.pinned {
            None => set.keys,
            Some(pinned) => match pinned.verify(set.signed.as_deref()) {
                Ok(keys) => keys,
                Err(refusal) => {
                    self.refusal.store(Some(Arc::new(refusal)));
                    return Ok(());
                }
            },
        };
        self.refusal.store(None);
        let keys = VerifyingKeys::new(keys)?;
        let former = self.keys.load();
        let are_removed = former
            .as_ref()
            .is_some_and(|former| !former.is_subset(&keys));
        self.keys.store(Some(Arc::new(keys)));
        self.keys_received.notify_waiters();
        if are_removed {
            self.notify_subscribers(AccessChange::Any);
        }
        Ok(())
    }

    /// Ignores an older list, which a replica of the backend may hold after a failover.
    fn replace_suspended(&self, orgs: HashSet<OrgId>, version: Option<u64>) {
        let known = self.suspended.load();
        let version = version.unwrap_or(known.version);
        if version < known.version {
            return;
        }
        let has_changed = known.orgs != orgs;
        self.suspended.store(Arc::new(Suspended { orgs, version }));
        if has_changed {
            self.notify_subscribers(AccessChange::Any);
        }
    }

    pub(crate) fn revoke(&self, token: TokenId, expires_at: u64) {
        if self.revoked.pin().insert(token, expires_at).is_none() {
            self.notify_subscribers(AccessChange::Revoked(token));
        }
    }

    fn notify_subscribers(&self, change: AccessChange) {
        // There may be no subscriber.
        let _ = self.changes.send(change);
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

    /// Removes revocations of tokens that expired long before this time of the shared clock.
    pub(crate) fn remove_expired(&self, shared_s: u64) {
        let revoked = &mut self.revoked.pin();
        revoked.retain(|_, expires_at| *expires_at + REVOCATION_KEPT.as_secs() > shared_s);
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

    /// Why this node does not adopt the published token keys; `None` if it does. It continues with
    /// the keys that it adopted before.
    #[must_use]
    pub fn key_set_refusal(&self) -> Option<KeySetError> {
        self.0.token_keys.refusal()
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

    /// Subscribes to the same, each with the tokens that it concerns: a subscriber that finds a
    /// token need not check all of its tokens.
    #[must_use]
    pub fn access_changes(&self) -> AccessChanges {
        AccessChanges(self.0.token_keys.changes.subscribe())
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

    /// The organisations that are known to be suspended.
    #[must_use]
    pub fn suspended_orgs(&self) -> Vec<OrgId> {
        let suspended = self.0.token_keys.suspended.load();
        suspended.orgs.iter().copied().collect()
    }

    /// Waits until an organisation is known to be suspended.
    pub async fn suspended(&self, org: OrgId) {
        let mut changes = self.revocations();
        // This bus holds the sender, so the wait for a change does not fail.
        while !self.is_suspended(org) && changes.changed().await.is_ok() {}
    }

    /// What is published. `None` when nothing is, such as after the backend lost its data.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn key_set(&self) -> Result<Option<KeySet>, BusError> {
        self.0.backend.key_set(self.0.lease.unix_s()).await
    }

    /// Publishes the suspended organisations to all nodes, in place of the former ones. A list that
    /// was read later has a higher version, and is not replaced by one with a lower version; at most
    /// 2^53.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn publish_suspended_orgs(
        &self,
        orgs: &[OrgId],
        version: u64,
    ) -> Result<(), BusError> {
        let node = &self.0;
        node.backend.publish_suspended_orgs(orgs, version).await?;
        node.keys_changed.notify_one();
        node.broadcast(&Message::KeysChanged).await
    }

    /// Publishes the keys to all nodes, in place of the former ones, and adds revoked tokens with
    /// their expiry in Unix seconds. Earlier revocations stay. Nodes with pinned keys need a
    /// signature.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn publish_keys(
        &self,
        keys: impl Into<PublishedKeys>,
        revoked: Vec<(TokenId, u64)>,
    ) -> Result<(), BusError> {
        let node = &self.0;
        let keys = keys.into();
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

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_protocol::token::SigningKey;
    use switchboard_runtime::shutdown::Shutdown;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::{BusConfig, LocalHub};

    #[test]
    fn revocation_is_kept_by_a_node_whose_clock_is_ahead() {
        let keys = TokenKeys::new(Vec::new()).unwrap();
        let token = TokenId::from_uuid(Uuid::from_u128(1));
        // By this node's clock the token has expired, by the shared one it has not.
        let expires_at = unix_time().as_secs() - 60;
        keys.revoke(token, expires_at);
        assert!(keys.is_revoked(token));
        keys.remove_expired(expires_at + REVOCATION_KEPT.as_secs() - 1);
        assert!(keys.is_revoked(token));
        keys.remove_expired(expires_at + REVOCATION_KEPT.as_secs());
        assert!(!keys.is_revoked(token));
    }

    #[tokio::test]
    async fn change_names_the_revoked_token_until_a_subscriber_lags() {
        let keys = TokenKeys::new(Vec::new()).unwrap();
        let mut changes = AccessChanges(keys.changes.subscribe());
        let [one, other] = [1, 2].map(|id| TokenId::from_uuid(Uuid::from_u128(id)));
        for token in [one, one, other] {
            keys.revoke(token, u64::MAX);
        }
        assert_eq!(changes.next().await, Some(AccessChange::Revoked(one)));
        assert_eq!(changes.next().await, Some(AccessChange::Revoked(other)));
        let orgs = HashSet::from([OrgId::from_uuid(Uuid::nil())]);
        keys.replace_suspended(orgs, None);
        assert_eq!(changes.next().await, Some(AccessChange::Any));
        for id in 0..=CHANGES_CAPACITY {
            let token = TokenId::from_uuid(Uuid::from_u128(9 + id as u128));
            keys.revoke(token, u64::MAX);
        }
        assert_eq!(changes.next().await, Some(AccessChange::Any));
    }

    #[tokio::test]
    async fn revocations_are_counted_by_the_shared_clock() {
        let config = BusConfig::local(&LocalHub::default(), "control");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let (token, now_s) = (
            TokenId::from_uuid(Uuid::from_u128(1)),
            unix_time().as_secs(),
        );
        let keys = vec![SigningKey::from_seed(&[7; 32]).verifying_key()];
        let revoked = vec![(token, now_s + 60)];
        bus.publish_keys(keys, revoked).await.unwrap();
        let count = async || bus.key_set().await.unwrap().unwrap().revocations;
        assert_eq!(count().await, 1);
        let shared = Duration::from_secs(now_s + 120);
        bus.0.lease.renewed(Instant::now(), shared);
        assert_eq!(count().await, 0);
    }
}
