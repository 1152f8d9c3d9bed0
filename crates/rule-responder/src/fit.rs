//! How a sentence fits one service.

use crate::{
    Plan, Target,
    intent::Intent,
    service::{Service, Words},
    values::Values,
    vocabulary::{ACTIONS, FILLER, GENERIC, lists},
    words::{Kind, Token},
};

/// The weight of the words that identify the service, then the share of its name that they are.
pub(crate) type Score = (u32, usize);

/// How a word of the sentence relates to the service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    Identifies,
    /// A value, a filler, or a word that many services have.
    Neutral,
    Unknown,
}

/// What to do when this service is meant; `None` when too little indicates it.
pub(crate) fn fit<'a>(
    target: Target<'a>,
    sentence: &[Token],
    intent: Intent,
) -> Option<(Score, Plan<'a>)> {
    let service = target.service;
    let values = Values::find(service, sentence);
    let (mut score, mut unknown, mut unknown_in_question) = (0, 0, 0);
    for (at, token) in sentence.iter().enumerate() {
        match relation(service, &values, sentence, at) {
            Relation::Identifies => score += token.weight(),
            Relation::Neutral => {}
            Relation::Unknown => {
                let is_filler = lists("~? @question get set left", &token.key)
                    || token.raw.starts_with(|c: char| c.is_ascii_digit());
                unknown += 1;
                unknown_in_question += token.weight() * u32::from(!is_filler);
            }
        }
    }
    let first = sentence.iter().find(|token| !token.is(FILLER))?;
    let names_service = service.first_word == first.raw;
    // `Turn the light` does not ask for `turn_on_light`.
    let names = service.words.name_keys.iter();
    let actions: Vec<&String> = names.filter(|key| lists(ACTIONS, key)).collect();
    let names_action = sentence.iter().any(|token| actions.contains(&&token.key));
    let is_command =
        (intent == Intent::Command || names_service) && (actions.is_empty() || names_action);
    let reads = service.is_read_only && (intent != Intent::Command || names_service);
    if score < unknown_in_question.max(1) + u32::from(!is_command) {
        return None;
    }
    let is_understood = match intent {
        Intent::NotNow => false,
        Intent::Question => reads,
        _ => reads || is_command && (unknown == 0 || !values.missing.is_empty()),
    };
    let plan = match is_understood {
        false if service.is_read_only && intent != Intent::NotNow => return None,
        false => Plan::NoCommand(target),
        true if values.missing.is_empty() => Plan::Call(target, values.params),
        true => Plan::Missing(target, values.missing),
    };
    Some(((score, service.share_of_name(sentence)), plan))
}

fn relation(service: &Service, values: &Values<'_>, sentence: &[Token], at: usize) -> Relation {
    let Some(token) = sentence.get(at) else {
        return Relation::Unknown;
    };
    let (key, is_used) = (token.key.as_str(), values.used.contains(&at));
    if token.kind == Kind::Character && !is_used {
        return character(service, values, sentence, at);
    }
    let is_action = lists(ACTIONS, key);
    let words = &service.words;
    let own = if is_action {
        &words.name_keys
    } else {
        &words.keys
    };
    let is_own = own.contains(&token.key);
    // `Set X to 5` needs no `set` in the description of X.
    let sets_value = key == "set" && !values.params.is_empty();
    let mut found = values.found.iter();
    let is_parameter = !is_action && found.any(|one| one.words.keys.contains(&token.key));
    if is_own && !lists(GENERIC, key) {
        Relation::Identifies
    } else if is_own || is_used || sets_value || lists("~ current turn", key) || is_parameter {
        Relation::Neutral
    } else {
        Relation::Unknown
    }
}

/// A Chinese character belongs to the service when the service contains it with a neighbour.
fn character(service: &Service, values: &Values<'_>, sentence: &[Token], at: usize) -> Relation {
    let raw = |at: usize| sentence.get(at).map_or("", |token| token.raw.as_str());
    let before = at.checked_sub(1).and_then(|at| raw(at).chars().next_back());
    let (own, after) = (raw(at), raw(at + 1).chars().next());
    let pairs = [
        before.map(|c| format!("{c}{own}")),
        after.map(|c| format!("{own}{c}")),
    ];
    let is_in = |words: &Words| pairs.iter().flatten().any(|pair| words.contains(pair));
    if is_in(&service.words) {
        Relation::Identifies
    } else if values.found.iter().any(|parameter| is_in(&parameter.words)) {
        Relation::Neutral
    } else {
        Relation::Unknown
    }
}
