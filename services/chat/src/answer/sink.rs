//! The sink of an answer: sends it to the device or the HTTP caller while it is produced, and
//! keeps the exchange for the conversation.

use std::mem;

use parking_lot::Mutex;
use switchboard_bus::{Bus, BusError, Turn};
use switchboard_phrases::{Language, Phrase};
use switchboard_tools::text::StreamCleaner;

use crate::{
    answer::retrieval::Source,
    conversation::model::{Exchange, ToolCallRecord},
    http::channel::{SseSender, StreamItem},
};

/// The destination of an answer, and the exchange so far.
pub(crate) struct TurnSink<'a> {
    destination: Destination<'a>,
    draft: Mutex<Draft>,
}

struct Draft {
    exchange: Exchange,
    /// Whether any text was sent, be it of the NPC or an apology.
    has_sent: bool,
    /// Whether the next text starts on a new line.
    starts_paragraph: bool,
    /// What the answer is based on, for a caller.
    sources: Vec<Source>,
    /// Whether a service was called, or is being called.
    has_side_effects: bool,
    cleaner: StreamCleaner,
}

enum Destination<'a> {
    Device { bus: &'a Bus, turn: &'a Turn },
    Caller(&'a SseSender),
}

/// The place of a call in the exchange, until the call has ended.
#[must_use]
pub(crate) struct PendingCall(usize);

/// Recorded result of a call that did not end before the answer.
const INTERRUPTED: &str =
    r#"{"success":false,"may_have_been_done":true,"error":"interrupted before its end"}"#;

/// Why no service may be called.
pub(crate) enum ToolCallsDenied {
    /// Another replica took the turn over, or the device cancelled it.
    LeaseLost,
    /// The bus could not record that the turn has side effects. A replica that takes the turn
    /// over would call the services again.
    NotRecorded(BusError),
}

impl<'a> TurnSink<'a> {
    pub(crate) fn for_device(bus: &'a Bus, turn: &'a Turn, exchange: Exchange) -> Self {
        Self::new(Destination::Device { bus, turn }, exchange)
    }

    pub(crate) fn for_caller(sender: &'a SseSender, exchange: Exchange) -> Self {
        Self::new(Destination::Caller(sender), exchange)
    }

    fn new(destination: Destination<'a>, exchange: Exchange) -> Self {
        Self {
            destination,
            draft: Mutex::new(Draft {
                exchange,
                has_sent: false,
                starts_paragraph: false,
                sources: Vec::new(),
                has_side_effects: false,
                cleaner: StreamCleaner::default(),
            }),
        }
    }

    /// Sends text immediately, except for trailing characters that the next text may complete.
    pub(crate) fn send_text(&self, text: &str) {
        let text = self.draft.lock().cleaner.push(text);
        self.send(text, true);
    }

    /// Sends the text that the cleaner still holds.
    pub(crate) fn flush(&self) {
        let text = self.draft.lock().cleaner.finish();
        self.send(text, true);
    }

    /// Sends an apology. It is not a part of the stored reply.
    pub(crate) fn send_apology(&self, phrase: Phrase<'_>, language: Language) {
        self.flush();
        self.draft.lock().starts_paragraph = true;
        self.send(phrase.text(language).into_owned(), false);
    }

    fn send(&self, text: String, is_stored: bool) {
        if text.is_empty() {
            return;
        }
        let mut draft = self.draft.lock();
        let starts_paragraph = mem::take(&mut draft.starts_paragraph) && draft.has_sent;
        let text = if starts_paragraph {
            format!("\n{text}")
        } else {
            text
        };
        draft.has_sent = true;
        if is_stored {
            draft.exchange.reply.push_str(&text);
        }
        drop(draft);
        match self.destination {
            Destination::Device { bus, turn } => bus.send_text(turn, &text),
            Destination::Caller(sender) => sender.send(StreamItem::Text(text)),
        }
    }

    /// Starts a new line with the next text, after a round of calls.
    pub(crate) fn start_paragraph(&self) {
        self.flush();
        self.draft.lock().starts_paragraph = true;
    }

    /// Records on the bus that the turn has side effects. Required before each round of calls,
    /// because the lease of the turn may be lost between two rounds.
    ///
    /// # Errors
    /// [`ToolCallsDenied`]: no service may be called.
    pub(crate) async fn mark_side_effects(&self) -> Result<(), ToolCallsDenied> {
        if let Destination::Device { bus, turn } = self.destination {
            match bus.mark_side_effects(&turn.id).await {
                Ok(true) => {}
                Ok(false) => return Err(ToolCallsDenied::LeaseLost),
                Err(error) => return Err(ToolCallsDenied::NotRecorded(error)),
            }
        }
        self.draft.lock().has_side_effects = true;
        Ok(())
    }

    /// Whether a service may have been called.
    pub(crate) fn has_side_effects(&self) -> bool {
        self.draft.lock().has_side_effects
    }

    /// Adds a call that starts now. Until [`Self::finish_call`] its result is `INTERRUPTED`.
    pub(crate) fn start_call(&self, call: ToolCallRecord) -> PendingCall {
        let calls = &mut self.draft.lock().exchange.calls;
        calls.push(ToolCallRecord {
            result: INTERRUPTED.to_owned(),
            ..call
        });
        PendingCall(calls.len().saturating_sub(1))
    }

    /// Sets the result of a call.
    pub(crate) fn finish_call(&self, PendingCall(index): PendingCall, result: &str) {
        let mut draft = self.draft.lock();
        let Some(call) = draft.exchange.calls.get_mut(index) else {
            return;
        };
        result.clone_into(&mut call.result);
        if let Destination::Caller(sender) = self.destination {
            sender.send(StreamItem::Call(call.clone()));
        }
    }

    /// Sets what the answer is based on.
    pub(crate) fn set_sources(&self, sources: Vec<Source>) {
        self.draft.lock().sources = sources;
    }

    /// Takes what the answer is based on.
    pub(crate) fn take_sources(&self) -> Vec<Source> {
        mem::take(&mut self.draft.lock().sources)
    }

    /// Whether the reply so far has any text.
    pub(crate) fn has_text(&self) -> bool {
        !self.draft.lock().exchange.reply.trim().is_empty()
    }

    /// The exchange at the end of the answer.
    pub(crate) fn into_exchange(self, is_interrupted: bool) -> Exchange {
        Exchange {
            is_interrupted,
            is_open: false,
            ..self.draft.into_inner().exchange
        }
    }
}
