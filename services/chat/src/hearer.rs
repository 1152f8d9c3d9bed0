//! Whoever hears an answer while it is being given, and what they have heard.
//! Never: a piece held back, or a service called before it is noted that one is.

use std::mem;

use parking_lot::Mutex;
use switchboard_bus::{Bus, BusError, Turn};
use switchboard_tools::text::StreamCleaner;

use crate::{
    conversation::{Called, Exchange},
    line::{Line, Piece},
};

/// An answer on its way.
pub(crate) struct Hearer<'a> {
    to: To<'a>,
    draft: Mutex<Draft>,
}

/// What was said and done so far.
struct Draft {
    exchange: Exchange,
    /// Whether something was heard, be it of the character or an apology.
    is_heard: bool,
    /// Whether the next words follow on others that they do not belong to.
    is_apart: bool,
    /// Whether a service was called, or is being called.
    has_acted: bool,
    cleaner: StreamCleaner,
}

enum To<'a> {
    Device { bus: &'a Bus, turn: &'a Turn },
    Caller(&'a Line),
}

/// A call of which the end is not known yet.
#[must_use]
pub(crate) struct UnderWay(usize);

/// What came of a call that was interrupted.
const UNKNOWN: &str =
    r#"{"success":false,"may_have_been_done":true,"error":"interrupted before its end"}"#;

/// Why nothing may be called.
pub(crate) enum NotActing {
    /// Another replica has the turn, or its device took it back.
    NotOurs,
    /// Without the note nobody would know of the call.
    NotNoted(BusError),
}

impl<'a> Hearer<'a> {
    pub(crate) fn device(bus: &'a Bus, turn: &'a Turn, exchange: Exchange) -> Self {
        Self::new(To::Device { bus, turn }, exchange)
    }

    pub(crate) fn caller(line: &'a Line, exchange: Exchange) -> Self {
        Self::new(To::Caller(line), exchange)
    }

    fn new(to: To<'a>, exchange: Exchange) -> Self {
        Self {
            to,
            draft: Mutex::new(Draft {
                exchange,
                is_heard: false,
                is_apart: false,
                has_acted: false,
                cleaner: StreamCleaner::default(),
            }),
        }
    }

    /// Says the next words, at once; what may belong to a character that is not whole yet waits for the rest of it.
    pub(crate) fn say(&self, text: &str) {
        let text = self.draft.lock().cleaner.next(text);
        self.pass_on(text, true);
    }

    /// Says what still waits.
    pub(crate) fn flush(&self) {
        let text = self.draft.lock().cleaner.rest();
        self.pass_on(text, true);
    }

    /// Says what is no word of the character, and is not remembered as one: why there is no answer, or no more of it.
    pub(crate) fn apologise(&self, text: &str) {
        self.flush();
        self.draft.lock().is_apart = true;
        self.pass_on(text.to_owned(), false);
    }

    fn pass_on(&self, text: String, is_remembered: bool) {
        if text.is_empty() {
            return;
        }
        let mut draft = self.draft.lock();
        let apart = mem::take(&mut draft.is_apart) && draft.is_heard;
        let text = if apart { format!("\n{text}") } else { text };
        draft.is_heard = true;
        if is_remembered {
            draft.exchange.answered.push_str(&text);
        }
        drop(draft);
        match self.to {
            To::Device { bus, turn } => bus.say(turn, &text),
            To::Caller(line) => line.send(Piece::Text(text)),
        }
    }

    /// The next words do not belong to those before: a round of calls lies between them.
    pub(crate) fn pause(&self) {
        self.flush();
        self.draft.lock().is_apart = true;
    }

    /// Whether services may be called now, which is asked before each round of calls: meanwhile another may have taken the turn
    /// over. It is noted that some are.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) async fn begin_to_act(&self) -> Result<(), NotActing> {
        if let To::Device { bus, turn } = self.to {
            match bus.turn_acted(&turn.id).await {
                Ok(true) => {}
                Ok(false) => return Err(NotActing::NotOurs),
                Err(error) => return Err(NotActing::NotNoted(error)),
            }
        }
        self.draft.lock().has_acted = true;
        Ok(())
    }

    /// Whether something that was asked for may have been done.
    pub(crate) fn has_acted(&self) -> bool {
        self.draft.lock().has_acted
    }

    /// A service is being called. Until it is known what comes of it, it may have been done.
    pub(crate) fn calls(&self, call: Called) -> UnderWay {
        let calls = &mut self.draft.lock().exchange.calls;
        calls.push(Called {
            result: UNKNOWN.to_owned(),
            ..call
        });
        UnderWay(calls.len().saturating_sub(1))
    }

    /// This came of the call.
    pub(crate) fn called(&self, UnderWay(place): UnderWay, result: &str) {
        let mut draft = self.draft.lock();
        let Some(call) = draft.exchange.calls.get_mut(place) else {
            return;
        };
        result.clone_into(&mut call.result);
        if let To::Caller(line) = self.to {
            line.send(Piece::Call(call.clone()));
        }
    }

    /// The answer asks for the rest of this question.
    pub(crate) fn asks_about(&self, question: &str) {
        self.draft.lock().exchange.asks_about = Some(question.to_owned());
    }

    pub(crate) fn has_said_something(&self) -> bool {
        !self.draft.lock().exchange.answered.trim().is_empty()
    }

    /// The exchange as far as it came.
    pub(crate) fn into_exchange(self, is_interrupted: bool) -> Exchange {
        Exchange {
            is_interrupted,
            is_open: false,
            ..self.draft.into_inner().exchange
        }
    }
}
