//! Answers without a model: carries out the plan of the rule responder.

use serde_json::{Map, Value};
use switchboard_catalog::placeholders;
use switchboard_phrases::Phrase;
use switchboard_rule_responder::{Offer, Plan, SmallTalk, Target, plan};
use switchboard_tools::text::clean_to;

use crate::{
    Chat,
    answer::{
        AnswerEnd, Context,
        rendering::{CallEnd, render},
        retrieval, sentences,
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
    let language = context.message.language;
    let has_picture = context.message.picture.is_some();
    if has_picture {
        sink.send_text(&Phrase::UnseenPicture.text(language));
        if context.message.text.trim().is_empty() {
            return AnswerEnd::Answered;
        }
        sink.start_paragraph();
    }
    let text = match decide(context) {
        None => return AnswerEnd::Failed,
        Some(Decision::Call {
            callable,
            params,
            is_read_only,
        }) => match call(chat, context, sink, (callable, params)).await {
            Ok(end) => render(language, is_read_only, &end),
            Err(ToolCallsDenied::LeaseLost) => return AnswerEnd::LeaseLost,
            Err(ToolCallsDenied::NotRecorded(error)) => {
                tracing::warn!(%error, "cannot record a call for a turn; it is not made");
                sink.send_apology(Phrase::ServicesUnreachable, language);
                return AnswerEnd::Failed;
            }
        },
        Some(Decision::Say(text)) => text,
        // What the words ask for is in the picture.
        Some(Decision::Nothing) if has_picture => return AnswerEnd::Answered,
        Some(Decision::Nothing) => without_service(chat, context, sink).await,
    };
    sink.send_text(&text);
    AnswerEnd::Answered
}

/// Decides what to do. The services are prepared for the rule responder here and dropped at once.
/// `None` if the selected service is unknown.
fn decide<'a>(context: &Context<'a>) -> Option<Decision<'a>> {
    let language = context.message.language;
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
        Plan::Missing(target, parameters) => {
            sentences::missing_values(language, &describe(&target), &parameters)
        }
        Plan::NoCommand(target) => sentences::no_command(language, &describe(&target)),
        Plan::Ambiguous(targets) => {
            let mut devices: Vec<&str> = targets.iter().map(|target| target.device).collect();
            devices.dedup();
            if devices.len() > 1 {
                sentences::which_device(language, &devices)
            } else {
                let descriptions: Vec<_> = targets.iter().map(describe).collect();
                sentences::which_service(language, &descriptions)
            }
        }
        Plan::Talk(talk) => small_talk(talk, context),
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
        npc: context.message.npc.as_ref().map(|npc| npc.id),
        deadline: context.deadline,
    };
    let end = tool_call::perform(chat, call).await;
    sink.finish_call(pending, &tool_call::as_json(&end));
    Ok(end)
}

/// Answers from memories and skills books; else states what the devices can do.
async fn without_service(chat: &Chat, context: &Context<'_>, sink: &TurnSink<'_>) -> String {
    let message = context.message;
    let language = message.language;
    if message.may_become_memory() && salience::note(&message.text).is_some() {
        return Phrase::MemoryNoted.text(language).into_owned();
    }
    let retrieved = retrieval::retrieve(&chat.store, chat.embedder.as_ref(), message).await;
    if let Some((answer, source)) = retrieved.answer(&message.text, language) {
        sink.set_sources(vec![source]);
        return answer;
    }
    sentences::join(language, Phrase::NotUnderstood, &abilities(context))
}

fn abilities(context: &Context<'_>) -> String {
    let callables = context.tools.callables();
    let descriptions: Vec<_> = callables.map(|callable| callable.describe()).collect();
    sentences::abilities(context.message.language, &descriptions)
}

fn small_talk(talk: SmallTalk, context: &Context<'_>) -> String {
    let npc = context.message.npc.as_ref();
    let settings = npc.map(|npc| &npc.effective.settings);
    let say = |phrase: Phrase<'_>| phrase.text(context.message.language).into_owned();
    match talk {
        SmallTalk::Identity => say(match settings {
            Some(settings) => Phrase::IdentityFor {
                name: &settings.name,
            },
            None => Phrase::Identity,
        }),
        SmallTalk::Abilities => abilities(context),
        SmallTalk::Thanks => say(Phrase::Thanks),
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
            own.unwrap_or_else(|| say(Phrase::Greeting))
        }
    }
}
