//! Spoken conversations: the audio of a device becomes a message of its user, and the reply is spoken.

mod answer;
mod listener;
mod metrics;
mod notices;
mod progress;
mod session;
mod speaker;
mod speed;
mod transcript;

use std::{sync::Arc, time::Duration};

use switchboard_phrases::Phrase;
use switchboard_protocol::message::{AudioTerms, Listen, ServerVoice, VoiceProblem};
use switchboard_runtime::budget::{Budget, Budgets, Kind};
use switchboard_speech::Speech;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

pub(crate) use self::metrics::{Packet, VoiceMetrics};
use self::{notices::describe, session::Session};
use crate::{
    config::Config,
    edge::Edge,
    handle::{ConnectionHandle, VoiceFrame, VoiceInput},
};

/// Memory of a conversation: codecs, detector, the longest utterance, and its recording.
const SESSION_BYTES: usize = 7 * 1024 * 1024 / 2;

/// For how long the device's audio is ignored after a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// What all conversations of an edge share.
pub(crate) struct Voices {
    speech: Speech,
    /// Conversations at the same time.
    sessions: Budget,
}

impl Voices {
    pub(crate) fn new(config: &Config, speech: Speech, budgets: &Budgets) -> Self {
        let capacity = config.voice_max_sessions;
        budgets.reserve("voice_sessions", capacity.saturating_mul(SESSION_BYTES));
        Self {
            speech,
            sessions: budgets.slots("voice_sessions", capacity, Kind::quarter_of(capacity)),
        }
    }

    /// What a spoken conversation of these terms lacks.
    pub(crate) fn notice(&self, terms: &AudioTerms) -> Option<Phrase<'static>> {
        let lacks_synthesis = terms.output.is_some() && self.speech.synthesizers.is_none();
        match &self.speech.recognizers {
            None => Some(Phrase::NoRecognition),
            Some(_) => lacks_synthesis.then_some(Phrase::NoSynthesis),
        }
    }
}

/// Serves the conversation of a connection until nothing more is said, or the connection ends.
pub(crate) async fn run(edge: Arc<Edge>, handle: Arc<ConnectionHandle>) {
    let Some((terms, changed)) = handle.voice() else {
        return;
    };
    let Ok(_permit) = edge.voice.sessions.try_acquire(handle.owner(), 1) else {
        return refuse(&edge, &handle, &changed).await;
    };
    let sessions = &edge.metrics.voice.sessions;
    sessions.inc();
    Session::new(&edge, &handle, terms).run(&changed).await;
    sessions.dec();
    handle.cancel_spoken(&edge);
    handle.set_answering(false);
}

/// There is no room. For a while, the device learns that for each of its messages.
async fn refuse(edge: &Edge, handle: &ConnectionHandle, changed: &Notify) {
    let until = Instant::now() + REFUSAL_TIMEOUT;
    let mut has_reported = false;
    // The task of a message that ended with `listen: stop`; END may follow.
    let mut stopped = None;
    loop {
        for input in handle.take_voice_inputs().into_iter().flatten() {
            let task = match &input {
                VoiceInput::End { task } if stopped.take() == Some(*task) => continue,
                VoiceInput::End { task } => Some(*task),
                VoiceInput::Listen { task, listen } if *listen == Listen::Stop => {
                    stopped = Some(*task);
                    stopped
                }
                _ => None,
            };
            if let Some(task) = task.or_else(|| input.task().filter(|_| !has_reported)) {
                has_reported = true;
                let problem = VoiceProblem::Overloaded;
                let detail = describe(problem).text(handle.language(edge));
                let message = ServerVoice::Problem { problem, detail };
                handle.send_voice_message(task, &message);
            }
            if let Some(task) = task {
                handle.withdraw_picture(edge, task);
                handle.send_voice([VoiceFrame::Unanswered { task }]);
            }
        }
        let is_over = timeout_at(until, changed.notified()).await.is_err();
        if is_over && handle.end_voice() {
            return;
        }
        if is_over {
            // The device does not read, so its inputs are not taken.
            changed.notified().await;
        }
    }
}
