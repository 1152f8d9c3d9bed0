//! Takes devices' turns from the bus and has them answered, as many at a time as there are slots.
//! Never: a second call for a turn that may have acted, or a turn that ends without being struck out.

use std::{sync::Arc, time::Duration};

use switchboard_bus::{BusError, ConversationKey, StopReason, TURN_LEASE, Turn};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown, span_from, trace};
use switchboard_store::Npc;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tracing::{Span, debug, field::Empty, warn};

use crate::{
    Chat,
    answering::{self, End},
    character::Unknown,
    conversation::{Conversation, Exchange},
    embedded::{Language, Phrases},
    hearer::Hearer,
    learning,
    metrics::TurnEnd,
    question::{Asker, Question},
    turns_under_way::{Begun, Counted},
};

/// How long one wait for turns lasts; there is always another.
const WAIT: Duration = Duration::from_secs(1);
/// Between two tries while the bus is away.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the bus is told that turns are still being answered.
const KEEP_EVERY: Duration = Duration::from_secs(3);

/// Answers turns until drained; those under way are answered to their end.
pub(crate) async fn run(chat: Arc<Chat>, shutdown: Shutdown) {
    shutdown.spawn(heed_stops(Arc::clone(&chat), shutdown.clone()));
    shutdown.spawn(keep_leases(Arc::clone(&chat), shutdown.clone()));
    while let Some(free) = take_slots(&chat.slots, &shutdown).await {
        // What is on its way when a drain begins is still taken: it would wait for a lease to end.
        let turns = tokio::select! {
            turns = chat.bus.take_turns(free.num_permits(), WAIT) => turns,
            () = shutdown.stopping() => break,
        };
        match turns {
            Ok(turns) => begin(&chat, turns, free, &shutdown),
            Err(error) => {
                warn!(%error, "no turns can be taken at the moment");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = shutdown.draining() => break,
                }
            }
        }
    }
}

/// Every slot that is free, one at least; `None` when draining begins.
async fn take_slots(slots: &Arc<Semaphore>, shutdown: &Shutdown) -> Option<OwnedSemaphorePermit> {
    if shutdown.is_draining() {
        return None;
    }
    let first = tokio::select! {
        first = Arc::clone(slots).acquire_owned() => first.ok(),
        () = shutdown.draining() => None,
    };
    let mut taken = first?;
    let more = u32::try_from(slots.available_permits()).unwrap_or_default();
    if let Ok(more) = Arc::clone(slots).try_acquire_many_owned(more) {
        taken.merge(more);
    }
    Some(taken)
}

fn begin(chat: &Arc<Chat>, turns: Vec<Turn>, mut slots: OwnedSemaphorePermit, shutdown: &Shutdown) {
    for turn in turns {
        let slot = slots.split(1);
        let begun = chat.under_way.begin(&chat.bus, &turn);
        let (chat, ending) = (Arc::clone(chat), shutdown.clone());
        let span = span_of(&turn);
        shutdown.spawn_in(span, async move {
            let answered = async {
                let left = take(&chat, turn, begun, &ending).await;
                // Nobody waits for what follows, and others want to be answered.
                drop(slot);
                if let Some((key, conversation)) = left {
                    learning::condense(&chat, &key, &conversation).await;
                }
            };
            tokio::select! {
                () = answered => {}
                // Another replica takes it over when its lease has ended.
                () = ending.stopping() => {}
            }
        });
    }
}

