//! Answers by a language model: rounds of text and tool calls until the model calls nothing.

use std::mem;

use futures_util::{
    FutureExt as _,
    stream::{self, StreamExt as _},
};
use serde_json::Map;
use switchboard_completions::{
    CompletionError, FinishReason, Message, ModelPreference, Providers, Reply, ReplySink, Request,
    ToolCall, Usage,
};
use switchboard_phrases::Phrase;
use tracing::{info, warn};

use crate::{
    Chat,
    answer::{
        AnswerEnd, Context,
        prompt::{self, Fence},
        retrieval,
        sink::{PendingCall, ToolCallsDenied, TurnSink},
        tool_call::{self, ServiceCall},
        tools::Callable,
    },
    conversation::model::{Conversation, ToolCallRecord},
};

/// Concurrent calls of one round. Protects the device.
const MAX_CONCURRENT_CALLS: usize = 8;

/// Bytes of all results that a model receives for one answer. Limits context and cost.
const MAX_RESULTS_BYTES: usize = 128 * 1024;
const RESULT_OMITTED: &str = "The result is left out: too much was read for this answer already.";

/// Appended to an answer that exceeded the model's output limit.
const TRUNCATED: &str = "…";

/// Answers a message.
pub(crate) async fn answer(
    chat: &Chat,
    providers: &Providers,
    context: &Context<'_>,
    sink: &TurnSink<'_>,
) -> AnswerEnd {
    let retrieved = retrieval::retrieve(&chat.store, chat.embedder.as_ref(), context.message).await;
    sink.set_sources(retrieved.sources());
    let new;
    let conversation = match context.conversation {
        Some(conversation) => conversation,
        None => {
            new = Conversation::new(None, None);
            &new
        }
    };
    let mut session = Session {
        chat,
        context,
        sink,
        fence: Fence::new(conversation),
        request: request(context),
        result_bytes_left: MAX_RESULTS_BYTES,
    };
    session.request.messages = prompt::messages(context, &retrieved, &session.fence);
    for round in 0..=chat.max_rounds {
        session.request.allows_calls = round < chat.max_rounds;
        let mut reply_sink = ForwardingSink {
            chat,
            context,
            sink,
        };
        let reply = providers.complete(&session.request, context.deadline, &mut reply_sink);
        let reply = match reply.await {
            Ok(reply) => reply,
            Err(error) => return session.fail(&error),
        };
        if reply.calls.is_empty() || !session.request.allows_calls {
            return session.finish(&reply);
        }
        match session.call_tools(reply).await {
            Ok(()) => {}
            Err(ToolCallsDenied::LeaseLost) => return AnswerEnd::LeaseLost,
            Err(ToolCallsDenied::NotRecorded(error)) => {
                warn!(%error, "cannot record a call for a turn; it is not made");
                return session.apologize(Phrase::ServicesUnreachable);
            }
        }
    }
    session.apologize(Phrase::NoAnswer)
}

/// A request with the NPC's settings and the tools.
pub(crate) fn request(context: &Context<'_>) -> Request {
    let model = context.message.npc.as_ref();
    let model = model.and_then(|npc| npc.effective.settings.model.as_ref());
    Request {
        messages: Vec::new(),
        tools: context.tools.tools(&context.message.text),
        allows_calls: true,
        preference: model.map(|model| ModelPreference {
            provider: model.provider.clone(),
            model: model.model.clone(),
        }),
        temperature: model.and_then(|model| model.temperature).map(to_f32),
        max_tokens: model.and_then(|model| model.max_tokens),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "0 to 2; seven digits are enough"
)]
fn to_f32(temperature: f64) -> f32 {
    temperature as f32
}

/// Forwards the text of a reply to the answer's sink and counts its usage.
struct ForwardingSink<'a> {
    chat: &'a Chat,
    context: &'a Context<'a>,
    sink: &'a TurnSink<'a>,
}

impl ReplySink for ForwardingSink<'_> {
    fn on_text(&mut self, text: &str) {
        self.sink.send_text(text);
    }

    fn on_usage(&mut self, usage: &Usage) {
        self.chat
            .usage
            .count_tokens(self.context.message.usage_of(), usage);
    }
}

/// One answer in progress.
struct Session<'a> {
    chat: &'a Chat,
    context: &'a Context<'a>,
    sink: &'a TurnSink<'a>,
    fence: Fence,
    request: Request,
    result_bytes_left: usize,
}

