//! The background tasks of a node: leases, monitoring, buffered writes, keys, and shutdown.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use switchboard_protocol::schema::Digest;
use switchboard_runtime::{
    clock::{unix_now_ms, unix_time},
    shutdown::Shutdown,
};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::{
    backend::Release,
    bus::Node,
    directory,
    error::BusError,
    events::{DeviceEvent, DisconnectReason, PendingWrite},
    node::NodeId,
};

/// How often a node renews its lease, which lasts three times as long.
pub(crate) const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
/// How often the nodes of pending calls are monitored.
const PEER_MONITOR_INTERVAL: Duration = Duration::from_millis(500);
/// The latest that a node reads a revocation whose broadcast it missed.
const KEY_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long the broadcast of a revocation may take.
const REVOCATION_GRACE: Duration = Duration::from_millis(200);
/// How long queued messages may take to be sent when the node shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// How often the totals of all nodes are read.
const STATS_INTERVAL: Duration = Duration::from_secs(15);
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Starts the tasks. They retry for ever, and end with the process.
pub(crate) fn start(node: &Arc<Node>, shutdown: &Shutdown) {
    spawn(shutdown, renew_lease(Arc::clone(node)));
    spawn(shutdown, monitor_peers(Arc::clone(node)));
    spawn(shutdown, follow_keys(Arc::clone(node)));
    spawn(shutdown, directory::run_resync(Arc::clone(node)));
    spawn(shutdown, report_stats(Arc::clone(node)));
    let (node, stop) = (Arc::clone(node), shutdown.clone());
    // Queued messages are sent until the node has left.
    for route in 0..node.outbox.route_count() {
        let outbox = Arc::clone(&node.outbox);
        shutdown.spawn(async move {
            let flush_loop = outbox.run_flush_loop(route);
            outbox.closed.run_until_cancelled(flush_loop).await
        });
    }
    shutdown.spawn(async move {
        tokio::select! {
            () = write_events(&node) => {}
            () = write_releases(&node) => {}
            () = stop.stopping() => {}
        }
        // The writers have returned what they were writing to the buffers.
        node.drain_and_leave().await;
        node.outbox.closed.cancel();
    });
}

fn spawn(shutdown: &Shutdown, task: impl Future<Output = ()> + Send + 'static) {
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = task => {}
            () = stop.stopping() => {}
        }
    });
}

async fn renew_lease(node: Arc<Node>) {
    let mut ticks = interval(LEASE_RENEWAL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        node.outbox.remove_unused();
        node.token_keys.remove_expired();
        // The connection's supervision handles failures; the lease outlives two of them.
        let removed = node.backend.renew_lease().await.unwrap_or_default();
        for (device, epoch) in removed {
            node.record_event(DeviceEvent::Disconnected {
                device,
                epoch,
                at_ms: unix_now_ms(),
                reason: DisconnectReason::NodeLost,
            });
        }
    }
}

