//! Builds a reply from its chunks. Text is forwarded to the sink before the next chunk is awaited.
//! Invariant: reported usage is counted once, even when the reply is dropped.

use std::mem;

use crate::{
    FinishReason, Reply, ReplySink, Usage,
    chunk::{self, CallPart, Chunk, Delta},
    deadlines::Progress,
    failure::Failure,
    metrics::RequestTimer,
    settings::Prices,
    tool_calls::ToolCallAssembler,
};

/// Maximum bytes of text and arguments.
const MAX_REPLY_BYTES: usize = 1024 * 1024;

pub(crate) struct ReplyBuilder<'a> {
    sink: &'a mut dyn ReplySink,
    timer: RequestTimer<'a>,
    prices: Prices,
    text: String,
    /// How many bytes of the text the sink has.
    forwarded: usize,
    calls: ToolCallAssembler,
    finish_reason: Option<FinishReason>,
    usage: Option<chunk::Usage>,
    progress: Progress,
}

impl<'a> ReplyBuilder<'a> {
    pub(crate) fn new(
        sink: &'a mut dyn ReplySink,
        timer: RequestTimer<'a>,
        prices: Prices,
    ) -> Self {
        Self {
            sink,
            timer,
            prices,
            text: String::new(),
            forwarded: 0,
            calls: ToolCallAssembler::default(),
            finish_reason: None,
            usage: None,
            progress: Progress::default(),
        }
    }

    pub(crate) const fn progress(&self) -> Progress {
        self.progress
    }

    /// Whether the provider sent a finish reason. Its usage may follow.
    pub(crate) const fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Ends the reply, when the provider sent no finish reason.
    pub(crate) fn finish(&mut self) {
        self.finish_reason.get_or_insert(FinishReason::Stop);
    }

    /// Adds a chunk, or a whole reply. Returns whether it contains a reply.
    pub(crate) fn push(&mut self, chunk: Chunk, whole: bool) -> Result<bool, Failure> {
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage);
        }
        let mut found = false;
        for choice in chunk.choices.unwrap_or_default() {
            // One choice was requested; some providers send more.
            if choice.index.unwrap_or(0) != 0 || (whole && found) {
                continue;
            }
            // Some providers repeat the whole message at the end of a stream.
            let message = choice
                .message
                .filter(|_| whole || self.progress == Progress::Nothing);
            if let Some(delta) = choice.delta.or(message) {
                self.push_delta(delta, whole)?;
                found = true;
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish_reason = Some(FinishReason::parse(&reason));
            }
        }
        Ok(found)
    }

    fn push_delta(&mut self, mut delta: Delta, whole: bool) -> Result<(), Failure> {
        let mut calls = delta.tool_calls.take().unwrap_or_default();
        if let Some(function) = delta.function_call.take()
            && calls.is_empty()
        {
            calls.push(CallPart {
                function: Some(function),
                ..CallPart::default()
            });
        }
        let progress = if delta.texts().next().is_some() || !calls.is_empty() {
            Progress::Content
        } else if delta.has_reasoning() {
            Progress::Reasoning
        } else {
            Progress::Nothing
        };
        if self.progress == Progress::Nothing && progress > Progress::Nothing {
            self.timer.record_first_token();
        }
        self.progress = self.progress.max(progress);
        for text in delta.texts() {
            self.check_length(text.len())?;
            self.text.push_str(text);
        }
        self.calls.push(calls, whole)?;
        self.check_length(0)
    }

    /// Forwards the text of the chunks so far.
    pub(crate) fn flush(&mut self) {
        let text = self.text.get(self.forwarded..).unwrap_or_default();
        if !text.is_empty() {
            self.sink.on_text(text);
            self.forwarded = self.text.len();
        }
    }

    fn check_length(&self, more: usize) -> Result<(), Failure> {
        let length = self.text.len().saturating_add(self.calls.bytes());
        if length.saturating_add(more) > MAX_REPLY_BYTES {
            let reason = format!("the reply has more than {MAX_REPLY_BYTES} bytes");
            return Err(Failure::Invalid(reason));
        }
        Ok(())
    }

    /// The reply after the end of the request. An error includes whether a part of the text was
    /// sent.
    pub(crate) fn build(
        mut self,
        result: Result<(), Failure>,
        provider: &str,
    ) -> Result<Reply, (Failure, bool)> {
        self.flush();
        let is_partial = !self.text.is_empty();
        let calls = mem::take(&mut self.calls);
        let is_cut_off = self.finish_reason == Some(FinishReason::Length);
        let calls = match result.and_then(|()| Ok(calls.finish(is_cut_off)?)) {
            Ok(calls) => calls,
            Err(failure) => {
                let error = if is_partial {
                    failure.clone().after_partial_reply()
                } else {
                    failure.clone().into_error()
                };
                self.timer.fail(error.kind());
                return Err((failure, is_partial));
            }
        };
        self.timer.complete();
        Ok(Reply {
            text: mem::take(&mut self.text),
            finish_reason: self
                .finish_reason
                .unwrap_or(FinishReason::Other)
                .with_calls(!calls.is_empty()),
            calls,
            usage: Usage::from_chunk(self.usage.as_ref(), self.prices),
            provider: provider.to_owned(),
        })
    }
}

/// Counts the reported usage. It is charged even when the reply is incomplete or cancelled.
impl Drop for ReplyBuilder<'_> {
    fn drop(&mut self) {
        if self.usage.is_some() {
            let usage = Usage::from_chunk(self.usage.as_ref(), self.prices);
            self.timer.record_usage(&usage);
            self.sink.on_usage(&usage);
        }
    }
}
