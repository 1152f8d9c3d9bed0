//! An answer of a language model: rounds of words and calls, until it has no more to ask of the device.
//! Never: a tool that does not exist called, a round without an end, or words said twice because a provider failed.

use std::mem;

use futures_util::{
    FutureExt as _,
    stream::{self, StreamExt as _},
};
use serde_json::{Map, Value};
use switchboard_completions::{
    CompletionError, Ear, Finish, Message, Preferred, Providers, Reply, Request, ToolCall, Usage,
};
use switchboard_protocol::id::DeviceKey;
use tracing::{info, warn};

use crate::{
    Chat,
    answering::{Context, End},
    conversation::{Called, Conversation},
    embedded::{Ability, Phrases},
    hearer::{Hearer, NotActing, UnderWay},
    knowledge,
    prompt::{self, Fence},
    service_call::{self, Use},
};

/// Calls of one round that are made at the same time. Protects the device.
const CALLS_AT_ONCE: usize = 8;

/// What a model reads of results for one answer, in bytes. Protects its context, and purses.
const RESULTS_BYTES: usize = 128 * 1024;
const LEFT_OUT: &str = "The result is left out: too much was read for this answer already.";

/// Said of an answer that became too long for its model.
const CUT: &str = "…";

/// Answers a question to its end.
pub(crate) async fn answer(
    chat: &Chat,
    providers: &Providers,
    context: &Context<'_>,
    hearer: &Hearer<'_>,
) -> End {
    let known = knowledge::search(&chat.store, chat.questions.as_ref(), context.question).await;
    let begun;
    let conversation = match context.conversation {
        Some(conversation) => conversation,
        None => {
            begun = Conversation::begin(None, None);
            &begun
        }
    };
    let mut thread = Thread {
        chat,
        context,
        hearer,
        fence: Fence::of(conversation),
        request: request(context),
        results_left: RESULTS_BYTES,
    };
    thread.request.messages = prompt::messages(context, &known, &thread.fence);
    for round in 0..=chat.rounds {
        thread.request.may_call = round < chat.rounds;
        let mut telling = Telling {
            chat,
            context,
            hearer,
        };
        let reply = providers.complete(&thread.request, context.deadline, &mut telling);
        let reply = match reply.await {
            Ok(reply) => reply,
            Err(error) => return thread.fail(&error),
        };
        if reply.calls.is_empty() || !thread.request.may_call {
            return thread.end(&reply);
        }
        match thread.act(reply).await {
            Ok(()) => {}
            Err(NotActing::NotOurs) => return End::LetGo,
            Err(NotActing::NotNoted(error)) => {
                warn!(%error, "a call for a turn could not be noted, so it was not made");
                return thread.apologise(Phrases::unreachable);
            }
        }
    }
    thread.apologise(Phrases::speechless)
}

/// What every request for this character has in common.
pub(crate) fn request(context: &Context<'_>) -> Request {
    let model = context.question.npc.as_ref();
    let model = model.and_then(|npc| npc.effective.settings.model.as_ref());
    Request {
        messages: Vec::new(),
        tools: context.toolbox.tools(&context.question.text),
        may_call: true,
        preferred: model.map(|model| Preferred {
            provider: model.provider.clone(),
            model: model.model.clone(),
        }),
        temperature: model.and_then(|model| model.temperature).map(shortened),
        max_tokens: model.and_then(|model| model.max_tokens),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "0 to 2, of which nobody sees the eighth digit"
)]
fn shortened(temperature: f64) -> f32 {
    temperature as f32
}

/// Passes a reply's words on, and counts what it takes, whatever becomes of the turn.
struct Telling<'a> {
    chat: &'a Chat,
    context: &'a Context<'a>,
    hearer: &'a Hearer<'a>,
}

impl Ear for Telling<'_> {
    fn hear(&mut self, words: &str) {
        self.hearer.say(words);
    }

    fn takes(&mut self, usage: &Usage) {
        self.chat.usage.count_used(self.context.question.org, usage);
    }
}

/// A call that can be made.
type Wanted<'a> = (&'a DeviceKey, &'a Ability, Map<String, Value>);

/// One answer while it is being found.
struct Thread<'a> {
    chat: &'a Chat,
    context: &'a Context<'a>,
    hearer: &'a Hearer<'a>,
    fence: Fence,
    request: Request,
    /// What may still be read of results.
    results_left: usize,
}

