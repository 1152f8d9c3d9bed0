//! The worker: claims turns of devices from the bus, answers them concurrently and acknowledges
//! them.
//! Invariant: no service is called for a turn that an earlier attempt may have called services for.

use std::{sync::Arc, time::Duration};

use switchboard_bus::{BusError, CancelReason, ConversationKey, TURN_LEASE, Turn};
use switchboard_phrases::{Language, Phrase};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    backoff::Backoff,
    budget::{Budget, Owner},
    quota::Quota,
    shutdown::Shutdown,
    span_from, trace,
};
use switchboard_store::Npc;
use tokio::time::Instant;
use tracing::{Span, debug, field::Empty, warn};

use crate::{
    Chat,
    active_turns::{ActiveTurn, InFlightGuard},
    answer::{self, AnswerEnd, sink::TurnSink, style},
    conversation::model::Conversation,
    memory::job,
    metrics::TurnEnd,
    npc_cache::UnknownNpc,
    picture::ShownPicture,
    recording::PendingRecording,
    user_message::{self, Participant, UserMessage},
};

/// Duration of one blocking read of the queue.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before the next read while the bus is unavailable.
const CLAIM_BACKOFF: Duration = Duration::from_millis(500);
/// Duration of one wait for a free slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(600);
/// Interval in which leases are renewed.
const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(3);

/// Answers turns until draining starts; active turns are answered to their end.
pub(crate) async fn run(chat: Arc<Chat>, shutdown: Shutdown) {
    shutdown.spawn(watch_cancellations(Arc::clone(&chat), shutdown.clone()));
    shutdown.spawn(renew_leases(Arc::clone(&chat), shutdown.clone()));
    // Turns of a suspended organisation wait, like those of one without room.
    let room = |org: OrgId| match chat.bus.is_suspended(org) {
        true => 0,
        false => chat.turns.room(Owner::Org(org.uuid())),
    };
    while let Some(free) = wait_for_slots(&chat.turns, &shutdown).await {
        // A read that has started is finished while draining: the claimed turns would otherwise
        // wait for their leases to expire.
        let turns = tokio::select! {
            biased;
            turns = chat.bus.claim_turns_within(free, CLAIM_TIMEOUT, &room) => turns,
            () = shutdown.draining(), if chat.bus.is_in_process() => break,
            () = shutdown.stopping() => break,
        };
        match turns {
            Ok(turns) => start(&chat, turns, &shutdown),
            Err(error) => {
                warn!(%error, "cannot claim turns; will retry");
                tokio::select! {
                    () = tokio::time::sleep(CLAIM_BACKOFF) => {}
                    () = shutdown.draining() => break,
                }
            }
        }
    }
    chat.active_turns.close();
}

/// Waits for a free slot. Returns the number of free ones; `None` when draining starts.
async fn wait_for_slots(slots: &Budget, shutdown: &Shutdown) -> Option<usize> {
    while !shutdown.is_draining() {
        let free = slots.free();
        if free > 0 {
            return Some(free);
        }
        // The organisation of the next turn is not known yet, so the slot is returned at once.
        let next = slots.acquire(Owner::System, 1, Instant::now() + SLOT_TIMEOUT);
        tokio::select! {
            _ = next => {}
            () = shutdown.draining() => {}
        }
    }
    None
}

fn start(chat: &Arc<Chat>, turns: Vec<Turn>, shutdown: &Shutdown) {
    for mut turn in turns {
        // Slots are acquired here only, so there is still room for each claimed turn.
        let owner = Owner::Org(turn.device.org.uuid());
        let slot = match chat.turns.try_acquire(owner, 1) {
            Ok(slot) => slot,
            Err(error) => {
                warn!(%error, turn = %turn.id, "no slot for a claimed turn; its lease expires");
                continue;
            }
        };
        let active = chat.active_turns.insert(&chat.bus, &turn);
        let (chat, stop) = (Arc::clone(chat), shutdown.clone());
        let span = span_for(&turn);
        shutdown.spawn_in(span, async move {
            let answered = async {
                let recording = PendingRecording::take(&chat, &mut turn);
                let processed = Box::pin(process(&chat, turn, active, &stop));
                let (end, conversation) = processed.await;
                // What follows runs in the background, without a slot.
                drop(slot);
                if end != TurnEnd::LeaseLost
                    && let Some(recording) = recording
                {
                    recording.store(&chat).await;
                }
                if let Some((key, conversation)) = conversation {
                    job::summarize_if_long(&chat, &key, &conversation).await;
                }
            };
            tokio::select! {
                () = answered => {}
                // Another replica takes the turn over when the lease has expired.
                () = stop.stopping() => {}
            }
        });
    }
}

