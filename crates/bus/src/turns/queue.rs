//! Turns from edge to worker, and replies from worker to edge.

use std::time::Duration;

use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};
use switchboard_runtime::trace::TraceContext;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    cancel::{CancelReason, TurnCancellation, TurnCancellations},
    style::SpeakingStyle,
    tracker::ChunkCheck,
    turn::{Lease, NewMessage, NewTurn, ReplyTarget, Turn, TurnId},
};
use crate::{
    bus::{Bus, Node},
    error::BusError,
    metrics::BusBudget,
    node::{Epoch, NodeId},
    trace,
    transport::{Chunk, ChunkMessage, Message, Text},
};

/// A worker that has not renewed a turn for this long loses it: another worker claims it.
pub const TURN_LEASE: Duration = Duration::from_secs(10);
/// A turn that no worker has claimed for this long is not answered.
pub const TURN_TTL: Duration = Duration::from_secs(60);
/// The device of a turn that has waited for this long may have gone, so its presence is verified.
const VERIFY_DEVICE_DELAY: Duration = Duration::from_secs(1);
/// Turns that wait or are being answered. Protects the memory of Redis.
pub(crate) const MAX_TURNS: usize = 10_000;
/// Turns of one organisation among them: three others still find places.
pub(crate) const MAX_ORG_TURNS: usize = MAX_TURNS / 4;
/// Turns with the bytes of a picture or a recording among them: at most 80 MiB. Protects the memory of
/// Redis.
pub(crate) const MAX_PICTURES: usize = 128;
/// Those of one organisation.
pub(crate) const MAX_ORG_PICTURES: usize = MAX_PICTURES / 4;

/// # The turn queue
///
/// An edge enqueues a message of a device's user; one worker claims it, and sends the reply to the
/// node that owns the device's connection.
///
/// ```text
///   enqueue_turn ─► waiting ──claim──► leased (attempt n) ──complete_turn──► deleted
///                    │ │ ▲                │        ▲
///                    │ └─┴─ postponed: its organisation has no room at the worker
///                    │                    │        │
///                      │                  │        └─ renew_turns, every 3 s
///                      │                  └─ not renewed for 10 s ─► leased (attempt n+1)
///                    ├─ not claimed for 60 s ─► expired
///                    └─ cancel_turns ─► deleted, waiting or leased
/// ```
///
/// - A worker claims turns of organisations that it has room for. The turns of other ones are
///   postponed: they wait for any worker that has room, in their order, do not count as attempts,
///   and delay no turn of another organisation.
/// - A worker whose lease was taken over cannot write, mark or complete the turn any longer;
///   [`renew_turns`](Self::renew_turns) returns it as lost.
/// - Before side effects a worker calls [`mark_side_effects`](Self::mark_side_effects). The next
///   worker sees [`Turn::has_side_effects`], so nothing is done twice.
/// - Chunks of a reply are numbered from 0 for each worker. The owner node passes them on in order
///   and once; a gap ends the reply as incomplete. When another worker restarts a reply of which
///   the device has received a part, the owner node is notified first. A keep-alive goes to the
///   owner node with every renewal.
/// - A chunk that no turn expects is dropped, and its worker receives a [`TurnCancellation`]: at
///   most once in 3 s for each turn, and 64 in 3 s for each node.
/// - A newer turn of a device supersedes the older ones, on every task and on earlier connections
///   ([`supersede_turns`](Self::supersede_turns)). A superseded turn is not given to a worker. The
///   edge knows when there is none to supersede ([`Turn::is_alone`]).
///
/// More than 10,000 turns, and more than 2,500 of one organisation, are refused, after those that
/// no worker claimed within a minute were deleted; and more than 128 with a picture, 32 of one
/// organisation. A recording takes a place of a picture, and is dropped where half of them are taken. When Redis loses its data, leased turns are lost at the next renewal, and waiting
/// turns are not answered.
impl Bus {
    /// Hands a turn of a device of this node to the first worker that claims it. It waits for a
    /// worker for up to [`TURN_TTL`].
    ///
    /// # Errors
    /// When the bus is not reachable, or too many turns wait. No part of a reply arrives then,
    /// even if the turn was enqueued: its worker receives a [`TurnCancellation`].
    pub async fn enqueue_turn(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        task: [u8; 8],
        message: impl Into<NewMessage>,
    ) -> Result<(), BusError> {
        let node = &*self.0;
        let target = ReplyTarget {
            device: device.clone(),
            epoch,
            task,
        };
        let is_alone = node.turns.expect(&target);
        let span = trace::turn_span(device.org, device.device.as_str(), &node.id);
        let turn = NewTurn {
            target: target.clone(),
            node: node.id.clone(),
            message: message.into(),
            is_alone,
            trace: TraceContext::from_span(&span),
        };
        let unrecorded = turn.message.recording.is_some().then(|| {
            let mut turn = turn.clone();
            turn.message.recording = None;
            turn
        });
        let enqueue = node.backend.enqueue_turn(turn);
        let mut enqueued = enqueue.instrument(span.clone()).await;
        // A recording without a place is dropped: the message is answered.
        if let (Err(BusError::Overloaded), Some(turn)) = (&enqueued, unrecorded) {
            node.metrics.refused.inc(BusBudget::TurnPlaces);
            let enqueue = node.backend.enqueue_turn(turn);
            enqueued = enqueue.instrument(span.clone()).await;
        }
        match &enqueued {
            Ok(position) => node.turns.begin(&target, *position),
            // It may have been enqueued: its worker will receive a cancellation.
            Err(error) => {
                if matches!(error, BusError::Overloaded) {
                    node.metrics.refused.inc(BusBudget::TurnPlaces);
                }
                span.record("otel.status_code", "ERROR");
                node.turns.abandon(&target);
            }
        }
        enqueued.map(|_| ())
    }