/// Ends the calls to a node whose inbox has no subscriber, twice in a row: a single check could
/// coincide with a reconnect of that node.
async fn monitor_peers(node: Arc<Node>) {
    let mut ticks = interval(PEER_MONITOR_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missed_checks: HashMap<NodeId, u8> = HashMap::new();
    loop {
        ticks.tick().await;
        let mut peers = node.pending.nodes_pending_for(PEER_MONITOR_INTERVAL);
        peers.retain(|peer| *peer != node.id);
        if peers.is_empty() {
            missed_checks.clear();
            continue;
        }
        let Ok(unsubscribed) = node.backend.find_unsubscribed(&peers).await else {
            missed_checks.clear();
            continue;
        };
        missed_checks.retain(|peer, _| unsubscribed.contains(peer));
        for peer in unsubscribed {
            let missed = missed_checks.entry(peer.clone()).or_default();
            *missed += 1;
            if *missed >= 2 {
                let reason = "the node that held the device is gone";
                let lost = node.pending.lose(&peer, reason);
                tracing::warn!(
                    node.id = %peer,
                    calls = lost,
                    "a node is gone; its calls end as lost"
                );
            }
        }
    }
}

/// Exports totals of all nodes. While Redis is not reachable, the last values stay.
async fn report_stats(node: Arc<Node>) {
    loop {
        let reconnected = node.reconnected.notified();
        if let Ok(stats) = node.backend.stats().await {
            node.metrics.totals.set(&stats);
        }
        tokio::select! {
            () = sleep(STATS_INTERVAL) => {}
            () = reconnected => {}
        }
    }
}

async fn write_events(node: &Node) {
    loop {
        let write = node.events.take().await;
        match node.backend.append_events(write.items.clone()).await {
            Ok(()) => write.commit(),
            Err(_) => {
                drop(write);
                sleep(RETRY_DELAY).await;
            }
        }
    }
}

async fn write_releases(node: &Node) {
    loop {
        let write = node.releases.take().await;
        match node.write_release(write).await {
            Ok(()) => {}
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

async fn follow_keys(node: Arc<Node>) {
    let mut known = None;
    loop {
        known = node.read_keys(known).await.unwrap_or_default();
        tokio::select! {
            () = sleep(KEY_POLL_INTERVAL) => {}
            () = node.keys_changed.notified() => {}
        }
    }
}

impl Node {
    /// Reads the key set unless its version is known. Returns its version.
    async fn read_keys(&self, known: Option<u64>) -> Result<Option<u64>, BusError> {
        let now_s = unix_time().as_secs();
        let set = self.backend.key_set(now_s).await?;
        let is_incomplete = self.token_keys.take_incomplete();
        let Some(set) = set else {
            return Ok(None);
        };
        if known == Some(set.version) && !is_incomplete {
            return Ok(known);
        }
        // Before the keys, which may be the first: no revoked token is accepted in between.
        if is_incomplete || self.lacks_revocations(set.revocations, now_s).await {
            let revoked = self.backend.revoked_tokens().await;
            for (token, expires_at) in revoked.inspect_err(|_| self.token_keys.mark_incomplete())? {
                self.token_keys.revoke(token, expires_at);
            }
        }
        let version = set.version;
        if let Err(error) = self.token_keys.replace(set) {
            tracing::error!(%error, "the published keys are not usable");
        }
        Ok(Some(version))
    }

    /// Whether this node has fewer revocations than are stored.
    async fn lacks_revocations(&self, stored: usize, now_s: u64) -> bool {
        if self.token_keys.revocation_count(now_s) >= stored {
            return false;
        }
        // The broadcasts of the newest ones may not have arrived yet.
        sleep(REVOCATION_GRACE).await;
        self.token_keys.revocation_count(now_s) < stored
    }

    async fn write_release(&self, write: PendingWrite<'_, Release>) -> Result<(), BusError> {
        let in_use = |digest: &Digest| self.registrations.get(*digest);
        let mut releases = write.items.clone();
        releases.retain(
            |release| !matches!(release, Release::Services(digest) if in_use(digest).is_some()),
        );
        self.backend.release(releases).await?;
        // Services that were registered again while they were being deleted.
        let restored = write.items.iter().filter_map(|release| match release {
            Release::Services(digest) => Some((*digest, in_use(digest)?)),
            Release::Entry(..) => None,
        });
        let restored: Vec<(Digest, Bytes)> = restored.collect();
        if !restored.is_empty() {
            self.backend.store_services(restored).await?;
        }
        write.commit();
        Ok(())
    }

    /// Sends what is queued, writes what is buffered, and leaves.
    async fn drain_and_leave(&self) {
        // An answer that is not sent in time ends as lost at its caller.
        let _ = timeout(DRAIN_TIMEOUT, async {
            // From now on callers learn that this node is gone; earlier calls are still answered.
            if let Err(error) = self.backend.close_inbox().await {
                tracing::debug!(%error, "cannot close the inbox; messages to this node are lost");
            }
            while !self.outbox.is_idle() {
                sleep(DRAIN_CHECK_INTERVAL).await;
            }
        })
        .await;
        let mut all_released = true;
        while let Some(write) = self.releases.try_take() {
            all_released &= self.write_release(write).await.is_ok();
            if !all_released {
                break;
            }
        }
        while let Some(write) = self.events.try_take() {
            match self.backend.append_events(write.items.clone()).await {
                Ok(()) => write.commit(),
                Err(error) => {
                    let events = write.items.len();
                    tracing::warn!(%error, events, "the last device events are lost");
                    break;
                }
            }
        }
        // A lease that cannot be given back expires.
        let _ = self.backend.leave(all_released).await;
    }
}