/// The span of a turn, a part of the trace that started with the device's message.
fn span_for(turn: &Turn) -> Span {
    span_from!(
        trace::start(turn.trace.clone().into()),
        "turn",
        otel.kind = "consumer",
        otel.status_code = Empty,
        switchboard.org.id = %turn.device.org,
        switchboard.device.id = %turn.device.device,
        switchboard.turn.attempt = turn.attempts,
        switchboard.turn.end = Empty,
        gen_ai.operation.name = "invoke_agent",
    )
}

/// Answers a turn until its end or its cancellation, and acknowledges it. Returns how it ended, and
/// the conversation.
async fn process(
    chat: &Chat,
    turn: Turn,
    active: ActiveTurn,
    shutdown: &Shutdown,
) -> (TurnEnd, Option<(ConversationKey, Arc<Conversation>)>) {
    let in_flight = InFlightGuard::new(&chat.metrics.in_flight);
    let ended = match chat.npcs.find((&chat.bus, &chat.store), &turn.device).await {
        Ok(npc) => {
            let mut message = user_message(chat, &turn, npc);
            match prepare(chat, &turn, &mut message).await {
                Ok(()) => {
                    style::send(chat, &turn, &message).await;
                    answer(chat, (&turn, message), &active).await
                }
                Err((end, phrase)) => refuse(chat, &turn, (end, phrase, message.language)),
            }
        }
        Err(UnknownNpc) => {
            let language = language_of(chat, &turn, None);
            refuse(chat, &turn, (TurnEnd::Failed, Phrase::UnknownNpc, language))
        }
    };
    drop(in_flight);
    let Ended {
        end,
        conversation,
        is_acknowledged,
    } = ended;
    chat.metrics.record_end(end);
    debug!(turn = %turn.id, ?end, "turn ended");
    if end != TurnEnd::LeaseLost {
        // Also of a turn that was refused: its speech was recognised.
        chat.usage.count_speech(turn.device.org, turn.audio_ms);
    }
    if end != TurnEnd::LeaseLost && !is_acknowledged {
        let acknowledged = acknowledge(|| chat.bus.complete_turn(&turn.id), shutdown).await;
        if let Err(error) = acknowledged {
            warn!(%error, "cannot acknowledge an answered turn");
        }
    }
    (end, conversation)
}

/// How a turn ended.
struct Ended {
    end: TurnEnd,
    /// The conversation and its key, if they were stored.
    conversation: Option<(ConversationKey, Arc<Conversation>)>,
    /// Whether the turn was deleted from the queue.
    is_acknowledged: bool,
}

