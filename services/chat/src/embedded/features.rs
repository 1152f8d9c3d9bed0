//! What two texts can have in common: a meaning, a word, two Chinese characters.
//! Never: an order of words.

use std::collections::{BTreeMap, HashSet};

use super::{
    concepts::{Kind, Meaning},
    words::{Sentence, Token, Word},
};

/// Something that two texts can both have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Feature {
    Meaning(Meaning),
    Word(String),
    Pair(char, char),
    Character(char),
}

/// How much a word of the table says by its letters, beside what it means.
const KNOWN_WORD: f64 = 0.2;
const UNKNOWN_WORD: f64 = 1.0;
const PAIR: f64 = 0.6;
const CHARACTER: f64 = 0.25;

/// What a text has, with how much each says and the tokens it comes from.
pub(super) fn of(sentence: &Sentence) -> Vec<(Feature, f64, usize)> {
    let mut found = Vec::new();
    for (at, token) in sentence.tokens.iter().enumerate() {
        for &meaning in &token.meanings {
            found.push((Feature::Meaning(meaning), weight(meaning), at));
        }
        if token.empty {
            continue;
        }
        match &token.word {
            Word::English { stem, .. } => {
                let weight = if token.meanings.is_empty() {
                    UNKNOWN_WORD
                } else {
                    KNOWN_WORD
                };
                // Numbers are values, and say nothing of what they are values of.
                if !stem.starts_with(|c: char| c.is_ascii_digit()) {
                    found.push((Feature::Word(stem.clone()), weight, at));
                }
            }
            Word::Character(c) => found.push(character(&sentence.tokens, at, *c)),
            Word::Chinese | Word::Break => {}
        }
    }
    found
}

/// A character with the one behind it, or alone.
fn character(tokens: &[Token], at: usize, c: char) -> (Feature, f64, usize) {
    let unknown =
        |at: Option<usize>| match at.and_then(|at| tokens.get(at)).map(|token| &token.word) {
            Some(Word::Character(c)) => Some(*c),
            _ => None,
        };
    match (unknown(at.checked_sub(1)), unknown(Some(at + 1))) {
        (_, Some(next)) => (Feature::Pair(c, next), PAIR, at),
        (Some(before), None) => (Feature::Pair(before, c), PAIR, at),
        (None, None) => (Feature::Character(c), CHARACTER, at),
    }
}

pub(super) fn weight(meaning: Meaning) -> f64 {
    match meaning.kind() {
        Kind::Topic => 1.5,
        Kind::Deed => 0.7,
        Kind::Value => 0.6,
        Kind::Vague => 0.2,
    }
}

/// Everything that a text has.
pub(super) fn present(sentence: &Sentence) -> HashSet<Feature> {
    of(sentence)
        .into_iter()
        .map(|(feature, _, _)| feature)
        .collect()
}

/// How much of a question is among these, from 0 to 1.
pub(super) fn coverage(question: &Sentence, among: &HashSet<Feature>) -> f64 {
    let mut weights: BTreeMap<Feature, f64> = BTreeMap::new();
    for (feature, weight, _) in of(question) {
        weights.insert(feature, weight);
    }
    let sum = |found: bool| -> f64 {
        let counted = weights
            .iter()
            .filter(|(feature, _)| !found || among.contains(feature));
        counted.map(|(_, weight)| weight).sum()
    };
    let all = sum(false);
    if all > 0.0 { sum(true) / all } else { 0.0 }
}