    /// Cancels the turns of a task, because the device does not want the reply, or without a task
    /// all turns of a connection that has ended. Waiting turns are deleted, workers are notified.
    ///
    /// # Errors
    /// When the bus is not reachable: the reply arrives, and is dropped here.
    pub async fn cancel_turns(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        task: Option<[u8; 8]>,
    ) -> Result<(), BusError> {
        let node = &*self.0;
        let cancelled = node.turns.cancel(device, epoch, task);
        let turns = &cancelled.turns;
        node.orphan_replies.record(turns, Instant::now());
        let cancellation = TurnCancellation {
            device: device.clone(),
            epoch,
            task,
            reason: CancelReason::Unwanted,
            before: task.map(|_| cancelled.before),
        };
        let notified = node.broadcast(&Message::CancelTurns(cancellation)).await;
        let deleted = node.backend.delete_turns(device.org, turns).await;
        deleted.and(notified)
    }

    /// Discards the state of a connection that has ended without an unfinished turn: no worker
    /// needs to be notified. Does not wait.
    pub fn discard_turns(&self, device: &DeviceKey, epoch: Epoch) {
        self.0.turns.cancel(device, epoch, None);
    }

    /// Claims the next turns for this node, at most `max`; empty after `wait`. Turns whose worker
    /// did not renew them are claimed again when [`TURN_LEASE`] has expired. Turns whose device
    /// has a newer connection, and superseded turns, are completed here instead, and the device
    /// is notified. Turns that are being claimed when the future is dropped are claimed again,
    /// too.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn claim_turns(&self, max: usize, wait: Duration) -> Result<Vec<Turn>, BusError> {
        self.claim_turns_within(max, wait, &|_| max).await
    }

    /// The same, at most as many turns of an organisation as `room` returns for it. `room` is
    /// called repeatedly, and must not block.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn claim_turns_within(
        &self,
        max: usize,
        wait: Duration,
        room: &(dyn Fn(OrgId) -> usize + Send + Sync),
    ) -> Result<Vec<Turn>, BusError> {
        let claimed = self.0.backend.claim_turns(max, wait, room).await?;
        let mut turns = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let is_old = claimed.attempts > 1 || claimed.waited >= VERIFY_DEVICE_DELAY;
            let turn = Turn::from(claimed);
            let is_superseded = self.is_turn_superseded(&turn);
            if is_superseded {
                self.finish_reply(&turn);
            }
            if is_superseded || (is_old && self.has_left(&turn).await) {
                if let Err(error) = self.complete_turn(&turn.id).await {
                    // It is claimed again later. The other turns must not wait for that.
                    tracing::debug!(
                        %error,
                        turn.id = %turn.id,
                        "cannot complete a turn that needs no reply"
                    );
                }
            } else {
                turns.push(turn);
            }
        }
        Ok(turns)
    }

    /// Whether the device is known to have left the connection. A device without an entry may be
    /// connected: after an outage of Redis, a worker may be back before the node that owns the
    /// connection. Only that node knows; it rejects the first chunk of a reply that it does not expect.
    async fn has_left(&self, turn: &Turn) -> bool {
        let presence = self.find(&turn.device).await.ok().flatten();
        presence.is_some_and(|presence| presence.epoch != turn.epoch)
    }

    /// Renews the leases of turns that are being answered; to be called every 3 s. Their owner
    /// nodes receive a keep-alive, without which they end a reply.
    ///
    /// Returns the turns that are *lost*: another worker has claimed or completed them, their
    /// device has cancelled them, or Redis has lost its data. The worker stops answering a lost
    /// turn, and neither finishes the reply nor completes the turn: another worker may be
    /// answering it.
    ///
    /// # Errors
    /// When the bus is not reachable; the leases continue to expire, and no turn is known to be
    /// lost.
    pub async fn renew_turns(&self, turns: &[TurnId]) -> Result<Vec<TurnId>, BusError> {
        let node = &*self.0;
        let leases: Vec<Lease> = turns.iter().map(TurnId::lease).collect();
        let renewed = node.backend.renew_turns(&leases).await?;
        let mut lost = Vec::new();
        for turn in turns {
            if renewed.contains(&turn.lease()) {
                node.send_chunk(turn, turn.chunk_count(), Chunk::KeepAlive);
            } else {
                lost.push(turn.clone());
            }
        }
        Ok(lost)
    }

    /// Marks that the worker is about to cause side effects for this turn, so that a later worker
    /// sees [`Turn::has_side_effects`]. Returns false when the turn is lost or cancelled: the
    /// worker must not act then.
    ///
    /// # Errors
    /// When the bus is not reachable; the mark may be stored or not.
    pub async fn mark_side_effects(&self, turn: &TurnId) -> Result<bool, BusError> {
        self.0.backend.mark_side_effects(turn.lease()).await
    }

    /// Deletes a turn that was answered, if this node still holds its lease.
    ///
    /// # Errors
    /// When the bus is not reachable; the turn may be claimed again.
    pub async fn complete_turn(&self, turn: &TurnId) -> Result<(), BusError> {
        let org = turn.claim().target.device.org;
        self.0.backend.complete_turn(org, turn.lease()).await
    }

    /// Sends the next text of the reply. Does not wait. Texts arrive in order; when one is lost
    /// the reply ends as incomplete.
    pub fn send_text(&self, turn: &Turn, text: &str) {
        if text.is_empty() {
            return;
        }
        let number = turn.id.next_chunk();
        self.0
            .send_chunk(&turn.id, number, Chunk::Text(text.into()));
    }

    /// Sends how the reply to a spoken turn is to be spoken, before its text. Does not wait. The node of
    /// the device may miss it.
    pub fn send_style(&self, turn: &Turn, style: &SpeakingStyle) {
        // Texts and finite numbers: serialising them does not fail.
        let json = serde_json::to_string(style).unwrap_or_default();
        let number = turn.id.chunk_count();
        self.0
            .send_chunk(&turn.id, number, Chunk::Style(json.as_str().into()));
    }

    /// Ends a complete reply. Does not wait.
    pub fn finish_reply(&self, turn: &Turn) {
        let number = turn.id.next_chunk();
        self.0.send_chunk(&turn.id, number, Chunk::End);
    }

    /// Subscribes to the cancellations of turns of all nodes. Bounded: a subscriber that lags
    /// misses some.
    #[must_use]
    pub fn turn_cancellations(&self) -> TurnCancellations {
        TurnCancellations::new(self.0.cancellations.subscribe())
    }
}