/// Ends a turn that is not answered: its user reads a sentence.
fn refuse(
    chat: &Chat,
    turn: &Turn,
    (end, phrase, language): (TurnEnd, Phrase<'_>, Language),
) -> Ended {
    chat.bus.send_text(turn, &phrase.text(language));
    chat.bus.finish_reply(turn);
    Ended {
        end,
        conversation: None,
        is_acknowledged: false,
    }
}

/// Admits a turn and opens its picture. An error is how the turn ends, and what its user reads.
async fn prepare(
    chat: &Chat,
    turn: &Turn,
    message: &mut UserMessage,
) -> Result<(), (TurnEnd, Phrase<'static>)> {
    chat.admit_device_turn(turn).await.map_err(|exceeded| {
        debug!(%exceeded, turn = %turn.id, "turn refused");
        let phrase = match exceeded.quota {
            Quota::SpeechMinutesPerDay => Phrase::SpeechUsedUp,
            _ => Phrase::TalkUsedUp,
        };
        (TurnEnd::QuotaExceeded, phrase)
    })?;
    if let Some(picture) = turn.picture.clone() {
        let picture = Box::pin(ShownPicture::open(chat, message.org, picture));
        message.picture = Some(picture.await.map_err(|error| {
            error.log();
            (TurnEnd::Failed, error.phrase())
        })?);
    }
    Ok(())
}

/// Acknowledges a turn, with retries for the duration of its lease: another replica would answer
/// it again after that.
async fn acknowledge<F>(end: impl Fn() -> F, shutdown: &Shutdown) -> Result<(), BusError>
where
    F: Future<Output = Result<(), BusError>>,
{
    let deadline = Instant::now() + TURN_LEASE;
    let mut backoff = Backoff::new();
    loop {
        let Err(error) = end().await else {
            return Ok(());
        };
        if Instant::now() >= deadline || !backoff.pause_until_stopped(shutdown).await {
            return Err(error);
        }
    }
}

fn language_of(chat: &Chat, turn: &Turn, npc: Option<&Npc>) -> Language {
    let wanted = turn.locale.as_deref();
    user_message::language(&chat.bus, turn.device.org, &turn.text, wanted, npc)
}

fn user_message(chat: &Chat, turn: &Turn, npc: Option<Arc<Npc>>) -> UserMessage {
    UserMessage {
        org: turn.device.org,
        sender: Participant::Device(turn.device.clone()),
        registration: turn.registration,
        text: turn.text.clone(),
        played: turn.played.clone(),
        picture: None,
        language: language_of(chat, turn, npc.as_deref()),
        npc,
    }
}

/// Answers a turn.
async fn answer(chat: &Chat, (turn, message): (&Turn, UserMessage), active: &ActiveTurn) -> Ended {
    // The id is the same in every attempt.
    let exchange = message.start_exchange(turn.id.to_string());
    let sink = TurnSink::for_device(&chat.bus, turn, exchange.clone());
    if turn.has_side_effects && turn.attempts > 1 {
        sink.send_text(&Phrase::Interrupted.text(message.language));
        return close(chat, (turn, &message), sink, TurnEnd::Apologized).await;
    }
    if !turn.is_alone
        && message.supersedes_others()
        && let Err(error) = chat.bus.supersede_turns(turn).await
    {
        warn!(%error, "cannot stop the answer to an earlier turn");
    }
    let end = tokio::select! {
        end = answer::answer(chat, &message, &exchange, &sink) => end.into(),
        () = active.lease_lost() => TurnEnd::LeaseLost,
        // Dropping the answer cancels its calls and its request to the model.
        reason = active.stopped() => match reason {
            CancelReason::Unwanted => TurnEnd::Stopped,
            CancelReason::Superseded => TurnEnd::Superseded,
        },
    };
    if end == TurnEnd::LeaseLost {
        return Ended {
            end,
            conversation: None,
            is_acknowledged: false,
        };
    }
    close(chat, (turn, &message), sink, end).await
}

/// Stores the exchange and ends the reply, and meanwhile acknowledges the turn. The exchange is stored
/// before the acknowledgement, unless the conversation is not in memory, another replica has updated
/// it, or it is stored at another server.
async fn close(
    chat: &Chat,
    (turn, message): (&Turn, &UserMessage),
    sink: TurnSink<'_>,
    end: TurnEnd,
) -> Ended {
    let is_interrupted = matches!(
        end,
        TurnEnd::Stopped | TurnEnd::Superseded | TurnEnd::Apologized
    );
    let (conversation, acknowledged) = tokio::join!(
        biased;
        async {
            let conversation = answer::close(chat, message, sink, is_interrupted).await;
            if end != TurnEnd::Stopped {
                chat.bus.finish_reply(turn);
            }
            conversation
        },
        chat.bus.complete_turn(&turn.id),
    );
    Ended {
        end,
        conversation: conversation.map(|conversation| (message.key(), conversation)),
        is_acknowledged: acknowledged.is_ok(),
    }
}

impl From<AnswerEnd> for TurnEnd {
    fn from(end: AnswerEnd) -> Self {
        match end {
            AnswerEnd::Answered => Self::Answered,
            AnswerEnd::Failed => Self::Failed,
            AnswerEnd::LeaseLost => Self::LeaseLost,
        }
    }
}

async fn watch_cancellations(chat: Arc<Chat>, shutdown: Shutdown) {
    let mut cancellations = chat.bus.turn_cancellations();
    loop {
        tokio::select! {
            cancellation = cancellations.next() => chat.active_turns.cancel(&cancellation),
            () = wait_until_idle(&chat, &shutdown) => return,
        }
    }
}

async fn renew_leases(chat: Arc<Chat>, shutdown: Shutdown) {
    let mut ticks = tokio::time::interval(LEASE_RENEWAL_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = wait_until_idle(&chat, &shutdown) => return,
        }
        let turns = chat.active_turns.ids();
        if turns.is_empty() {
            continue;
        }
        match chat.bus.renew_turns(&turns).await {
            Ok(lost) => chat.active_turns.release(&lost),
            Err(error) => warn!(%error, "cannot renew the leases of active turns"),
        }
    }
}

/// Waits for the end of all turns after a drain: until then they are cancelled and renewed.
async fn wait_until_idle(chat: &Chat, shutdown: &Shutdown) {
    tokio::select! {
        () = chat.active_turns.wait_until_idle() => {}
        () = shutdown.stopping() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::atomic::{AtomicU32, Ordering},
    };

    use super::*;

    /// Number of attempts when the first `failing` ones fail, and whether one succeeded.
    async fn attempts(failing: u32) -> (u32, bool) {
        let count = AtomicU32::new(0);
        let end = || {
            let fails = count.fetch_add(1, Ordering::Relaxed) < failing;
            ready(if fails {
                Err(BusError::Unavailable)
            } else {
                Ok(())
            })
        };
        let is_acknowledged = acknowledge(end, &Shutdown::new()).await.is_ok();
        (count.into_inner(), is_acknowledged)
    }

    #[tokio::test(start_paused = true)]
    async fn turn_is_acknowledged_when_the_bus_is_back() {
        assert_eq!(attempts(0).await, (1, true));
        assert_eq!(attempts(7).await, (8, true));
        let started_at = Instant::now();
        let (_, is_acknowledged) = attempts(u32::MAX).await;
        assert!(!is_acknowledged);
        assert!(started_at.elapsed() < TURN_LEASE + Duration::from_secs(2));
    }
}
