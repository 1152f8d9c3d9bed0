//! What a sentence says for each parameter of a service.
//! Never: a value that the sentence does not say.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    abilities::Ability,
    concepts::{Kind, Meaning},
    features::{self, Feature},
    numbers::{self, Number},
    parameters::{Parameter, Takes},
    stretches,
    words::{Sentence, Token, Word},
};

/// What was found.
pub(super) struct Filled<'a> {
    pub(super) params: Map<String, Value>,
    pub(super) missing: Vec<&'a str>,
}

/// A sentence, and what of it is spoken for already.
struct Said<'a> {
    sentence: &'a Sentence,
    ability: &'a Ability,
    numbers: Vec<Number>,
    quotes: Vec<std::ops::Range<usize>>,
    /// Tokens that are values of other parameters.
    used: HashSet<usize>,
}

pub(super) fn fill<'a>(ability: &'a Ability, sentence: &Sentence) -> Filled<'a> {
    let mut said = Said {
        sentence,
        ability,
        numbers: numbers::all(sentence),
        quotes: stretches::quoted(&sentence.text),
        used: HashSet::new(),
    };
    let mut filled = Filled {
        params: Map::new(),
        missing: Vec::new(),
    };
    // Texts come last: they are what nothing else took.
    let texts = |parameter: &&Parameter| parameter.takes == Takes::Text;
    let (last, first): (Vec<&Parameter>, Vec<&Parameter>) =
        ability.parameters.iter().partition(texts);
    for parameter in first.into_iter().chain(last) {
        match said.value_of(parameter) {
            Some(value) => {
                filled.params.insert(parameter.name.clone(), value);
            }
            None if parameter.required => filled.missing.push(&parameter.name),
            None => {}
        }
    }
    filled
}

