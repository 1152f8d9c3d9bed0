//! Answers without a model: carries out the plan of the rule responder.

use serde_json::{Map, Value};
use switchboard_catalog::placeholders;
use switchboard_rule_responder::{Offer, Plan, SmallTalk, Target, plan};
use switchboard_tools::text::clean_to;

use crate::{
    Chat,
    answer::{
        AnswerEnd, Context,
        phrases::{Language, Phrases},
        rendering::{CallEnd, render},
        retrieval,
        sink::{ToolCallsDenied, TurnSink},
        tool_call::{self, ServiceCall},
        tools::Callable,
    },
    conversation::model::ToolCallRecord,
    memory::salience,
};

/// Longer messages are not matched to services: they are no plain commands.
const MAX_COMMAND_BYTES: usize = 1_000;
/// Bytes of an NPC's greeting.
const MAX_GREETING_BYTES: usize = 2_000;

/// What to do about a message.
enum Decision<'a> {
    Call {
        callable: Callable<'a>,
        params: Map<String, Value>,
        is_read_only: bool,
    },
    Say(String),
    /// No service matches.
    Nothing,
}

/// Answers a message.
pub(crate) async fn answer(chat: &Chat, context: &Context<'_>, sink: &TurnSink<'_>) -> AnswerEnd {
    let phrases = context.phrases(&context.message.text);
    let has_picture = context.message.picture.is_some();
    if has_picture {
        sink.send_text(phrases.unseen_picture());
        if context.message.text.trim().is_empty() {
            return AnswerEnd::Answered;
        }
        sink.start_paragraph();
    }
    let text = match decide(context, phrases) {
        None => return AnswerEnd::Failed,
        Some(Decision::Call {
            callable,
            params,
            is_read_only,
        }) => match call(chat, context, sink, (callable, params)).await {
            Ok(end) => render(phrases.0, is_read_only, &end),
            Err(ToolCallsDenied::LeaseLost) => return AnswerEnd::LeaseLost,
            Err(ToolCallsDenied::NotRecorded(error)) => {
                tracing::warn!(%error, "cannot record a call for a turn; it is not made");
                sink.send_apology(phrases.unreachable());
                return AnswerEnd::Failed;
            }
        },
        Some(Decision::Say(text)) => text,
        // What the words ask for is in the picture.
        Some(Decision::Nothing) if has_picture => return AnswerEnd::Answered,
        Some(Decision::Nothing) => without_service(chat, context, phrases).await,
    };
    sink.send_text(&text);
    AnswerEnd::Answered
}

/// Decides what to do. The services are prepared for the rule responder here and dropped at once.
/// `None` if the selected service is unknown.
fn decide<'a>(context: &Context<'a>, phrases: Phrases) -> Option<Decision<'a>> {
    let message = context.message.text.as_str();
    if message.len() > MAX_COMMAND_BYTES {
        return Some(Decision::Nothing);
    }
    let devices = context.tools.prepare();
    let offers = devices.iter().map(|(device, services)| Offer {
        device: device.device.as_str(),
        services,
    });
    let offers: Vec<_> = offers.collect();
    let describe = |target: &Target<'_>| {
        let callable = context.tools.service(target.device, &target.service.name);
        callable.map_or_else(String::new, |callable| callable.describe())
    };
    Some(Decision::Say(match plan(&offers, message) {
        Plan::Call(Target { device, service }, params) => {
            return Some(Decision::Call {
                callable: context.tools.service(device, &service.name)?,
                params,
                is_read_only: service.is_read_only,
            });
        }
        Plan::Missing(target, parameters) => phrases.missing(&describe(&target), &parameters),
        Plan::NoCommand(target) => phrases.no_command(&describe(&target)),
        Plan::Ambiguous(targets) => {
            let mut devices: Vec<&str> = targets.iter().map(|target| target.device).collect();
            devices.dedup();
            if devices.len() > 1 {
                phrases.which_device(&devices)
            } else {
                let descriptions: Vec<_> = targets.iter().map(describe).collect();
                phrases.which_service(&descriptions)
            }
        }
        Plan::Talk(talk) => small_talk(talk, context, phrases),
        Plan::Nothing => return Some(Decision::Nothing),
    }))
}

async fn call(
    chat: &Chat,
    context: &Context<'_>,
    sink: &TurnSink<'_>,
    (callable, params): (Callable<'_>, Map<String, Value>),
) -> Result<CallEnd, ToolCallsDenied> {
    sink.mark_side_effects().await?;
    let pending = sink.start_call(ToolCallRecord {
        device: callable.device.device.clone(),
        tool: context.tools.tool_name(&callable),
        params: params.clone(),
        result: String::new(),
    });
    let call = ServiceCall {
        callable,
        params,
        deadline: context.deadline,
    };
    let end = tool_call::perform(chat, call).await;
    sink.finish_call(pending, &tool_call::as_json(&end));
    Ok(end)
}

/// Answers from memories and skills books; else states what the devices can do.
async fn without_service(chat: &Chat, context: &Context<'_>, phrases: Phrases) -> String {
    let message = context.message;
    if message.may_become_memory() && salience::note(&message.text).is_some() {
        return phrases.memory_noted().to_owned();
    }
    let retrieved = retrieval::retrieve(&chat.store, chat.embedder.as_ref(), message).await;
    if let Some(answer) = retrieved.answer(&message.text, phrases) {
        return answer;
    }
    let space = match phrases.0 {
        Language::English => " ",
        Language::Chinese => "",
    };
    let abilities = abilities(context, phrases);
    format!("{}{space}{abilities}", phrases.not_understood())
}

fn abilities(context: &Context<'_>, phrases: Phrases) -> String {
    let callables = context.tools.callables();
    let descriptions: Vec<_> = callables.map(|callable| callable.describe()).collect();
    phrases.abilities(&descriptions)
}

fn small_talk(talk: SmallTalk, context: &Context<'_>, phrases: Phrases) -> String {
    let npc = context.message.npc.as_ref();
    let settings = npc.map(|npc| &npc.effective.settings);
    match talk {
        SmallTalk::Identity => phrases.identity(settings.map(|settings| settings.name.as_str())),
        SmallTalk::Abilities => abilities(context, phrases),
        SmallTalk::Thanks => phrases.thanks().to_owned(),
        SmallTalk::Greeting => {
            let own = settings.and_then(|settings| {
                let mut greetings = settings.persona.greeting.iter();
                let greeting = greetings.find(|greeting| !greeting.trim().is_empty())?;
                let named = placeholders::substitute(greeting, MAX_GREETING_BYTES, |name| {
                    name.eq_ignore_ascii_case("char")
                        .then_some(settings.name.as_str())
                });
                let named = named.unwrap_or_else(|| greeting.clone());
                Some(clean_to(&named, MAX_GREETING_BYTES))
            });
            own.unwrap_or_else(|| phrases.greeting().to_owned())
        }
    }
}