impl Node {
    fn send_chunk(&self, turn: &TurnId, number: u32, chunk: Chunk) {
        let claim = turn.claim();
        let ReplyTarget {
            device,
            epoch,
            task,
        } = &claim.target;
        let message = ChunkMessage {
            position: claim.position,
            attempt: claim.attempt,
            number,
            org: device.org,
            epoch: *epoch,
            task: *task,
            device: device.device.as_str().into(),
            chunk,
        };
        if claim.node == self.id {
            self.receive_chunk(&self.id, &message);
        } else {
            self.outbox
                .send_or_drop(&claim.node, &Message::Chunk(message));
        }
    }

    /// Passes a chunk to its connection, in order and once.
    pub(crate) fn receive_chunk(&self, sender: &NodeId, message: &ChunkMessage) {
        let Some(owner) = self.owner() else { return };
        let ChunkMessage {
            org,
            epoch,
            task,
            ref device,
            ..
        } = *message;
        let check = self.turns.check(message);
        match check {
            ChunkCheck::Next | ChunkCheck::Restarted => match message.chunk {
                Chunk::Text(ref text) => {
                    if check == ChunkCheck::Restarted {
                        owner.restart_reply(org, device, epoch, task);
                    }
                    // Copied, because it may wait for a slow device, and would keep the batch
                    // alive.
                    owner.send_text(org, device, epoch, task, Text::from(&**text));
                }
                Chunk::KeepAlive => owner.keep_alive(org, device, epoch, task),
                Chunk::Style(ref style) => match serde_json::from_str(style) {
                    Ok(style) => owner.set_style(org, device, epoch, task, style),
                    Err(error) => tracing::debug!(%error, "the style of a reply is invalid"),
                },
                Chunk::End => owner.finish_reply(org, device, epoch, task, true),
            },
            ChunkCheck::Gap => owner.finish_reply(org, device, epoch, task, false),
            ChunkCheck::Stale => self.metrics.late.inc(),
            ChunkCheck::Orphan => {
                self.metrics.late.inc();
                self.reject_chunk(sender, message);
            }
        }
    }

    /// Notifies the worker of a chunk that no turn expects, within the rate limits.
    fn reject_chunk(&self, sender: &NodeId, message: &ChunkMessage) {
        let Ok(device) = message.device.parse::<DeviceId>() else {
            return;
        };
        let position = message.position;
        if !self.orphan_replies.should_notify(position, Instant::now()) {
            return;
        }
        let org = message.org;
        let cancellation = TurnCancellation {
            device: DeviceKey { org, device },
            epoch: message.epoch,
            task: Some(message.task),
            reason: CancelReason::Unwanted,
            before: Some(position.next()),
        };
        if *sender == self.id {
            // The worker of this node may have no subscription.
            let _ = self.cancellations.send(cancellation);
        } else {
            self.outbox
                .send_or_drop(sender, &Message::CancelTurns(cancellation));
        }
    }
}
