//! A reply while it is heard: words go on at once, calls are put together, the rest is remembered.
//! Never: a word kept back, one heard twice, or a reply that somebody pays for and nobody counts.

use std::mem;

use crate::{
    Ear, Finish, Reply, Usage,
    assembly::Assembly,
    chunk::{self, CallPart, Chunk, Delta},
    failure::Failure,
    metrics::Asked,
    patience::Progress,
    settings::Prices,
};

/// The longest reply, in bytes of words and arguments.
const LONGEST_REPLY: usize = 1024 * 1024;

/// Hears a reply. What is said goes to the given ear the moment it is read.
pub(crate) struct Reading<'a> {
    ear: &'a mut dyn Ear,
    asked: Asked<'a>,
    prices: Prices,
    text: String,
    calls: Assembly,
    finish: Option<Finish>,
    usage: Option<chunk::Usage>,
    progress: Progress,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(ear: &'a mut dyn Ear, asked: Asked<'a>, prices: Prices) -> Self {
        Self {
            ear,
            asked,
            prices,
            text: String::new(),
            calls: Assembly::default(),
            finish: None,
            usage: None,
            progress: Progress::default(),
        }
    }

    /// How far it has come.
    pub(crate) const fn progress(&self) -> Progress {
        self.progress
    }

    /// Whether the provider said that this is all; what is said of its cost may follow.
    pub(crate) const fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Nothing follows, whatever was said before.
    pub(crate) fn end(&mut self) {
        self.finish.get_or_insert(Finish::Stop);
    }

    /// Takes a piece of the reply, or the whole of it. Whether there was a reply in it.
    pub(crate) fn take(&mut self, chunk: Chunk, whole: bool) -> Result<bool, Failure> {
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage);
        }
        let mut found = false;
        for choice in chunk.choices.unwrap_or_default() {
            // Only one was asked for; whoever sends more is heard once.
            if choice.index.unwrap_or(0) != 0 || (whole && found) {
                continue;
            }
            // There are some that repeat the whole message at the end of a stream.
            let message = choice
                .message
                .filter(|_| whole || self.progress == Progress::Nothing);
            if let Some(delta) = choice.delta.or(message) {
                self.hear(delta, whole)?;
                found = true;
            }
            if let Some(word) = choice.finish_reason.filter(|word| !word.is_empty()) {
                self.finish = Some(Finish::of(&word));
            }
        }
        Ok(found)
    }

    fn hear(&mut self, mut delta: Delta, whole: bool) -> Result<(), Failure> {
        let mut calls = delta.tool_calls.take().unwrap_or_default();
        if let Some(function) = delta.function_call.take()
            && calls.is_empty()
        {
            calls.push(CallPart {
                function: Some(function),
                ..CallPart::default()
            });
        }
        let said = if delta.words().next().is_some() || !calls.is_empty() {
            Progress::Words
        } else if delta.thinks() {
            Progress::Thoughts
        } else {
            Progress::Nothing
        };
        if self.progress == Progress::Nothing && said > Progress::Nothing {
            self.asked.first_token();
        }
        self.progress = self.progress.max(said);
        for words in delta.words() {
            self.must_have_room_for(words.len())?;
            self.ear.hear(words);
            self.text.push_str(words);
        }
        self.calls.take(calls, whole)?;
        self.must_have_room_for(0)
    }

    fn must_have_room_for(&self, more: usize) -> Result<(), Failure> {
        let length = self.text.len().saturating_add(self.calls.bytes());
        if length.saturating_add(more) > LONGEST_REPLY {
            let reason = format!("it has more than {LONGEST_REPLY} bytes");
            return Err(Failure::Broken(reason));
        }
        Ok(())
    }

    /// The whole reply, or why there is none, and whether some of it was heard.
    pub(crate) fn settle(
        mut self,
        ended: Result<(), Failure>,
        provider: &str,
    ) -> Result<Reply, (Failure, bool)> {
        let was_heard = !self.text.is_empty();
        let calls = mem::take(&mut self.calls);
        let is_cut_off = self.finish == Some(Finish::Length);
        let calls = match ended.and_then(|()| Ok(calls.finish(is_cut_off)?)) {
            Ok(calls) => calls,
            Err(failure) => {
                let error = if was_heard {
                    failure.clone().after_words()
                } else {
                    failure.clone().into_error()
                };
                self.asked.fail(error.kind());
                return Err((failure, was_heard));
            }
        };
        self.asked.complete();
        Ok(Reply {
            text: mem::take(&mut self.text),
            finish: self.finish.unwrap_or(Finish::Other).with(!calls.is_empty()),
            calls,
            usage: Usage::of(self.usage.as_ref(), self.prices),
            provider: provider.to_owned(),
        })
    }
}

/// What a provider says that a reply takes is to be paid, whole or broken, waited for or not.
impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if self.usage.is_some() {
            let usage = Usage::of(self.usage.as_ref(), self.prices);
            self.asked.takes(&usage);
            self.ear.takes(&usage);
        }
    }
}
