//! What a node does without being asked: renews its lease, watches the nodes it waits for,
//! writes what nobody waits for, keeps its trust fresh, and leaves in order.
//! Never: giving up. Every loop here ends with the process only.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use switchboard_protocol::schema::Digest;
use switchboard_runtime::clock::unix_now_ms;
use switchboard_runtime::shutdown::Shutdown;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::{
    backend::Release,
    backlog::Batch,
    bus::Node,
    error::BusError,
    fact::{Fact, LeftReason},
    node::NodeId,
    reentry,
};

/// A lease is renewed this often and lives three times as long.
pub(crate) const BEAT: Duration = Duration::from_secs(3);
/// How often the nodes that calls wait for are looked at.
const WATCH: Duration = Duration::from_millis(500);
/// A revocation that was told while this node was deaf is seen after this at the latest.
const TRUST_POLL: Duration = Duration::from_secs(2);
/// What answers under way have left when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often it is looked at how much all nodes share.
const COUNT: Duration = Duration::from_secs(15);
const STILL_CHECK: Duration = Duration::from_millis(5);
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn start(node: &Arc<Node>, shutdown: &Shutdown) {
    spawn(shutdown, beat(Arc::clone(node)));
    spawn(shutdown, watch(Arc::clone(node)));
    spawn(shutdown, follow_trust(Arc::clone(node)));
    spawn(shutdown, reentry::follow(Arc::clone(node)));
    spawn(shutdown, count(Arc::clone(node)));
    let (node, stop) = (Arc::clone(node), shutdown.clone());
    // What waits to be sent is sent until the node has left.
    for way in 0..node.courier.ways() {
        let courier = Arc::clone(&node.courier);
        shutdown.spawn(async move {
            let rounds = courier.make_rounds(way);
            courier.left.run_until_cancelled(rounds).await
        });
    }
    shutdown.spawn(async move {
        tokio::select! {
            () = write_facts(&node) => {}
            () = write_releases(&node) => {}
            () = stop.stopping() => {}
        }
        // The writers have put back what they were writing.
        node.depart().await;
        node.courier.left.cancel();
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
            node.tell(Fact::Left {
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

/// Shows how much all nodes share. While Redis is away, what was seen last stands.
async fn count(node: Arc<Node>) {
    loop {
        let healed = node.healed.notified();
        if let Ok(figures) = node.backend.figures().await {
            node.metrics.shared.show(&figures);
        }
        tokio::select! {
            () = sleep(COUNT) => {}
            () = healed => {}
        }
    }
}

async fn write_facts(node: &Node) {
    loop {
        let batch = node.facts.take().await;
        match node.backend.record(batch.items.clone()).await {
            Ok(()) => batch.done(),
            Err(_) => {
                drop(batch);
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

async fn write_releases(node: &Node) {
    loop {
        let batch = node.releases.take().await;
        match node.write_release(batch).await {
            Ok(()) => {}
            Err(_) => sleep(RETRY_PAUSE).await,
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

impl Node {
    async fn write_release(&self, batch: Batch<'_, Release>) -> Result<(), BusError> {
        let in_use = |digest: &Digest| self.shelf.text(*digest);
        let mut releases = batch.items.clone();
        releases.retain(
            |release| !matches!(release, Release::Services(digest) if in_use(digest).is_some()),
        );
        self.backend.release(releases).await?;
        // Services that came into use again while they were being taken off the shelf.
        let again = batch.items.iter().filter_map(|release| match release {
            Release::Services(digest) => Some((*digest, in_use(digest)?)),
            Release::Entry(..) => None,
        });
        let again: Vec<(Digest, Bytes)> = again.collect();
        if !again.is_empty() {
            self.backend.shelve(again).await?;
        }
        batch.done();
        Ok(())
    }

    /// Says what is still to be said, and leaves: at the end of a process.
    async fn depart(&self) {
        // An answer that does not get out in this time ends as lost at its caller.
        let _ = timeout(LAST_WORDS, async {
            // Who calls from now on is told that nobody is here; who called before is still answered.
            if let Err(error) = self.backend.close_inbox().await {
                tracing::debug!(%error, "what is sent here until the end is lost");
            }
            while !self.courier.is_still() {
                sleep(STILL_CHECK).await;
            }
        })
        .await;
        let mut clean = true;
        while let Some(batch) = self.releases.take_now() {
            clean &= self.write_release(batch).await.is_ok();
            if !clean {
                break;
            }
        }
        while let Some(batch) = self.facts.take_now() {
            match self.backend.record(batch.items.clone()).await {
                Ok(()) => batch.done(),
                Err(error) => {
                    tracing::warn!(%error, facts = batch.items.len(), "the record misses what happened last");
                    break;
                }
            }
        }
        // A lease that is not given back now ends by itself.
        let _ = self.backend.leave(clean).await;
    }
}