/// The answer's part of the trace that began with the device's words.
fn span_of(turn: &Turn) -> Span {
    span_from!(
        trace::begin(turn.trace.clone().into()),
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

/// Answers a turn to its end, or until it is stopped, and strikes it out; the conversation with it.
async fn take(
    chat: &Chat,
    turn: Turn,
    begun: Begun,
    shutdown: &Shutdown,
) -> Option<(ConversationKey, Conversation)> {
    let under_way = Counted::new(&chat.metrics.under_way);
    let (end, left) = match chat.characters.of(&chat.store, &turn.device).await {
        Ok(npc) => answer(chat, (&turn, question(&turn, npc)), &begun).await,
        Err(Unknown) => {
            let phrases = Phrases(Language::of(&turn.text, None));
            let end = say(chat, &turn, phrases.nobody_known(), TurnEnd::Failed);
            (end, None)
        }
    };
    drop(under_way);
    chat.metrics.ended(end);
    debug!(turn = %turn.id, ?end, "a turn has ended");
    if end != TurnEnd::LetGo
        && let Err(error) = strike_out(|| chat.bus.end_turn(&turn.id), shutdown).await
    {
        warn!(%error, "a turn that was answered could not be struck out");
    }
    left
}

/// Strikes a turn out, for as long as its lease may last: somebody else would answer it once more.
async fn strike_out<F>(end: impl Fn() -> F, shutdown: &Shutdown) -> Result<(), BusError>
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

fn question(turn: &Turn, npc: Option<Arc<Npc>>) -> Question {
    Question {
        org: turn.device.org,
        asker: Asker::Device(turn.device.clone()),
        text: turn.text.clone(),
        npc,
    }
}

/// Says something that is the whole answer.
fn say(chat: &Chat, turn: &Turn, words: &str, end: TurnEnd) -> TurnEnd {
    chat.bus.say(turn, words);
    chat.bus.finish(turn);
    end
}

/// How the turn ended, and the conversation with it.
async fn answer(
    chat: &Chat,
    (turn, question): (&Turn, Question),
    begun: &Begun,
) -> (TurnEnd, Option<(ConversationKey, Conversation)>) {
    // The same for whoever takes the turn over.
    let exchange = Exchange::begin(turn.id.to_string(), &turn.text);
    let hearer = Hearer::device(&chat.bus, turn, exchange.clone());
    if turn.acted && turn.attempts > 1 {
        let phrases = answering::phrases(&question, &turn.text);
        hearer.say(phrases.interrupted());
        let conversation = answering::close(chat, &question, hearer, true).await;
        chat.bus.finish(turn);
        return (
            TurnEnd::Apologised,
            conversation.map(|conversation| (question.key(), conversation)),
        );
    }
    if question.ends_others()
        && let Err(error) = chat.bus.supersede_turns(turn).await
    {
        warn!(%error, "an older answer could not be stopped");
    }
    let end = tokio::select! {
        end = answering::answer(chat, &question, &exchange, &hearer) => end.into(),
        () = begun.lost() => TurnEnd::LetGo,
        // Dropping the answer is what cancels calls and questions under way.
        why = begun.stopped() => match why {
            StopReason::Unwanted => TurnEnd::Stopped,
            StopReason::Superseded => TurnEnd::Superseded,
        },
    };
    if end == TurnEnd::LetGo {
        return (end, None);
    }
    let is_interrupted = matches!(end, TurnEnd::Stopped | TurnEnd::Superseded);
    let conversation = answering::close(chat, &question, hearer, is_interrupted).await;
    if end != TurnEnd::Stopped {
        chat.bus.finish(turn);
    }
    (
        end,
        conversation.map(|conversation| (question.key(), conversation)),
    )
}

impl From<End> for TurnEnd {
    fn from(end: End) -> Self {
        match end {
            End::Answered => Self::Answered,
            End::Failed => Self::Failed,
            End::LetGo => Self::LetGo,
        }
    }
}

async fn heed_stops(chat: Arc<Chat>, shutdown: Shutdown) {
    let mut stops = chat.bus.stops();
    loop {
        tokio::select! {
            stop = stops.next() => chat.under_way.stop(&stop),
            () = until_idle(&chat, &shutdown) => return,
        }
    }
}

async fn keep_leases(chat: Arc<Chat>, shutdown: Shutdown) {
    let mut ticks = tokio::time::interval(KEEP_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = until_idle(&chat, &shutdown) => return,
        }
        let turns = chat.under_way.ids();
        if turns.is_empty() {
            continue;
        }
        match chat.bus.keep_turns(&turns).await {
            Ok(lost) => chat.under_way.lose(&lost),
            Err(error) => warn!(%error, "the leases of turns under way could not be renewed"),
        }
    }
}

/// Turns under way at a drain still have to be stoppable and kept.
async fn until_idle(chat: &Chat, shutdown: &Shutdown) {
    shutdown.draining().await;
    tokio::select! {
        () = chat.under_way.idle(WAIT) => {}
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

    /// How often it is tried when so many tries fail, and what came of it.
    async fn tries(failing: u32) -> (u32, bool) {
        let tried = AtomicU32::new(0);
        let end = || {
            let fails = tried.fetch_add(1, Ordering::Relaxed) < failing;
            ready(if fails {
                Err(BusError::Unavailable)
            } else {
                Ok(())
            })
        };
        let is_struck_out = strike_out(end, &Shutdown::new()).await.is_ok();
        (tried.into_inner(), is_struck_out)
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_struck_out_when_the_bus_is_back() {
        assert_eq!(tries(0).await, (1, true));
        assert_eq!(tries(7).await, (8, true));
        let begun = Instant::now();
        let (_, is_struck_out) = tries(u32::MAX).await;
        assert!(!is_struck_out);
        assert!(begun.elapsed() < TURN_LEASE + Duration::from_secs(2));
    }
}