impl Thread<'_> {
    /// Makes the calls of a round, and adds what came of them to what the model knows.
    async fn act(&mut self, mut reply: Reply) -> Result<(), NotActing> {
        self.hearer.pause();
        let calls = mem::take(&mut reply.calls);
        let thread = &*self;
        let found: Vec<_> = calls.iter().map(|call| thread.find(call)).collect();
        if found.iter().any(Result::is_ok) {
            thread.hearer.begin_to_act().await?;
        }
        let results = calls.iter().zip(found).map(|(call, found)| {
            let result = async move {
                match found {
                    Ok(wanted) => thread.call(call, wanted).await,
                    Err(told) => told,
                }
            };
            result.boxed()
        });
        let results: Vec<_> = results.collect();
        let results = stream::iter(results).buffered(CALLS_AT_ONCE);
        let results: Vec<_> = results.collect().await;
        let messages = &mut self.request.messages;
        let ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
        messages.push(Message::Assistant {
            text: reply.text,
            calls,
            provider: Some(reply.provider),
        });
        for (call_id, text) in ids.into_iter().zip(results) {
            let text = fitting(text, &mut self.results_left);
            messages.push(Message::ToolResult { call_id, text });
        }
        Ok(())
    }

    /// What is called, or what the model is told when that is nothing.
    fn find(&self, call: &ToolCall) -> Result<Wanted<'_>, String> {
        let toolbox = &self.context.toolbox;
        let Some((device, ability)) = toolbox.find(&call.name) else {
            info!(
                tool = call.name,
                "a model called a tool that does not exist"
            );
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
            let why = "Not called: the arguments are no JSON object.";
            let begun = self.begin(call, device, Map::new());
            self.hearer.called(begun, why);
            return Err(format!("{why} Give one that fits the tool's parameters."));
        };
        Ok((device, ability, params.clone()))
    }

    /// Makes a call; what the model is told of its end.
    async fn call(&self, call: &ToolCall, (device, ability, params): Wanted<'_>) -> String {
        let begun = self.begin(call, device, params.clone());
        let used = Use {
            device,
            ability,
            params,
            deadline: self.context.deadline,
        };
        let ending = service_call::perform(self.chat, used).await;
        let result = service_call::as_data(&ending);
        self.hearer.called(begun, &result);
        self.fence.around(&call.name, &result)
    }

    fn begin(&self, call: &ToolCall, device: &DeviceKey, params: Map<String, Value>) -> UnderWay {
        self.hearer.calls(Called {
            device: device.device.clone(),
            tool: call.name.clone(),
            params,
            result: String::new(),
        })
    }

    /// A model that has nothing to say, in spite of all, is not left unheard; nor one that thought for as long as it may speak, or
    /// that would still rather call than tell.
    fn end(&self, reply: &Reply) -> End {
        let is_cut_off = reply.finish == Finish::Length;
        let says_nothing = reply.text.trim().is_empty();
        let wants_more = is_cut_off || !reply.calls.is_empty();
        if says_nothing && (wants_more || !self.hearer.has_said_something()) {
            return self.apologise(Phrases::speechless);
        }
        if is_cut_off {
            self.hearer.say(CUT);
        }
        End::Answered
    }

    fn fail(&self, error: &CompletionError) -> End {
        warn!(%error, "a model did not answer a turn");
        self.apologise(match error {
            CompletionError::BrokenOff(_) => Phrases::broken_off,
            CompletionError::Late => Phrases::late,
            _ => Phrases::no_model,
        })
    }

    /// Says why there is no answer. Nobody is asked to say once more what may have been done.
    fn apologise(&self, why: fn(Phrases) -> &'static str) -> End {
        let phrases = self.context.phrases(&self.context.question.text);
        self.hearer.apologise(if self.hearer.has_acted() {
            phrases.perhaps_done()
        } else {
            why(phrases)
        });
        End::Failed
    }
}

/// A result, or word that there is no room for it.
fn fitting(result: String, left: &mut usize) -> String {
    let Some(rest) = left.checked_sub(result.len()) else {
        return LEFT_OUT.to_owned();
    };
    *left = rest;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_reads_of_results_is_bounded() {
        let mut left = 10;
        let mut read = |result: &str| fitting(result.to_owned(), &mut left);
        assert_eq!(read("12345678"), "12345678");
        assert_eq!(read("123"), LEFT_OUT);
        assert_eq!(read("12"), "12");
        assert_eq!(read("1"), LEFT_OUT);
    }
}
