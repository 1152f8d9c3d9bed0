//! Parameter values that a sentence contains: enum values, numbers and quotations.

use std::ops::Range;

use serde_json::{Map, Value};

use crate::{
    service::{Parameter, Service},
    vocabulary::{FILLER, lists},
    words::{self, Kind, Token},
};

/// Units that the parameter must mention.
const UNITS: &str = "second minute hour metre";

/// The values found, the names of the required parameters without one, and the tokens used.
#[derive(Default)]
pub(crate) struct Values<'a> {
    pub(crate) params: Map<String, Value>,
    pub(crate) found: Vec<&'a Parameter>,
    pub(crate) missing: Vec<&'a str>,
    pub(crate) used: Vec<usize>,
}

impl<'a> Values<'a> {
    /// Finds the values for the parameters of a service.
    pub(crate) fn find(service: &'a Service, sentence: &[Token]) -> Self {
        let mut values = Self::default();
        for parameter in &service.parameters {
            if let Some((place, value)) = choose(parameter, sentence) {
                values.insert(parameter, value.clone(), place);
            }
        }
        values.assign(service, sentence, true);
        values.assign(service, sentence, false);
        let required = service.parameters.iter().filter(|one| one.is_required);
        let missing = required.filter(|one| !values.params.contains_key(&one.name));
        values.missing = missing.map(|parameter| parameter.name.as_str()).collect();
        values
    }

    fn insert(&mut self, parameter: &'a Parameter, value: Value, tokens: Range<usize>) {
        self.params.insert(parameter.name.clone(), value);
        self.found.push(parameter);
        self.used.extend(tokens);
    }

    /// Assigns the numbers, or the quotations: each to the parameter that the words before it
    /// name, and the last one left to the last parameter left.
    fn assign(&mut self, service: &'a Service, sentence: &[Token], is_number: bool) {
        let all = service.parameters.iter().filter(|one| one.takes(is_number));
        let (mut open, mut left, mut from) = (all.collect::<Vec<_>>(), Vec::new(), 0);
        for (at, token) in sentence.iter().enumerate() {
            if token.number().is_some() == is_number && (is_number || token.kind == Kind::Quote) {
                match named(sentence.get(from..at).unwrap_or_default(), &open) {
                    Some(place) => self.take(open.remove(place), sentence, (at, token)),
                    None => left.push((at, token)),
                }
                from = at + 1;
            }
        }
        if open.iter().any(|parameter| parameter.is_required) {
            open.retain(|parameter| parameter.is_required);
        }
        if let ([parameter], [value]) = (open.as_slice(), left.as_slice()) {
            self.take(parameter, sentence, *value);
        }
    }

    /// Takes the value at this place, unless its type or unit differ from those of the parameter.
    fn take(&mut self, parameter: &'a Parameter, sentence: &[Token], (at, token): (usize, &Token)) {
        let unit = sentence.get(at + 1).map_or("", |token| token.key.as_str());
        let mentions = parameter.words.keys.iter().any(|key| key == unit);
        let has_unit = match unit {
            "percent" => mentions || parameter.maximum == Some(100.0),
            _ => !lists(UNITS, unit) || mentions,
        };
        let value = match token.number() {
            None => token.raw.clone().into(),
            Some(number) if has_unit && number.fract() == 0.0 => Value::from(number as i64),
            Some(number) if has_unit && parameter.type_name == "number" => number.into(),
            Some(_) => return,
        };
        let has_sign = token.number().is_some() && lists("percent degree", unit);
        self.insert(parameter, value, at..at + 1 + usize::from(has_sign));
    }
}

/// The longest value of an enum that the sentence contains, unless there are two.
fn choose<'a>(parameter: &'a Parameter, sentence: &[Token]) -> Option<(Range<usize>, &'a Value)> {
    let places = parameter.choices.iter().filter_map(|(value, words)| {
        let is_filler = words.iter().all(|word| word.is(FILLER));
        let mut windows = sentence.windows(words.len().max(1)).filter(|_| !is_filler);
        let at = windows.position(|window| {
            window
                .iter()
                .zip(words)
                .all(|(one, two)| (&one.key, one.kind) == (&two.key, two.kind))
        })?;
        Some((at..at + words.len(), value))
    });
    let mut places: Vec<_> = places.collect();
    places.sort_by_key(|(place, _)| place.len());
    let longest = places.pop()?;
    let is_only = places
        .last()
        .is_none_or(|(other, _)| other.len() < longest.0.len());
    is_only.then_some(longest)
}

/// The parameter that these words name more clearly than any other.
fn named(before: &[Token], parameters: &[&Parameter]) -> Option<usize> {
    let score = |parameter: &Parameter| {
        let name = parameter.name.to_lowercase();
        let words = before.iter().filter(|token| token.kind == Kind::Word);
        let by_word = words.map(|token| {
            let is_part = token.raw.len() > 3 && name.contains(&token.raw);
            let is_name = is_part || parameter.words.name_keys.contains(&token.key);
            4 * usize::from(is_name) + usize::from(parameter.words.keys.contains(&token.key))
        });
        let pairs = words::pairs(before).into_iter();
        by_word.sum::<usize>() + pairs.filter(|pair| parameter.words.contains(pair)).count()
    };
    let mut scores: Vec<_> = parameters.iter().map(|one| score(one)).zip(0..).collect();
    scores.sort_unstable();
    let (best, place) = scores.pop()?;
    let next = scores.last().map_or(0, |(score, _)| *score);
    (best > next).then_some(place)
}
