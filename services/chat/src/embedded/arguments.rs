//! What a sentence says for each parameter of a service.
//! Never: a value that the sentence does not say.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    abilities::Ability,
    amounts::{self, Amount},
    choices, clauses,
    concepts::{Kind, Meaning},
    features::Feature,
    mood::Mood,
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
    mood: Mood,
    ability: &'a Ability,
    numbers: Vec<Number>,
    quotes: Vec<std::ops::Range<usize>>,
    /// Tokens that are values of other parameters.
    used: HashSet<usize>,
    /// Parameters of which something was said that is not understood.
    unclear: HashSet<&'a str>,
}

/// What a question and the answers to what was asked back say; each answer is for what is still missing.
pub(super) fn fill<'a>(ability: &'a Ability, said: &[Sentence]) -> Filled<'a> {
    let mut params = Map::new();
    let mut unclear = HashSet::new();
    // Texts come last: they are what nothing else took.
    let texts = |parameter: &&Parameter| parameter.takes == Takes::Text;
    let (last, first): (Vec<&Parameter>, Vec<&Parameter>) =
        ability.parameters.iter().partition(texts);
    let all: Vec<&Parameter> = first.into_iter().chain(last).collect();
    for sentence in said {
        let mut said = Said {
            sentence,
            mood: Mood::of(sentence),
            ability,
            numbers: numbers::all(sentence),
            quotes: stretches::quoted(&sentence.text),
            used: HashSet::new(),
            unclear: HashSet::new(),
        };
        for parameter in &all {
            if params.contains_key(&parameter.name) {
                continue;
            }
            if let Some(value) = said.value_of(parameter) {
                params.insert(parameter.name.clone(), value);
            }
        }
        unclear.extend(said.unclear);
    }
    let is_missing = |parameter: &&&Parameter| {
        let is_wanted = parameter.required || unclear.contains(parameter.name.as_str());
        is_wanted && !params.contains_key(&parameter.name)
    };
    let missing = all.iter().filter(is_missing);
    let missing = missing.map(|parameter| parameter.name.as_str()).collect();
    Filled { params, missing }
}

impl<'a> Said<'a> {
    fn value_of(&mut self, parameter: &'a Parameter) -> Option<Value> {
        match &parameter.takes {
            Takes::OneOf(values) => self.choice(values),
            Takes::Flag => self.flag(parameter),
            Takes::Whole => self.number(parameter, true),
            Takes::Number => self.number(parameter, false),
            Takes::Text => self.text(parameter).map(Value::from),
            Takes::Structure => None,
        }
    }

    fn choice(&mut self, values: &[Value]) -> Option<Value> {
        let counts = |_: usize, token: &Token| !self.mood.excludes(token);
        let chosen = choices::choose(values, self.sentence, counts)?;
        self.used.extend(chosen.tokens);
        Some(chosen.value.clone())
    }

    fn flag(&self, parameter: &Parameter) -> Option<Value> {
        let tokens = self.sentence.tokens.iter();
        let (denied, meant): (Vec<&Token>, Vec<&Token>) =
            tokens.partition(|token| self.mood.excludes(token));
        let says = |meanings: &[Meaning]| {
            let mut said = meant.iter().flat_map(|token| &token.meanings);
            said.any(|meaning| meanings.contains(meaning))
        };
        // A switch of its own is meant when it is named; otherwise the words for on and off are about the whole.
        let is_switch =
            parameter.required || parameter.features.contains(&Feature::Meaning(Meaning::On));
        let names = |token: &&Token| {
            let is_on = token.meanings.contains(&Meaning::On);
            !is_on && !token.empty && is_named(parameter, token)
        };
        let unlocks = parameter
            .features
            .contains(&Feature::Meaning(Meaning::Unlock));
        let (mut on, mut off) = (
            says(&[Meaning::On, Meaning::Open, Meaning::Start, Meaning::Lock]),
            says(&[Meaning::Off, Meaning::Close, Meaning::Stop, Meaning::Unlock]),
        );
        if unlocks {
            (on, off) = (says(&[Meaning::Unlock]), says(&[Meaning::Lock]));
        }
        if denied.iter().any(names) {
            return Some(false.into());
        }
        if !is_switch && !meant.iter().any(names) {
            return None;
        }
        match (on, off) {
            (true, false) => Some(true.into()),
            (false, true) => Some(false.into()),
            (false, false) if parameter.required => {
                let last = meant.last().and_then(|token| clauses::english(token));
                matches!(last, Some("yes" | "true")).then(|| true.into())
            }
            (false, false) => self.is_with(&meant, names).then(|| true.into()),
            (true, true) => None,
        }
    }

    /// Whether it is said that something is to be used, not only spoken of.
    fn is_with(&self, meant: &[&Token], names: impl Fn(&&Token) -> bool) -> bool {
        let Some(first) = meant.iter().find(|token| names(token)) else {
            return false;
        };
        let before = self
            .sentence
            .text
            .get(..first.place.start)
            .unwrap_or_default();
        let last = before.split_whitespace().next_back().unwrap_or_default();
        matches!(
            last.to_lowercase().as_str(),
            "with" | "use" | "using" | "and"
        ) || before.trim_end().ends_with(['带', '用', '并'])
    }

    fn number(&mut self, parameter: &'a Parameter, whole: bool) -> Option<Value> {
        let named = self
            .sentence
            .tokens
            .iter()
            .filter(|token| is_named(parameter, token));
        let named: Vec<usize> = named.map(|token| token.place.start).collect();
        let takes_numbers =
            |other: &&Parameter| matches!(other.takes, Takes::Whole | Takes::Number);
        let wanted = self.ability.parameters.iter().filter(takes_numbers).count();
        let picked = amounts::pick(
            &self.numbers,
            parameter,
            self.ability,
            self.sentence,
            &named,
            wanted,
        );
        let at = match picked {
            Amount::At(at) => at,
            Amount::None => return None,
            Amount::Unclear => {
                self.unclear.insert(&parameter.name);
                return None;
            }
        };
        let number = self.numbers.remove(at);
        self.use_place(&number.place);
        let mut value = number.value;
        if let (Some(seconds), Some(unit)) = (number.seconds, amounts::unit_of(parameter)) {
            value = value * seconds / unit;
        }
        if number.percent && parameter.maximum.is_some_and(|most| most <= 1.0) {
            value /= 100.0;
        }
        if value.fract() == 0.0 && value.abs() < 1e15 {
            return Some(Value::from(value as i64));
        }
        if whole {
            self.unclear.insert(&parameter.name);
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
        if let Some(text) = self.behind_colon() {
            return Some(text);
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

    /// `Send a message: …`: all that follows, as it was said.
    fn behind_colon(&self) -> Option<String> {
        let text = &self.sentence.text;
        let (at, mark) = text.char_indices().find(|(at, c)| {
            let rest = text.get(at + c.len_utf8()..).unwrap_or_default();
            *c == '：' || *c == ':' && rest.starts_with(char::is_whitespace)
        })?;
        let mut before = self.sentence.tokens.iter();
        before
            .any(|token| token.place.end <= at && self.is_understood(token))
            .then_some(())?;
        let text = text.get(at + mark.len_utf8()..)?.trim();
        (!text.is_empty()).then(|| text.to_owned())
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
