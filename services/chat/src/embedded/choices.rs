//! Which of the values of a parameter a sentence says.
//! Never: one of two that it says alike, or one that it only says half of.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    clauses,
    features::{self, Feature},
    words::{Sentence, Token, Word},
};

/// A value that was said, and the tokens that say it.
pub(super) struct Chosen<'a> {
    pub(super) value: &'a Value,
    pub(super) tokens: Vec<usize>,
}

/// The one that is said; tokens that do not count are left out.
pub(super) fn choose<'a>(
    values: &'a [Value],
    sentence: &Sentence,
    counts: impl Fn(usize, &Token) -> bool,
) -> Option<Chosen<'a>> {
    let read: Vec<(&Value, Sentence)> = values
        .iter()
        .map(|value| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            (value, Sentence::read(&text))
        })
        .collect();
    let mut whole: Vec<Chosen<'_>> = read
        .iter()
        .filter_map(|(value, words)| {
            let tokens = written(words, sentence, &counts)?;
            Some(Chosen { value, tokens })
        })
        .collect();
    // `dark red` says nothing of `red`.
    let lengths: Vec<HashSet<usize>> = whole
        .iter()
        .map(|chosen| chosen.tokens.iter().copied().collect())
        .collect();
    whole.retain(|chosen| {
        let own: HashSet<usize> = chosen.tokens.iter().copied().collect();
        !lengths
            .iter()
            .any(|other| own.len() < other.len() && own.is_subset(other))
    });
    match whole.len() {
        0 => by_features(&read, sentence, counts),
        1 => whole.pop(),
        _ => None,
    }
}

/// Where the very words of a value stand.
fn written(
    value: &Sentence,
    sentence: &Sentence,
    counts: &impl Fn(usize, &Token) -> bool,
) -> Option<Vec<usize>> {
    let wanted: Vec<String> = value
        .tokens
        .iter()
        .map(|token| as_said(value, token))
        .collect();
    // `a` is also an article.
    if wanted.is_empty()
        || value
            .tokens
            .iter()
            .all(|token| token.empty && token.meanings.is_empty())
    {
        return None;
    }
    let starts = 0..(sentence.tokens.len() + 1).saturating_sub(wanted.len());
    let mut places = starts.map(|start| start..start + wanted.len());
    let found = places.find(|place| {
        place.clone().zip(&wanted).all(|(at, word)| {
            let token = sentence.tokens.get(at);
            token.is_some_and(|token| {
                counts(at, token)
                    && as_said(sentence, token) == *word
                    && !(token.empty && wanted.len() == 1)
            })
        })
    })?;
    Some(found.collect())
}

fn as_said(sentence: &Sentence, token: &Token) -> String {
    match clauses::english(token) {
        Some(word) => word.to_owned(),
        None => sentence
            .text
            .get(token.place.clone())
            .unwrap_or_default()
            .to_owned(),
    }
}

/// The value of which most is said that not all others have too.
fn by_features<'a>(
    read: &[(&'a Value, Sentence)],
    sentence: &Sentence,
    counts: impl Fn(usize, &Token) -> bool,
) -> Option<Chosen<'a>> {
    let wanted: Vec<HashMap<Feature, f64>> = read
        .iter()
        .map(|(_, words)| {
            let all = features::of(words).into_iter();
            all.map(|(feature, weight, _)| (feature, weight)).collect()
        })
        .collect();
    let is_shared = |feature: &Feature| {
        wanted.len() > 1 && wanted.iter().all(|value| value.contains_key(feature))
    };
    let said: Vec<(Feature, usize)> = features::of(sentence)
        .into_iter()
        .filter(|(_, _, at)| {
            sentence
                .tokens
                .get(*at)
                .is_some_and(|token| counts(*at, token))
        })
        .map(|(feature, _, at)| (feature, at))
        .collect();
    let mut scored: Vec<(f64, Chosen<'a>)> = Vec::new();
    for ((value, words), wanted) in read.iter().zip(&wanted) {
        let own = wanted.iter().filter(|(feature, _)| !is_shared(feature));
        let all: f64 = own.map(|(_, weight)| weight).sum();
        let hits = said
            .iter()
            .filter(|(feature, _)| wanted.contains_key(feature));
        let hits: Vec<&(Feature, usize)> =
            hits.filter(|(feature, _)| !is_shared(feature)).collect();
        let found: HashSet<&Feature> = hits.iter().map(|(feature, _)| feature).collect();
        let score: f64 = found.iter().filter_map(|feature| wanted.get(feature)).sum();
        // Of Chinese characters every second stands in two pairs.
        let is_chinese = words
            .tokens
            .iter()
            .any(|token| matches!(token.word, Word::Character(_)));
        let is_most = if is_chinese {
            score * 2.0 >= all
        } else {
            score * 2.0 > all
        };
        if score > 0.0 && is_most {
            let tokens = hits.iter().map(|(_, at)| *at).collect();
            scored.push((score, Chosen { value, tokens }));
        }
    }
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let second = scored.get(1).map_or(0.0, |(score, _)| *score);
    let (best, chosen) = scored.into_iter().next()?;
    (best > second * 1.001).then_some(chosen)
}
