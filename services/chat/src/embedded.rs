//! The responder that needs no network and no model: fixed rules that find the service a sentence speaks of.
//! Never: a guess at what a required parameter could be, or a pretence of being more than rules.

mod abilities;
mod amounts;
mod arguments;
mod chinese_numerals;
mod choices;
mod clauses;
mod concepts;
mod consent;
mod declining;
mod deeds;
mod empty_words;
mod features;
mod language;
mod matching;
mod mood;
mod naming;
mod negations;
mod numbers;
mod numerals;
mod parameters;
mod phrases;
mod questions;
mod small_talk;
mod stretches;
mod telling;
#[cfg(test)]
mod tests;
mod wording;
mod words;
mod worth;

use std::sync::LazyLock;

use serde_json::{Map, Value};
use switchboard_protocol::id::DeviceKey;

pub(crate) use abilities::{Abilities, Ability};
pub(crate) use declining::{declines, declines_something};
pub(crate) use language::Language;
pub(crate) use naming::named;
pub(crate) use phrases::{Nature, Phrases};
pub(crate) use small_talk::SmallTalk;
pub(crate) use telling::{Ending, tell};
pub(crate) use wording::Wording;
pub(crate) use worth::worth_keeping;

use mood::Mood;
use words::Sentence;

/// No abilities at all.
pub(crate) static NOTHING: LazyLock<Abilities> = LazyLock::new(Abilities::default);

/// What to do about a sentence, and how well it fits one of the abilities.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) plan: Plan<'a>,
    /// 0 when none fits; else it can be compared with how well it fits those of another device.
    pub(crate) fit: f64,
}

impl Planned<'_> {
    /// Whether it fits as well as the best.
    pub(crate) fn is_like(&self, best: f64) -> bool {
        self.fit > 0.0 && matching::are_alike(self.fit, best)
    }
}

/// What a sentence is about, as far as it can be told.
#[derive(Debug)]
pub(crate) enum Plan<'a> {
    /// It asks for a service, and says all that this needs.
    Call {
        ability: &'a Ability,
        params: Map<String, Value>,
        manner: Manner,
    },
    /// It asks for a service and leaves out what this needs.
    Ask {
        ability: &'a Ability,
        missing: Vec<&'a str>,
    },
    /// It fits several services alike.
    Choose(Vec<&'a Ability>),
    /// It fits several devices alike.
    ChooseDevice(Vec<&'a DeviceKey>),
    /// It says what is not to be done.
    Leave,
    /// It is about the one who answers, or about nothing.
    Talk(SmallTalk),
    /// No service fits it.
    Unmatched,
}

/// How a result is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Something was asked, rather than ordered.
    pub(crate) asked: bool,
    /// Yes or no was asked.
    pub(crate) yes_or_no: bool,
    /// What it was about, in the words of whoever asked.
    pub(crate) topic: Option<String>,
}

/// Decides what to do about what was said, with the abilities of one device.
pub(crate) fn plan<'a>(abilities: &'a Abilities, said: &Wording) -> Planned<'a> {
    let sentence = said.sentence();
    let mood = Mood::of(&sentence);
    let unfit = |plan| Planned { plan, fit: 0.0 };
    // Whoever asks what answers is told so, whatever services are called.
    if small_talk::asks_who(&sentence) {
        return unfit(Plan::Talk(SmallTalk::Who));
    }
    let (found, fit) = matching::best(abilities, &sentence, &mood);
    let forbidden = match &found {
        matching::Found::None => !mood.forbids.is_empty(),
        matching::Found::One(ability) => consent::is_forbidden(ability, &sentence, &mood),
        matching::Found::Several(alike) => {
            let mut alike = alike.iter();
            alike.any(|ability| consent::is_forbidden(ability, &sentence, &mood))
        }
    };
    // `Don't go left, go right`: what is ordered behind what is forbidden stands for itself.
    if let Some(then) = mood.then.filter(|then| forbidden && *then > 0) {
        let planned = plan(abilities, &said.from(then));
        if planned.fit > 0.0 || matches!(planned.plan, Plan::Leave) {
            return planned;
        }
    }
    let plan = match found {
        matching::Found::None => {
            let talk = small_talk::small_talk(&sentence);
            return unfit(talk.map_or(Plan::Unmatched, Plan::Talk));
        }
        _ if forbidden => return unfit(Plan::Leave),
        matching::Found::Several(alike) => Plan::Choose(alike),
        matching::Found::One(ability) => plan_call(ability, said, &sentence, &mood),
    };
    Planned { plan, fit }
}

fn plan_call<'a>(
    ability: &'a Ability,
    said: &Wording,
    sentence: &Sentence,
    mood: &Mood,
) -> Plan<'a> {
    let filled = arguments::fill(ability, &said.parts());
    if !filled.missing.is_empty() {
        return Plan::Ask {
            ability,
            missing: filled.missing,
        };
    }
    let asked = mood.asks || (ability.only_reads() && !mood.orders);
    Plan::Call {
        ability,
        params: filled.params,
        manner: Manner {
            asked,
            yes_or_no: mood.yes_or_no,
            topic: matching::topic(ability, sentence),
        },
    }
}

/// Whether a sentence forbids, or asks something of its own.
pub(crate) fn is_no_answer(text: &str) -> bool {
    let mood = Mood::of(&Sentence::read(text));
    mood.asks || !mood.forbids.is_empty()
}

/// How much of a question a text speaks of, from 0 to 1.
pub(crate) fn speaks_of(question: &str, text: &str) -> f64 {
    let (question, text) = (Sentence::read(question), Sentence::read(text));
    features::coverage(&question, &features::present(&text))
}
