//! What a node does without being asked: renews its lease, watches the nodes it waits for,
//! writes what nobody waits for, keeps its trust fresh, and enters its devices again after the
//! bus was away.
//! Never: giving up. Every loop here ends with the process only.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use switchboard_protocol::schema::Digest;
use switchboard_runtime::shutdown::Shutdown;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    backend::Entry,
    bus::Node,
    fact::{Fact, LeftReason},
    host::Holding,
    node::NodeId,
    trust::unix_now_ms,
};

/// A lease is renewed this often and lives three times as long.
pub(crate) const BEAT: Duration = Duration::from_secs(3);
/// How often the nodes that calls wait for are looked at.
const WATCH: Duration = Duration::from_millis(500);
/// A revocation that was told while this node was deaf is seen after this at the latest.
const TRUST_POLL: Duration = Duration::from_secs(2);
/// How many things go to the bus in one go.
const BATCH: usize = 512;
const RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn start(node: &Arc<Node>, shutdown: &Shutdown) {
    spawn(node, shutdown, beat);
    spawn(node, shutdown, watch);
    spawn(node, shutdown, write_facts);
    spawn(node, shutdown, write_releases);
    spawn(node, shutdown, follow_trust);
    spawn(node, shutdown, reenter);
    let (node, stop) = (Arc::clone(node), shutdown.clone());
    shutdown.spawn(async move {
        stop.stopping().await;
        node.flush().await;
    });
}

fn spawn<F, T>(node: &Arc<Node>, shutdown: &Shutdown, task: T)
where
    T: FnOnce(Arc<Node>) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let (task, stop) = (task(Arc::clone(node)), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            () = task => {}
            () = stop.stopping() => {}
        }
    });
}

async fn beat(node: Arc<Node>) {
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        node.courier.sweep();
        node.trust.sweep();
        // A beat that fails is the link's to notice; the lease outlives two of them.
        let reaped = node.backend.beat().await.unwrap_or_default();
        for (device, epoch) in reaped {
            node.facts.push(Fact::Left {
                device,
                epoch,
                at_ms: unix_now_ms(),
                reason: LeftReason::NodeLost,
            });
        }
    }
}

/// Ends the calls that wait for a node which nobody hears at its inbox, twice in a row: one
/// look could fall into the moment in which that node connects anew.
async fn watch(node: Arc<Node>) {
    let mut ticks = interval(WATCH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent_before: HashMap<NodeId, u8> = HashMap::new();
    loop {
        ticks.tick().await;
        let mut awaited = node.pending.awaited(WATCH);
        awaited.retain(|other| *other != node.id);
        if awaited.is_empty() {
            silent_before.clear();
            continue;
        }
        let Ok(silent) = node.backend.silent(&awaited).await else {
            silent_before.clear();
            continue;
        };
        silent_before.retain(|other, _| silent.contains(other));
        for other in silent {
            let looks = silent_before.entry(other.clone()).or_default();
            *looks += 1;
            if *looks >= 2 {
                let lost = node
                    .pending
                    .lose(&other, "the node that held the device is gone");
                tracing::warn!(node.id = %other, calls = lost, "lost the calls of a node that is gone");
            }
        }
    }
}

async fn write_facts(node: Arc<Node>) {
    loop {
        let batch = node.facts.take(BATCH).await;
        if node.backend.record(batch.clone()).await.is_err() {
            let dropped = node.facts.put_back(batch);
            node.metrics.facts_dropped.inc_by(dropped as u64);
            sleep(RETRY_PAUSE).await;
        }
    }
}

async fn write_releases(node: Arc<Node>) {
    loop {
        let batch = node.releases.take(BATCH).await;
        if node.backend.release(batch.clone()).await.is_err() {
            // What gives way here is reaped when this node's lease ends.
            node.releases.put_back(batch);
            sleep(RETRY_PAUSE).await;
        }
    }
}

async fn follow_trust(node: Arc<Node>) {
    let mut known = 0;
    loop {
        match node.backend.trust(known).await {
            Ok(Some(record)) => {
                known = record.version;
                if let Err(error) = node.trust.adopt(record) {
                    tracing::error!(%error, "the published keys are not usable");
                }
            }
            Ok(None) => {}
            Err(_) => known = 0,
        }
        tokio::select! {
            () = sleep(TRUST_POLL) => {}
            () = node.trust_changed.notified() => {}
        }
    }
}

async fn reenter(node: Arc<Node>) {
    loop {
        node.reenter.notified().await;
        node.shelf.untell();
        let Some(host) = node.host() else { continue };
        let held = host.held();
        let count = held.len();
        for chunk in held.chunks(BATCH) {
            node.reenter_some(chunk).await;
        }
        if count > 0 {
            tracing::info!(
                devices = count,
                "entered the devices again after the bus was away"
            );
        }
    }
}

impl Node {
    /// Enters live connections again, and closes those that have a newer one elsewhere. Tried
    /// until the bus takes it; the next healing may overtake it, which is harmless.
    async fn reenter_some(&self, held: &[Holding]) {
        let mut shelved: Vec<Digest> = Vec::new();
        let entries: Vec<Entry> = held
            .iter()
            .map(|holding| {
                let (digest, json) = holding.registration.clone().unzip();
                let first = digest.is_some_and(|digest| !shelved.contains(&digest));
                if first {
                    shelved.extend(digest);
                }
                let shelve = json.filter(|_| first);
                Entry {
                    device: holding.device.clone(),
                    epoch: holding.epoch,
                    digest,
                    shelve,
                }
            })
            .collect();
        let standing = loop {
            match self.backend.enter(entries.clone()).await {
                Ok(standing) => break standing,
                Err(_) if self.backend.condition().deaf_for.is_some() => return,
                Err(_) => sleep(RETRY_PAUSE).await,
            }
        };
        for (holding, newer) in held.iter().zip(standing) {
            match newer {
                Some(epoch) => {
                    if let Some(host) = self.host() {
                        host.takeover(holding.device.org, holding.device.device.as_str(), epoch);
                    }
                }
                None => self.record_again(holding),
            }
        }
    }

    fn record_again(&self, holding: &Holding) {
        let (device, epoch, at_ms) = (holding.device.clone(), holding.epoch, unix_now_ms());
        self.facts.push(Fact::Connected {
            device: device.clone(),
            epoch,
            at_ms,
        });
        if let Some((digest, json)) = &holding.registration {
            let json = self.shelf.tell(device.org, *digest).then(|| json.clone());
            self.facts.push(Fact::Registered {
                device,
                epoch,
                at_ms,
                digest: *digest,
                json,
            });
        }
    }

    /// Writes what still waits, once: at the end of a process.
    async fn flush(&self) {
        if !self.releases.is_empty() {
            // What can not be written now is reaped when this node's lease ends.
            let _ = self
                .backend
                .release(self.releases.take(usize::MAX).await)
                .await;
        }
        if !self.facts.is_empty() {
            // The edge is going and the bus is away: nobody is left to keep them.
            let _ = self.backend.record(self.facts.take(usize::MAX).await).await;
        }
        // A lease that is not given back now ends by itself.
        let _ = self.backend.leave().await;
    }
}
