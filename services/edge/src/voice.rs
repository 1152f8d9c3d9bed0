//! Spoken conversations: the audio of a device becomes a message of its user, and the reply is spoken.

mod listener;
mod metrics;
mod notices;
mod progress;
mod session;
mod speaker;
mod transcript;

use std::sync::Arc;

use switchboard_protocol::message::AudioTerms;
use switchboard_runtime::budget::{Budget, Budgets, Kind};
use switchboard_speech::Speech;

pub(crate) use self::metrics::VoiceMetrics;
use self::notices::{NO_RECOGNITION, NO_SYNTHESIS};
use crate::{config::Config, edge::Edge, handle::ConnectionHandle};

/// Memory of a conversation: codecs, detector, and the longest utterance.
const SESSION_BYTES: usize = 3 * 1024 * 1024;

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
        let share = (capacity / 4).max(1);
        Self {
            speech,
            sessions: budgets.slots("voice_sessions", capacity, Kind::Held { share }),
        }
    }

    /// What a spoken conversation of these terms lacks.
    pub(crate) fn notice(&self, terms: &AudioTerms) -> Option<&'static str> {
        let lacks_synthesis = terms.output.is_some() && self.speech.synthesizers.is_none();
        match &self.speech.recognizers {
            None => Some(NO_RECOGNITION),
            Some(_) => lacks_synthesis.then_some(NO_SYNTHESIS),
        }
    }
}

/// Serves the conversation of a connection until nothing more is said, or the connection ends.
pub(crate) async fn run(edge: Arc<Edge>, handle: Arc<ConnectionHandle>) {
    session::run(&edge, &handle).await;
    handle.cancel_spoken(&edge);
    handle.set_answering(false);
}
