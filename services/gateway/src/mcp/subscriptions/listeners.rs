//! The listeners of a gateway: a limit per caller, and the regular check of their credentials.
//!
//! Invariant: a listener ends when its credential is revoked or expires.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use http::{header, request::Parts};
use parking_lot::Mutex;
use switchboard_identity::{Caller, CallerId, CredentialCheck};
use switchboard_runtime::{
    problem::{Problem, ProblemKind},
    shutdown::Shutdown,
};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::{Gateway, metrics::ShedReason};

/// How often credentials are checked. The check of an API key is cached for 3 s, so a listener
/// ends within 5 s of its revocation.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Between two checks of tokens: many revocations cost one check.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// API keys checked concurrently, so that a slow database does not delay the last of many.
const CONCURRENT_KEY_CHECKS: usize = 8;
/// `Retry-After` of a refused listener, in seconds. When a listener ends cannot be predicted.
pub(super) const RETRY_AFTER_S: u64 = 5;

/// The listeners of one gateway by caller.
pub(in crate::mcp) struct Listeners {
    limit: usize,
    slots: Mutex<HashMap<CallerId, Vec<Arc<ListenerSlot>>>>,
}

/// One listener, until this is dropped.
pub(crate) struct ListenerGuard {
    listeners: Arc<Listeners>,
    caller: CallerId,
    slot: Arc<ListenerSlot>,
}

struct ListenerSlot {
    standing: CredentialCheck,
    revoked: CancellationToken,
}

/// Why a listener is refused.
pub(crate) enum ListenError {
    /// The credential is no longer valid.
    Credential(Problem),
    TooMany {
        limit: usize,
    },
}

impl Listeners {
    pub(in crate::mcp) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            slots: Mutex::default(),
        })
    }

    fn admit(
        self: &Arc<Self>,
        caller: CallerId,
        standing: CredentialCheck,
    ) -> Result<ListenerGuard, ListenError> {
        let mut slots = self.slots.lock();
        let taken = slots.get(&caller).map_or(0, Vec::len);
        if taken >= self.limit {
            return Err(ListenError::TooMany { limit: self.limit });
        }
        let slot = Arc::new(ListenerSlot {
            standing,
            revoked: CancellationToken::new(),
        });
        let own = slots.entry(caller.clone()).or_default();
        own.push(Arc::clone(&slot));
        Ok(ListenerGuard {
            listeners: Arc::clone(self),
            caller,
            slot,
        })
    }

    fn slots(&self, on_store: bool) -> Vec<Arc<ListenerSlot>> {
        let slots = self.slots.lock();
        let all = slots.values().flatten();
        all.filter(|slot| slot.standing.needs_store() == on_store)
            .cloned()
            .collect()
    }
}

impl ListenerGuard {
    /// Completes when the credential is no longer valid.
    pub(crate) async fn revoked(&self) {
        self.slot.revoked.cancelled().await;
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        let mut slots = self.listeners.slots.lock();
        if let Some(own) = slots.get_mut(&self.caller) {
            own.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if own.is_empty() {
                slots.remove(&self.caller);
            }
        }
    }
}

impl ListenError {
    pub(super) fn too_many(limit: usize) -> String {
        format!("This caller has {limit} listeners, which is the limit; close one first.")
    }
}

impl From<ListenError> for Problem {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Credential(problem) => problem,
            ListenError::TooMany { limit } => {
                Self::new(ProblemKind::TooManyListeners, ListenError::too_many(limit))
                    .with("limit", limit)
                    .header(header::RETRY_AFTER, RETRY_AFTER_S)
            }
        }
    }
}

/// Admits a listener for as long as the credential of its request is valid.
///
/// # Errors
/// If the credential is no longer valid, or if the caller has reached its limit.
pub(crate) fn admit(
    gateway: &Gateway,
    caller: &Caller,
    head: &Parts,
) -> Result<ListenerGuard, ListenError> {
    let authenticator = &gateway.authenticator;
    let standing = authenticator.credential_check(&head.headers, &head.extensions);
    let standing = standing.map_err(ListenError::Credential)?;
    let listeners = &gateway.mcp.listeners;
    let admitted = listeners.admit(caller.id(), standing);
    if let Err(ListenError::TooMany { .. }) = &admitted {
        gateway.metrics.shed.inc(ShedReason::Listeners);
    }
    admitted
}

/// Ends listeners whose credential is no longer valid, until `shutdown` drains.
pub(crate) async fn run_checks(gateway: Arc<Gateway>, shutdown: Shutdown) {
    let checks = async { tokio::join!(check_tokens(&gateway), check_keys(&gateway)) };
    tokio::select! {
        _ = checks => {}
        () = shutdown.draining() => {}
    }
}

async fn check_tokens(gateway: &Gateway) {
    let mut revocations = gateway.bus.revocations();
    let mut ticks = ticks();
    loop {
        tokio::select! {
            changed = revocations.changed() => if changed.is_err() { return },
            _ = ticks.tick() => {}
        }
        check_credentials(gateway, false).await;
        tokio::time::sleep(MIN_CHECK_INTERVAL).await;
    }
}

/// Separate from the tokens, whose checks must not wait for an unavailable database.
async fn check_keys(gateway: &Gateway) {
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        check_credentials(gateway, true).await;
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn check_credentials(gateway: &Gateway, on_store: bool) {
    let slots = stream::iter(gateway.mcp.listeners.slots(on_store));
    let check = |slot: Arc<ListenerSlot>| async move {
        if !gateway.authenticator.is_still_valid(&slot.standing).await {
            slot.revoked.cancel();
        }
    };
    slots
        .for_each_concurrent(CONCURRENT_KEY_CHECKS, check)
        .await;
}