impl Said<'_> {
    fn value_of(&mut self, parameter: &Parameter) -> Option<Value> {
        match &parameter.takes {
            Takes::OneOf(values) => self.choice(values),
            Takes::Flag => self.flag(parameter),
            Takes::Whole => self.number(parameter, true),
            Takes::Number => self.number(parameter, false),
            Takes::Text => self.text(parameter).map(Value::from),
            Takes::Structure => None,
        }
    }

    /// The value whose words are said; of several the one that most is said of.
    fn choice(&mut self, values: &[Value]) -> Option<Value> {
        let said = features::of(self.sentence);
        let mut best: Option<(f64, &Value, Vec<usize>)> = None;
        for value in values {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let wanted = features::present(&Sentence::read(&text));
            let hits = said
                .iter()
                .filter(|(feature, _, _)| wanted.contains(feature));
            let hits: Vec<_> = hits.collect();
            let mut score: f64 = hits.iter().map(|(_, weight, _)| weight).sum();
            // The very characters, when they are not part of a word.
            let whole = self
                .sentence
                .english()
                .contains(&text.to_lowercase().as_str());
            if whole || !text.is_ascii() && self.sentence.text.contains(&text) {
                score += 2.0;
            }
            if score > best.as_ref().map_or(0.0, |(score, _, _)| *score) {
                best = Some((score, value, hits.iter().map(|(_, _, at)| *at).collect()));
            }
        }
        let (_, value, tokens) = best?;
        self.used.extend(tokens);
        Some(value.clone())
    }

    fn flag(&self, parameter: &Parameter) -> Option<Value> {
        let says =
            |meanings: &[Meaning]| meanings.iter().any(|meaning| self.sentence.has(*meaning));
        let said = features::present(self.sentence);
        // A switch of its own is meant when it is named; otherwise the words for on and off are about the whole.
        let is_switch =
            parameter.required || parameter.features.contains(&Feature::Meaning(Meaning::On));
        let named = parameter.features.iter().any(|feature| {
            said.contains(feature) && !matches!(feature, Feature::Meaning(Meaning::On))
        });
        let off = says(&[Meaning::Off, Meaning::Close, Meaning::Stop, Meaning::Unlock]);
        let unlocks = parameter
            .features
            .contains(&Feature::Meaning(Meaning::Unlock));
        match () {
            () if unlocks && (is_switch || named) => {
                says(&[Meaning::Lock, Meaning::Unlock]).then(|| says(&[Meaning::Unlock]).into())
            }
            () if off && (is_switch || named) => Some(false.into()),
            () if says(&[Meaning::On, Meaning::Open, Meaning::Start, Meaning::Lock])
                && is_switch
                || named =>
            {
                Some(true.into())
            }
            () => None,
        }
    }

    /// The number that stands nearest to the parameter's own words, or else the first that is left.
    fn number(&mut self, parameter: &Parameter, whole: bool) -> Option<Value> {
        let named = self
            .sentence
            .tokens
            .iter()
            .filter(|token| is_named(parameter, token));
        let named: Vec<usize> = named.map(|token| token.place.start).collect();
        let nearest = |number: &Number| {
            named
                .iter()
                .map(|at| at.abs_diff(number.place.start))
                .min()
                .unwrap_or_default()
        };
        // What is perhaps no number is one only where one is wanted, and no other is there.
        let fits = |at: &usize| {
            let number = self.numbers.get(*at);
            number.is_some_and(|number| parameter.required || !number.is_vague)
        };
        let rank = |at: &usize| {
            let number = self.numbers.get(*at);
            number.map(|number| (number.is_vague, nearest(number)))
        };
        let at = (0..self.numbers.len()).filter(fits).min_by_key(rank)?;
        let number = self.numbers.remove(at);
        self.use_place(&number.place);
        let mut value = number.value;
        if let (Some(seconds), Some(unit)) = (number.seconds, unit_of(parameter)) {
            value = value * seconds / unit;
        }
        if number.percent && parameter.maximum.is_some_and(|most| most <= 1.0) {
            value /= 100.0;
        }
        if value.fract() == 0.0 && value.abs() < 1e15 {
            return Some(Value::from(value as i64));
        }
        if whole {
            None
        } else {
            Some(Value::from(value))
        }
    }

    fn text(&mut self, parameter: &Parameter) -> Option<String> {
        if let Some(quote) = self.quote(parameter) {
            return Some(quote);
        }
        let alone = self
            .ability
            .parameters
            .iter()
            .filter(|other| other.takes == Takes::Text)
            .count()
            == 1;
        if let Some(text) = self.named_text(parameter) {
            return Some(text);
        }
        if !alone {
            return None;
        }
        let left = stretches::left(self.sentence, |at, token| {
            self.used.contains(&at) || self.is_understood(token)
        });
        let fits = left
            .into_iter()
            .filter(|stretch| parameter.required || stretch.is_attached);
        fits.max_by_key(|stretch| stretch.text.len())
            .map(|stretch| stretch.text)
    }

    /// The quotation behind the parameter's own words, or else the first that is left.
    fn quote(&mut self, parameter: &Parameter) -> Option<String> {
        let named = self
            .sentence
            .tokens
            .iter()
            .filter(|token| is_named(parameter, token));
        let named: Vec<usize> = named.map(|token| token.place.end).collect();
        let behind = self.quotes.iter().position(|quote| {
            named
                .iter()
                .any(|end| *end <= quote.start && quote.start - end <= 12)
        });
        if self.quotes.is_empty() {
            return None;
        }
        let quote = self.quotes.remove(behind.unwrap_or(0));
        self.use_place(&quote);
        self.sentence.text.get(quote).map(str::to_owned)
    }

    /// What follows the parameter's own words, up to those of another.
    fn named_text(&mut self, parameter: &Parameter) -> Option<String> {
        let own = |token: &Token| parameter_word(parameter, token);
        let at = self.sentence.tokens.iter().position(own)?;
        let others = |token: &Token| {
            self.ability
                .parameters
                .iter()
                .any(|other| other.name != parameter.name && parameter_word(other, token))
        };
        let end = self
            .sentence
            .tokens
            .iter()
            .enumerate()
            .skip(at + 1)
            .find(|(_, token)| others(token))
            .map_or(usize::MAX, |(at, _)| at);
        let ends =
            |index: usize, _: &Token| index <= at || index >= end || self.used.contains(&index);
        let found = stretches::left(self.sentence, ends).into_iter().next()?;
        let from = self.sentence.text.find(&found.text)?;
        self.use_place(&(from..from + found.text.len()));
        Some(found.text)
    }

    fn use_place(&mut self, place: &std::ops::Range<usize>) {
        let within =
            |token: &Token| token.place.start >= place.start && token.place.end <= place.end;
        let used = self
            .sentence
            .tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| within(token))
            .map(|(at, _)| at);
        self.used.extend(used.collect::<Vec<_>>());
    }

    /// A word that led to the service is no value.
    fn is_understood(&self, token: &Token) -> bool {
        let of_the_table = token.meanings.iter().any(|meaning| {
            self.ability
                .features
                .contains_key(&Feature::Meaning(*meaning))
                || meaning.kind() == Kind::Vague
        });
        let of_its_own = matches!(&token.word, Word::English { stem, .. } if self.ability.features.contains_key(&Feature::Word(stem.clone())));
        of_the_table || of_its_own
    }
}

/// Whether a token is a word for the parameter, by name or meaning.
fn is_named(parameter: &Parameter, token: &Token) -> bool {
    let by_meaning = token.meanings.iter().any(|meaning| {
        meaning.kind() != Kind::Vague && parameter.features.contains(&Feature::Meaning(*meaning))
    });
    by_meaning || parameter_word(parameter, token)
}

/// Whether a token is the parameter's name, or part of it.
fn parameter_word(parameter: &Parameter, token: &Token) -> bool {
    match &token.word {
        Word::English { stem, whole } => {
            let name = parameter.name.to_lowercase();
            // `filename` is also a name.
            parameter.features.contains(&Feature::Word(stem.clone()))
                || whole.len() >= 4 && name.ends_with(whole.as_str())
                || matches!(whole.as_str(), "called" | "named") && name.ends_with("name")
        }
        _ => false,
    }
}

/// How many seconds the unit has that the parameter counts, if it counts time.
fn unit_of(parameter: &Parameter) -> Option<f64> {
    let text = parameter.words.text.to_lowercase();
    let units = [
        ("millisecond", 0.001),
        ("毫秒", 0.001),
        ("_ms", 0.001),
        ("second", 1.0),
        ("秒", 1.0),
        ("_s.", 1.0),
        ("minute", 60.0),
        ("分钟", 60.0),
        ("hour", 3600.0),
        ("小时", 3600.0),
    ];
    units
        .iter()
        .find(|(unit, _)| text.contains(unit))
        .map(|(_, seconds)| *seconds)
}
