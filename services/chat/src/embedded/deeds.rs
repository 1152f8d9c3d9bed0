//! What a service does, as far as its words say: it tells something, or it changes something.
//! Never: a service that is taken for one that only tells because its description is short.

use std::collections::HashSet;

use super::{
    abilities::Ability,
    concepts::{ACTS, Kind, Meaning, TOLD},
    features::{self, Feature},
    parameters::Takes,
    words::{Sentence, Word},
};

/// Names of what only tells begin with these.
const READS: &[&str] = &[
    "get", "read", "query", "fetch", "measure", "list", "retrieve",
];
const ASKS: &[&str] = &["is", "are", "has", "have", "was", "does"];
/// What a state can be that is only told.
const STATES: &[Meaning] = &[
    Meaning::On,
    Meaning::Off,
    Meaning::Open,
    Meaning::Close,
    Meaning::Lock,
    Meaning::Unlock,
    Meaning::Start,
    Meaning::Stop,
];

/// Whether all that it does is to tell something.
pub(super) fn tells(ability: &Ability, name: &Sentence, described: &Sentence) -> bool {
    let is_deed = |meaning: &Meaning| meaning.kind() == Kind::Deed;
    let is_act = |meaning: &Meaning| is_deed(meaning) || ACTS.contains(meaning);
    let is_thing = |meaning: &Meaning| {
        *meaning == Meaning::Status || meaning.kind() == Kind::Topic && !ACTS.contains(meaning)
    };
    let acts = ability.named.iter().any(is_act);
    let begins = name.english().first().copied().unwrap_or_default();
    let takes_value = ability.parameters.iter().any(|parameter| {
        parameter.required && matches!(parameter.takes, Takes::Flag | Takes::Whole | Takes::Number)
    });
    let only_states = ability
        .named
        .iter()
        .all(|meaning| !is_act(meaning) || STATES.contains(meaning));
    let first = described.tokens.iter().find(|token| !token.empty);
    let opens_by_reading = first.is_some_and(|token| token.meanings.contains(&Meaning::Get));
    match () {
        () if ASKS.contains(&begins) => true,
        () if READS.contains(&begins) => !acts || ability.named.iter().any(is_thing),
        () if ability.named.contains(&Meaning::Status) => only_states && !takes_value,
        () if acts => false,
        () if ability.named.contains(&Meaning::Get) || opens_by_reading => true,
        () => {
            !takes_value
                && !ability.meanings.iter().any(is_act)
                && ability.named.iter().any(|meaning| TOLD.contains(meaning))
        }
    }
}

/// The words that order it, rather than name what it is about.
pub(super) fn verbs(ability: &Ability, name: &Sentence) -> HashSet<Feature> {
    let deeds = |meanings: &HashSet<Meaning>| -> HashSet<Feature> {
        let deeds = meanings
            .iter()
            .filter(|meaning| meaning.kind() == Kind::Deed);
        deeds.map(|meaning| Feature::Meaning(*meaning)).collect()
    };
    let mut found = deeds(&ability.named);
    if found.is_empty() {
        found = deeds(&ability.meanings);
    }
    if ability.is_told_what() {
        found.extend(STATES.iter().map(|meaning| Feature::Meaning(*meaning)));
        for parameter in &ability.parameters {
            if let Takes::OneOf(values) = &parameter.takes {
                let values = values.iter().filter_map(|value| value.as_str());
                found.extend(values.flat_map(|value| features::present(&Sentence::read(value))));
            }
        }
    }
    if !found.is_empty() {
        return found;
    }
    // What is named by its words alone is ordered by them.
    let said = features::of(name).into_iter();
    let said = said.filter(|(_, _, at)| {
        let word = name.tokens.get(*at).map(|token| &token.word);
        !matches!(word, Some(Word::Break) | None)
    });
    said.map(|(feature, _, _)| feature).collect()
}
