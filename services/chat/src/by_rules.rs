//! An answer of the embedded responder: what its plan says is done and told.
//! Never: a second call for a question, or words that a model would have to find.

use serde_json::{Map, Value};
use switchboard_protocol::id::DeviceKey;
use switchboard_store::placeholders;
use switchboard_tools::text::clean_to;

use crate::{
    Chat,
    answering::{Context, End},
    conversation::Called,
    decision::decide,
    embedded::{self, Ability, Language, Nature, Phrases, Plan, SmallTalk, tell},
    hearer::{Hearer, NotActing},
    knowledge, learning,
    service_call::{self, Use},
};

/// What of a character's greeting is said.
const GREETING_BYTES: usize = 2_000;

/// Answers a question to its end.
pub(crate) async fn answer(chat: &Chat, context: &Context<'_>, hearer: &Hearer<'_>) -> End {
    let offers = context.toolbox.offers();
    let offers: Vec<_> = offers
        .map(|(device, services)| (device, &services.abilities))
        .collect();
    let last = context
        .conversation
        .and_then(|conversation| conversation.exchanges.last());
    let before = last.and_then(|exchange| exchange.asks_about.as_deref());
    let decision = decide(&offers, &context.question.text, before);
    let phrases = context.phrases(&decision.about);
    let said = match decision.plan {
        Plan::Call {
            ability,
            params,
            manner,
        } => {
            let Some(device) = decision.device else {
                return End::Failed;
            };
            match call(chat, context, hearer, (device, ability, params)).await {
                Ok(ending) => tell(phrases.0, &manner, &ending),
                Err(NotActing::NotOurs) => return End::LetGo,
                Err(NotActing::NotNoted(error)) => {
                    tracing::warn!(%error, "a call for a turn could not be noted, so it was not made");
                    hearer.apologise(phrases.unreachable());
                    return End::Failed;
                }
            }
        }
        Plan::Ask { ability, missing } => {
            hearer.asks_about(&decision.about);
            phrases.missing(ability, &missing)
        }
        Plan::Choose(alike) => {
            hearer.asks_about(&decision.about);
            phrases.which(&alike)
        }
        Plan::ChooseDevice(devices) => {
            hearer.asks_about(&decision.about);
            phrases.which_device(&devices)
        }
        Plan::Leave => phrases.left_alone().to_owned(),
        Plan::Talk(talk) => small_talk(talk, context, phrases),
        Plan::Unmatched => unmatched(chat, context, phrases).await,
    };
    hearer.say(&said);
    End::Answered
}

async fn call(
    chat: &Chat,
    context: &Context<'_>,
    hearer: &Hearer<'_>,
    (device, ability, params): (&DeviceKey, &Ability, Map<String, Value>),
) -> Result<embedded::Ending, NotActing> {
    hearer.begin_to_act().await?;
    let begun = hearer.calls(Called {
        device: device.device.clone(),
        tool: context.toolbox.tool_of(device, &ability.service),
        params: params.clone(),
        result: String::new(),
    });
    let used = Use {
        device,
        ability,
        params,
        deadline: context.deadline,
    };
    let ending = service_call::perform(chat, used).await;
    hearer.called(begun, &service_call::as_data(&ending));
    Ok(ending)
}

async fn unmatched(chat: &Chat, context: &Context<'_>, phrases: Phrases) -> String {
    let question = context.question;
    if learning::will_learn(question) && embedded::worth_keeping(&question.text).is_some() {
        return phrases.noted().to_owned();
    }
    let known = knowledge::search(&chat.store, chat.questions.as_ref(), question).await;
    if let Some(known) = known.answer(&question.text, phrases) {
        return known;
    }
    let space = if phrases.0 == Language::English {
        " "
    } else {
        ""
    };
    format!(
        "{}{space}{}",
        phrases.not_understood(),
        phrases.abilities(context.toolbox.abilities())
    )
}

fn small_talk(talk: SmallTalk, context: &Context<'_>, phrases: Phrases) -> String {
    let npc = context.question.npc.as_ref();
    let settings = npc.map(|npc| &npc.effective.settings);
    match talk {
        SmallTalk::Who => phrases.who(Nature {
            name: settings.map(|settings| settings.name.as_str()),
        }),
        SmallTalk::Abilities => phrases.abilities(context.toolbox.abilities()),
        SmallTalk::Thanks => phrases.thanks().to_owned(),
        SmallTalk::Greeting => {
            let own = settings.and_then(|settings| {
                let mut greetings = settings.persona.greeting.iter();
                let greeting = greetings.find(|greeting| !greeting.trim().is_empty())?;
                let named = placeholders::substitute(greeting, GREETING_BYTES, |name| {
                    name.eq_ignore_ascii_case("char")
                        .then_some(settings.name.as_str())
                });
                let named = named.unwrap_or_else(|| greeting.clone());
                Some(clean_to(&named, GREETING_BYTES))
            });
            own.unwrap_or_else(|| phrases.greeting().to_owned())
        }
    }
}
