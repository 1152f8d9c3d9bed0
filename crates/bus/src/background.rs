//! The background tasks of a node: leases, monitoring, buffered writes, keys, and shutdown.

use std::{
    collections::HashMap,
    future::Future,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    backend::Release,
    bus::Node,
    clock::{unix_now_ms, unix_time},
    directory,
    error::BusError,
    events::{DeviceEvent, DisconnectReason, PendingWrite},
    live::{self, LiveEvent},
    node::NodeId,
    transport::Message,
};

/// How often a node renews its lease, which lasts three times as long.
pub(crate) const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
/// How often the nodes of pending calls are monitored.
const PEER_MONITOR_INTERVAL: Duration = Duration::from_millis(500);
/// How much later than this node others may reconnect after an outage, and renew their leases: their
/// attempt to connect and the backoff after it.
const PEER_RECONNECT_GRACE: Duration = Duration::from_secs(4);
/// The latest that a node reads a revocation whose broadcast it missed.
const KEY_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How often a node reads all revocations.
const REVOCATION_INTERVAL: Duration = Duration::from_secs(60);
/// A clock that gains or loses more than this within [`REVOCATION_INTERVAL`] was set.
const MAX_CLOCK_DRIFT: Duration = Duration::from_secs(1);
/// How long the broadcast of a revocation may take.
const REVOCATION_GRACE: Duration = Duration::from_millis(200);
/// How long queued messages may take to be sent when the node shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// How often the totals of all nodes are read.
const STATS_INTERVAL: Duration = Duration::from_secs(15);
/// Between two writes of device events: those of devices that connect at the same time share one.
const EVENTS_INTERVAL: Duration = Duration::from_millis(5);
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Starts the tasks. They retry for ever, and end with the process.
pub(crate) fn start(node: &Arc<Node>, shutdown: &Shutdown) {
    let (dead, to_remove) = watch::channel(Vec::new());
    spawn(shutdown, keep_lease(Arc::clone(node), dead));
    spawn(shutdown, remove_dead(Arc::clone(node), to_remove));
    spawn(shutdown, monitor_peers(Arc::clone(node)));
    spawn(shutdown, follow_keys(Arc::clone(node)));
    spawn(shutdown, directory::run_resync(Arc::clone(node)));
    spawn(shutdown, directory::record_missed(Arc::clone(node)));
    spawn(shutdown, directory::check_claims(Arc::clone(node)));
    spawn(shutdown, report_stats(Arc::clone(node)));
    let (node, stop) = (Arc::clone(node), shutdown.clone());
    // Queued messages are sent until the node has left.
    for route in 0..node.outbox.route_count() {
        let outbox = Arc::clone(&node.outbox);
        spawn_task(shutdown, async move {
            let flush_loop = outbox.run_flush_loop(route);
            outbox.closed.run_until_cancelled(flush_loop).await;
        });
    }
    spawn_task(shutdown, async move {
        tokio::select! {
            biased;
            () = write_events(&node) => {}
            () = write_releases(&node) => {}
            () = live::run_recorder(&node) => {}
            () = stop.stopping() => {}
        }
        // The writers have returned what they were writing to the buffers.
        node.drain_and_leave().await;
        node.outbox.closed.cancel();
    });
}

fn spawn(shutdown: &Shutdown, task: impl Future<Output = ()> + Send + 'static) {
    let stop = shutdown.clone();
    spawn_task(shutdown, async move {
        tokio::select! {
            biased;
            () = stop.stopping() => {}
            () = task => {}
        }
    });
}

/// Spawns a task of a node.
pub(crate) fn spawn_task(shutdown: &Shutdown, task: impl Future<Output = ()> + Send + 'static) {
    #[cfg(test)]
    let task = crate::simulation::gated(task);
    shutdown.spawn(task);
}

async fn keep_lease(node: Arc<Node>, dead: watch::Sender<Vec<NodeId>>) {
    let mut ticks = interval(LEASE_RENEWAL_INTERVAL);
    ticks.reset();
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut reconnected = pin!(node.reconnected.notified());
        reconnected.as_mut().enable();
        node.outbox.remove_unused();
        // The connection's supervision handles failures; the lease outlives two of them.
        if let Ok(newly_dead) = node.renew_lease().await {
            dead.send_if_modified(|dead| {
                *dead = newly_dead;
                !dead.is_empty()
            });
        }
        tokio::select! {
            biased;
            // The clock of the server may be another one.
            () = reconnected => ticks.reset(),
            () = node.acceptance_changed.notified() => {}
            _ = ticks.tick() => {}
        }
    }
}