impl Session<'_> {
    /// Makes the calls of a round, and adds them and their results to the request.
    async fn call_tools(&mut self, mut reply: Reply) -> Result<(), ToolCallsDenied> {
        self.sink.start_paragraph();
        let calls = mem::take(&mut reply.calls);
        let session = &*self;
        let resolved: Vec<_> = calls.iter().map(|call| session.resolve(call)).collect();
        if resolved.iter().any(Result::is_ok) {
            session.sink.mark_side_effects().await?;
        }
        let results = calls.iter().zip(resolved).map(|(call, resolved)| {
            let result = async move {
                match resolved {
                    Ok(service_call) => session.call(call, service_call).await,
                    Err(error) => error,
                }
            };
            result.boxed()
        });
        let results: Vec<_> = results.collect();
        let results = stream::iter(results).buffered(MAX_CONCURRENT_CALLS);
        let results: Vec<_> = results.collect().await;
        let messages = &mut self.request.messages;
        let ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
        messages.push(Message::Assistant {
            text: reply.text,
            calls,
            provider: Some(reply.provider),
        });
        for (call_id, text) in ids.into_iter().zip(results) {
            let text = fit_result(text, &mut self.result_bytes_left);
            messages.push(Message::ToolResult { call_id, text });
        }
        Ok(())
    }

    /// The service that a call means, or an error for the model.
    fn resolve(&self, call: &ToolCall) -> Result<ServiceCall<'_>, String> {
        let Some(callable) = self.context.tools.find(&call.name) else {
            info!(tool = call.name, "a model called an unknown tool");
            let tools = self.request.tools.iter();
            let names: Vec<_> = tools.map(|tool| tool.name.as_str()).collect();
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Err(format!(
                "Not called: there is no tool {:?}. There are: {names}.",
                call.name,
            ));
        };
        let Ok(params) = &call.arguments else {
            let error = "Not called: the arguments are no JSON object.";
            let pending = self.start(call, &callable, Map::new());
            self.sink.finish_call(pending, error);
            return Err(format!("{error} Give one that fits the tool's parameters."));
        };
        Ok(ServiceCall {
            callable,
            params: params.clone(),
            npc: self.context.message.npc.as_ref().map(|npc| npc.id),
            deadline: self.context.deadline,
        })
    }

    /// Makes a call and returns its result for the model.
    async fn call(&self, call: &ToolCall, service_call: ServiceCall<'_>) -> String {
        let params = service_call.params.clone();
        let pending = self.start(call, &service_call.callable, params);
        let end = tool_call::perform(self.chat, service_call).await;
        let result = tool_call::as_json(&end);
        self.sink.finish_call(pending, &result);
        self.fence.wrap(&call.name, &result)
    }

    fn start(
        &self,
        call: &ToolCall,
        callable: &Callable<'_>,
        params: Map<String, serde_json::Value>,
    ) -> PendingCall {
        self.sink.start_call(ToolCallRecord {
            device: callable.device.device.clone(),
            tool: call.name.clone(),
            params,
            result: String::new(),
        })
    }

    /// Ends the answer with the last reply. An answer without any text becomes an apology, and so
    /// does a reply without text that was cut off or has calls.
    fn finish(&self, reply: &Reply) -> AnswerEnd {
        let is_cut_off = reply.finish_reason == FinishReason::Length;
        let is_empty = reply.text.trim().is_empty();
        let is_incomplete = is_cut_off || !reply.calls.is_empty();
        if is_empty && (is_incomplete || !self.sink.has_text()) {
            return self.apologize(Phrase::NoAnswer);
        }
        if is_cut_off {
            self.sink.send_text(TRUNCATED);
        }
        AnswerEnd::Answered
    }

    fn fail(&self, error: &CompletionError) -> AnswerEnd {
        warn!(%error, "no model answered a turn");
        self.apologize(match error {
            CompletionError::Interrupted(_) => Phrase::LostThread,
            CompletionError::TimedOut => Phrase::TimedOut,
            _ => Phrase::NoModel,
        })
    }

    /// Sends an apology. After a call it does not invite the user to ask again.
    fn apologize(&self, phrase: Phrase<'_>) -> AnswerEnd {
        let phrase = if self.sink.has_side_effects() {
            Phrase::MayBeDone
        } else {
            phrase
        };
        let language = self.context.message.language;
        self.sink.send_apology(phrase, language);
        AnswerEnd::Failed
    }
}

/// The result, or a note when too few bytes are left.
fn fit_result(result: String, left: &mut usize) -> String {
    let Some(rest) = left.checked_sub(result.len()) else {
        return RESULT_OMITTED.to_owned();
    };
    *left = rest;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_beyond_the_limit_are_omitted() {
        let mut left = 10;
        let mut fit = |result: &str| fit_result(result.to_owned(), &mut left);
        assert_eq!(fit("12345678"), "12345678");
        assert_eq!(fit("123"), RESULT_OMITTED);
        assert_eq!(fit("12"), "12");
        assert_eq!(fit("1"), RESULT_OMITTED);
    }
}
