//! Which service a sentence speaks of.
//! Never: a service that does the opposite of what was said, however much else fits.

use std::collections::{BTreeMap, HashSet};

use super::{
    abilities::{Abilities, Ability},
    concepts::{Kind, Meaning, OPPOSITES},
    consent,
    features::{self, Feature},
    mood::Mood,
    stretches,
    words::Sentence,
};

/// Less is chance.
const LEAST: f64 = 0.6;
/// How much of a sentence must be about the service, unless very much of it is.
const LEAST_COVERAGE: f64 = 0.25;
const PLENTY: f64 = 2.2;
/// Services that fit as well as each other, up to this.
const ALIKE: f64 = 0.999;
/// What is ordered is rarely done by reading.
const AGAINST_MOOD: f64 = 0.35;
/// The most that can be offered to choose from.
const MOST_ALIKE: usize = 4;

pub(super) enum Found<'a> {
    None,
    One(&'a Ability),
    Several(Vec<&'a Ability>),
}

/// What fits, and how well.
pub(super) fn best<'a>(
    abilities: &'a Abilities,
    sentence: &Sentence,
    mood: &Mood,
) -> (Found<'a>, f64) {
    let quoted = stretches::quoted(&sentence.text);
    // In an order, as all sums of fractions here: they are compared.
    let mut asked: BTreeMap<Feature, f64> = BTreeMap::new();
    for (feature, weight, at) in features::of(sentence) {
        let place = sentence.tokens.get(at).map_or(0, |token| token.place.start);
        let is_excluded = sentence
            .tokens
            .get(at)
            .is_some_and(|token| mood.excludes(token));
        // What is quoted is a value, and says nothing of the service.
        if !is_excluded && !quoted.iter().any(|quote| quote.contains(&place)) {
            asked.insert(feature, weight);
        }
    }
    let mut scored: Vec<(f64, &Ability)> = abilities
        .iter()
        .map(|ability| (score(abilities, ability, &asked, sentence, mood), ability))
        .filter(|(score, _)| *score > 0.0)
        .collect();
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let Some((most, first)) = scored.first().copied() else {
        return (Found::None, 0.0);
    };
    let alike = scored
        .iter()
        .take_while(|(score, _)| are_alike(*score, most))
        .map(|(_, ability)| *ability);
    let alike: Vec<&Ability> = alike.take(MOST_ALIKE).collect();
    let found = if alike.len() > 1 {
        Found::Several(alike)
    } else {
        Found::One(first)
    };
    (found, most)
}

/// Whether this fits as well as the best.
pub(super) fn are_alike(score: f64, best: f64) -> bool {
    score >= best * ALIKE
}

fn score(
    abilities: &Abilities,
    ability: &Ability,
    asked: &BTreeMap<Feature, f64>,
    sentence: &Sentence,
    mood: &Mood,
) -> f64 {
    // What is asked is answered by what tells it, of the opposite too.
    let tells = mood.asks && ability.tells;
    if !tells && undoes(ability, sentence) || consent::is_only_spoken_of(ability, sentence, mood) {
        return 0.0;
    }
    let (mut score, mut found, mut all) = (0.0, 0.0, 0.0);
    for (feature, weight) in asked {
        all += weight;
        let Some(worth) = ability.features.get(feature) else {
            continue;
        };
        let holders = abilities.holders.get(feature).copied().unwrap_or(1);
        found += weight;
        score += weight * worth / (1.0 + 0.5 * f64::from(holders).ln());
    }
    let covered = found / f64::max(all, f64::EPSILON);
    if score < LEAST || covered < LEAST_COVERAGE && score < PLENTY {
        return 0.0;
    }
    let reads = ability.only_reads();
    let sets = [
        Meaning::Set,
        Meaning::On,
        Meaning::Off,
        Meaning::Up,
        Meaning::Down,
    ];
    let ordered = sets.iter().any(|meaning| sentence.has(*meaning)) && !mood.asks;
    let factor = if ordered && reads { AGAINST_MOOD } else { 1.0 };
    let score = score * factor;
    if score < LEAST {
        0.0
    } else {
        score * (1.0 + 0.1 * covered)
    }
}

/// Whether it does what the sentence says to undo.
fn undoes(ability: &Ability, sentence: &Sentence) -> bool {
    if ability.is_told_what() {
        return false;
    }
    let said: HashSet<Meaning> = sentence
        .tokens
        .iter()
        .flat_map(|token| token.meanings.iter().copied())
        .collect();
    let pairs = OPPOSITES
        .iter()
        .flat_map(|&(one, other)| [(one, other), (other, one)]);
    let against = |(said_one, other)| {
        let says = said.contains(&said_one) && !said.contains(&other);
        says && ability.named.contains(&other) && !ability.meanings.contains(&said_one)
    };
    pairs.into_iter().any(against)
}

/// What was asked about, in the words of whoever asked.
pub(super) fn topic(ability: &Ability, sentence: &Sentence) -> Option<String> {
    let token = sentence.tokens.iter().find(|token| {
        let about =
            |meaning: &Meaning| meaning.kind() == Kind::Topic && ability.meanings.contains(meaning);
        token.meanings.iter().any(about)
    })?;
    sentence.text.get(token.place.clone()).map(str::to_owned)
}