/// Removes the entries of dead nodes. A task of its own: it takes as long as there are entries, and
/// the lease of this node must not wait for it.
async fn remove_dead(node: Arc<Node>, mut dead: watch::Receiver<Vec<NodeId>>) {
    while dead.changed().await.is_ok() {
        let nodes = dead.borrow_and_update().clone();
        for dead in nodes {
            for (device, epoch) in node.backend.remove_dead(&dead).await.unwrap_or_default() {
                node.record_live(device.org, || {
                    let reason = DisconnectReason::NodeLost;
                    LiveEvent::offline(device.device.clone(), epoch, reason)
                });
                node.record_event(DeviceEvent::Disconnected {
                    device,
                    epoch,
                    at_ms: unix_now_ms(),
                    reason: DisconnectReason::NodeLost,
                });
            }
        }
    }
}

/// Ends the calls to a node that is gone:
///
/// - its inbox has no subscriber, twice in a row: a single check could coincide with a reconnect of
///   that node;
/// - its lease has ended: its host stands still or was cut off. Its cached entries end as well.
///
/// After an outage of the bus each node reconnects at a time of its own: those that follow are not gone.
async fn monitor_peers(node: Arc<Node>) {
    let mut ticks = interval(PEER_MONITOR_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missed_checks: HashMap<NodeId, u8> = HashMap::new();
    let (mut generation, mut resumes_at) = (1, Instant::now());
    loop {
        ticks.tick().await;
        let current = node.backend.status().generation;
        if current > generation {
            generation = current;
            resumes_at = Instant::now() + PEER_RECONNECT_GRACE;
            missed_checks.clear();
        }
        if Instant::now() < resumes_at {
            continue;
        }
        let (unsubscribed, expired) = tokio::join!(node.unsubscribed_peers(), node.expired_peers());
        missed_checks.retain(|peer, _| unsubscribed.contains(peer));
        for peer in unsubscribed {
            let missed = missed_checks.entry(peer.clone()).or_default();
            *missed += 1;
            if *missed >= 2 {
                node.lose_calls(&peer, "the node that held the device is gone");
            }
        }
        for peer in expired.iter().filter(|peer| **peer != node.id) {
            node.lose_calls(
                peer,
                "the node that held the device stopped renewing its lease",
            );
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
            biased;
            () = reconnected => {}
            () = sleep(STATS_INTERVAL) => {}
        }
    }
}

async fn write_events(node: &Node) {
    loop {
        let write = node.events.take().await;
        match node.backend.append_events(&write.items).await {
            Ok(refused) => {
                node.events_refused(&refused, &write.items);
                write.commit();
                sleep(EVENTS_INTERVAL).await;
            }
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
    let (mut known, mut unusable, mut tickets_of) = (None, None, None);
    let mut clock = ClockCheck::begin();
    loop {
        if clock.has_stepped() || clock.age() >= REVOCATION_INTERVAL {
            clock = ClockCheck::begin();
            node.token_keys.mark_incomplete();
            tickets_of = None;
        }
        // Before the first keys: nothing is accepted without its quotas.
        node.follow_quotas(&mut unusable).await;
        known = node.read_keys(known).await.unwrap_or_default();
        // Last: tickets save work, and revocations do not wait for their keys.
        tickets_of = node.follow_ticket_keys(tickets_of).await;
        tokio::select! {
            biased;
            () = node.keys_changed.notified() => {}
            () = sleep(KEY_POLL_INTERVAL) => {}
        }
    }
}

/// Compares the clock of this machine with the time that passes.
struct ClockCheck {
    began: Instant,
    unix: Duration,
}

impl ClockCheck {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            unix: unix_time(),
        }
    }

    fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the clock was set since the begin.
    fn has_stepped(&self) -> bool {
        let expected = self.unix + self.age();
        expected.abs_diff(unix_time()) > MAX_CLOCK_DRIFT
    }
}

impl Node {
    /// Renews the lease of this node. Returns the nodes whose lease has ended.
    ///
    /// Invariant: a node that receives nothing from the backend renews no lease, though what it sends
    /// may arrive. Calls would be sent to it for as long as it does.
    async fn renew_lease(&self) -> Result<Vec<NodeId>, BusError> {
        self.backend.await_reply().await?;
        let sent = Instant::now();
        let accepts_devices = self.accepts_devices.load(Ordering::Acquire);
        let renewal = self.backend.renew_lease(accepts_devices).await?;
        self.other_edges
            .store(renewal.other_edges, Ordering::Release);
        // The first renewal after the end may have been one whose answer was lost.
        if self.lease.renewed(sent, renewal.now) {
            self.resync.notify_one();
        }
        if let Some(nonce) = self.lease.awaited_probe() {
            self.outbox
                .send_or_drop(&self.id, &Message::Probe { nonce });
        }
        self.token_keys.remove_expired(renewal.now.as_secs());
        Ok(renewal.dead)
    }

    /// The nodes of pending calls whose inbox has no subscriber.
    async fn unsubscribed_peers(&self) -> Vec<NodeId> {
        let mut peers = self.pending.nodes_pending_for(PEER_MONITOR_INTERVAL);
        peers.retain(|peer| *peer != self.id);
        if peers.is_empty() {
            return peers;
        }
        let unsubscribed = self.backend.find_unsubscribed(&peers).await;
        unsubscribed.unwrap_or_default()
    }

    /// The nodes of cached entries whose lease has ended. Every pending call was sent to one of them.
    async fn expired_peers(&self) -> Vec<NodeId> {
        let peers = self.presence_cache.nodes();
        if peers.is_empty() {
            return peers;
        }
        let at = Instant::now();
        let leases = self.backend.leases(&peers).await;
        leases.map_or_else(
            |_| Vec::new(),
            |leases| self.presence_cache.end_leases(&leases, at),
        )
    }

    fn lose_calls(&self, peer: &NodeId, reason: &'static str) {
        let lost = self.pending.lose(peer, reason);
        // A node that left in order has no calls, and its lease is gone as well.
        if lost > 0 {
            tracing::warn!(node.id = %peer, calls = lost, "{reason}; its calls end as lost");
        }
    }

    /// Reads the key set unless its version is known. Returns its version.
    async fn read_keys(&self, known: Option<u64>) -> Result<Option<u64>, BusError> {
        let now_s = self.lease.unix_s();
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
        let former = self.token_keys.refusal();
        if let Err(error) = self.token_keys.replace(set) {
            tracing::error!(%error, "the published keys are not usable");
        }
        let refusal = self.token_keys.refusal();
        if refusal.is_some() {
            self.metrics.key_sets_refused.inc();
        }
        match refusal {
            Some(reason) if refusal != former => tracing::error!(
                %reason,
                "the published token keys are refused; the former ones stay in use"
            ),
            None if former.is_some() => {
                tracing::info!("the published token keys are adopted again")
            }
            _ => {}
        }
        Ok(Some(version))
    }

    /// Reads the keys of tickets, unless they were read on this connection in this period. A backend that
    /// has lost them receives them again.
    async fn follow_ticket_keys(&self, read: Option<(u64, u64)>) -> Option<(u64, u64)> {
        let current = (self.backend.status().generation, self.ticket_period());
        self.owner()?;
        if read == Some(current) {
            return read;
        }
        match self.read_ticket_keys().await {
            Ok(()) => Some(current),
            Err(error) => {
                tracing::debug!(%error, "cannot read the keys of tickets; retrying");
                None
            }
        }
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
        self.backend.release(write.items.clone()).await?;
        self.record_offline(&write.items).await;
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
            match self.backend.append_events(&write.items).await {
                Ok(refused) => {
                    self.events_refused(&refused, &write.items);
                    write.commit();
                }
                Err(error) => {
                    let events = write.items.len();
                    tracing::warn!(%error, events, "the last device events are lost");
                    break;
                }
            }
        }
        self.write_live().await;
        // A lease that cannot be given back expires.
        let _ = self.backend.leave(all_released).await;
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_protocol::{id::TokenId, token::SigningKey};
    use tokio::task::yield_now;
    use uuid::Uuid;

    use super::*;
    use crate::{Bus, BusConfig, LocalHub};

    #[test]
    fn clock_that_was_set_has_stepped() {
        fn check(seconds: f64, back: bool, has_stepped: bool) {
            let (step, began) = (Duration::from_secs_f64(seconds), ClockCheck::begin());
            let unix = if back {
                began.unix + step
            } else {
                began.unix - step
            };
            let clock = ClockCheck { unix, ..began };
            assert_eq!(
                clock.has_stepped(),
                has_stepped,
                "{seconds} s, back: {back}"
            );
        }
        for back in [false, true] {
            check(0.0, back, false);
            check(0.5, back, false);
            check(1.5, back, true);
            check(3_600.0, back, true);
        }
    }

    /// The virtual time passes, and the wall clock does not: it is set back all the time.
    #[tokio::test(start_paused = true)]
    async fn all_revocations_are_read_when_the_clock_was_set() {
        let config = BusConfig::local(&LocalHub::default(), "edge");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let node = &bus.0;
        while node.token_keys.take_incomplete() {
            node.token_keys.mark_incomplete();
            yield_now().await;
        }
        let [known, missed] = [1, 2].map(|id| TokenId::from_uuid(Uuid::from_u128(id)));
        let expires_at = unix_time().as_secs() + 3_600;
        node.token_keys.revoke(known, expires_at);
        let keys = vec![SigningKey::from_seed(&[7; 32]).verifying_key()].into();
        let revoked = [(missed, expires_at)];
        node.backend
            .publish_keys(Some(&keys), &revoked)
            .await
            .unwrap();
        let read = async {
            while !bus.is_revoked(missed) {
                sleep(RETRY_DELAY).await;
            }
        };
        timeout(3 * KEY_POLL_INTERVAL, read).await.unwrap();
    }
}
