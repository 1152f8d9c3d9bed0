//! Numbers as English says and writes them: `twenty-five`, `two hundred and five`, `2.5 million`, `1,000`.
//! Never: a part of a number for the whole of it.

use std::ops::Range;

use super::words::{Sentence, Token, Word};

/// A number in its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Numeral {
    pub(super) place: Range<usize>,
    pub(super) value: f64,
    /// It is `one`, which rarely counts anything.
    pub(super) is_one: bool,
}

/// What a word adds to a number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Zero,
    /// `two`: behind nothing, tens and scales.
    Unit(f64),
    /// `twelve`: behind nothing and scales.
    Teen(f64),
    /// `twenty`: likewise, and units may follow.
    Tens(f64),
    Hundred,
    /// `thousand` and more.
    Scale(f64),
    /// Digits: before scales only.
    Digits(f64),
}

const UNITS: [&str; 9] = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];
const TEENS: [&str; 10] = [
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] = [
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];
/// Before these, `one` is somebody or something.
const POINTS_AT: &[&str] = &[
    "this", "that", "the", "which", "another", "other", "every", "each", "no", "any", "some",
    "last", "next", "first",
];

/// All of them, in their order.
pub(super) fn english(sentence: &Sentence) -> Vec<Numeral> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < sentence.tokens.len() {
        let mut reading = Reading::new(sentence, at);
        if reading.read() {
            at = reading.next;
            found.extend(reading.numeral());
        } else {
            at += 1;
        }
    }
    found
}

/// A number while it is read.
struct Reading<'a> {
    sentence: &'a Sentence,
    from: usize,
    /// Behind what was read.
    next: usize,
    /// What thousands and more come to.
    sum: f64,
    /// What has no thousand behind it yet.
    rest: f64,
    /// What follows must be less than this: the smallest scale so far.
    below: f64,
    last: Option<Part>,
}

impl<'a> Reading<'a> {
    const fn new(sentence: &'a Sentence, from: usize) -> Self {
        Self {
            sentence,
            from,
            next: from,
            sum: 0.0,
            rest: 0.0,
            below: f64::INFINITY,
            last: None,
        }
    }

    /// Reads as far as one number goes; whether there is one.
    fn read(&mut self) -> bool {
        while let Some(part) = self.part(self.next) {
            if !self.is_joined(self.next) || !self.takes(part) {
                break;
            }
            self.next += 1;
            self.last = Some(part);
            if matches!(part, Part::Digits(_)) {
                self.groups_of_digits();
            }
            self.decimals();
            self.half();
            if matches!(part, Part::Hundred | Part::Scale(_)) && self.is_word(self.next, "and") {
                let more = self.part(self.next + 1);
                let is_more = matches!(more, Some(Part::Unit(_) | Part::Teen(_) | Part::Tens(_)));
                if is_more && self.is_joined(self.next) && self.is_joined(self.next + 1) {
                    self.next += 1;
                }
            }
        }
        self.next > self.from
    }

    fn takes(&mut self, part: Part) -> bool {
        let is_first = self.last.is_none();
        let is_scaled = matches!(self.last, Some(Part::Hundred | Part::Scale(_)));
        let is_behind_tens = matches!(self.last, Some(Part::Tens(_)));
        let is_whole = self.rest.fract() == 0.0;
        match part {
            Part::Zero if is_first => {}
            Part::Digits(value) if is_first => self.rest = value,
            Part::Unit(value) if is_first || is_whole && (is_scaled || is_behind_tens) => {
                self.rest += value;
            }
            Part::Teen(value) | Part::Tens(value) if is_first || is_whole && is_scaled => {
                self.rest += value;
            }
            Part::Hundred if is_first => self.rest = 100.0,
            Part::Hundred if self.rest > 0.0 && self.rest < 100.0 => self.rest *= 100.0,
            Part::Scale(scale) if scale < self.below && (is_first || self.rest > 0.0) => {
                self.sum += scale * if is_first { 1.0 } else { self.rest };
                (self.rest, self.below) = (0.0, scale);
            }
            _ => return false,
        }
        true
    }

    /// `1,000,000`: groups of three behind commas.
    fn groups_of_digits(&mut self) {
        let begin = self.whole(self.from).map_or(0, str::len);
        let (mut whole, is_short) = (self.rest, begin <= 3 && self.rest >= 1.0);
        while is_short && whole.fract() == 0.0 && self.text_at(self.next) == Some(",") {
            let group = self.whole(self.next + 1).unwrap_or_default();
            let digits = group.split('.').next().unwrap_or_default();
            let is_group = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
            let (Ok(value), true) = (group.parse::<f64>(), is_group && self.is_glued()) else {
                break;
            };
            whole = whole * 1000.0 + value;
            self.next += 2;
        }
        self.rest = whole;
    }

    /// `two point five`.
    fn decimals(&mut self) {
        let digit = |at: usize| match self.part(at).filter(|_| self.is_joined(at)) {
            Some(Part::Zero) => Some(0.0),
            Some(Part::Unit(value)) => Some(value),
            _ => None,
        };
        if !self.is_word(self.next, "point") || digit(self.next + 1).is_none() {
            return;
        }
        let (mut at, mut text) = (self.next + 1, String::from("0."));
        while let Some(value) = digit(at) {
            text.push_str(&value.to_string());
            at += 1;
        }
        self.rest += text.parse::<f64>().unwrap_or_default();
        self.next = at;
    }

    /// `two and a half`.
    fn half(&mut self) {
        let words = ["and", "a", "half"];
        let mut all = words.iter().enumerate();
        if all.all(|(place, word)| self.is_word(self.next + place, word)) {
            self.rest += 0.5;
            self.next += words.len();
        }
    }

    fn numeral(&self) -> Option<Numeral> {
        let start = self.token(self.from)?.place.start;
        let end = self.token(self.next.checked_sub(1)?)?.place.end;
        let is_one = self.next == self.from + 1 && self.is_word(self.from, "one");
        let before = self.from.checked_sub(1).and_then(|at| self.whole(at));
        if is_one && before.is_some_and(|before| POINTS_AT.contains(&before)) {
            return None;
        }
        Some(Numeral {
            place: start..end,
            value: self.sum + self.rest,
            is_one,
        })
    }

    fn token(&self, at: usize) -> Option<&'a Token> {
        self.sentence.tokens.get(at)
    }

    fn whole(&self, at: usize) -> Option<&'a str> {
        match &self.token(at)?.word {
            Word::English { whole, .. } => Some(whole),
            _ => None,
        }
    }

    fn text_at(&self, at: usize) -> Option<&'a str> {
        self.sentence.text.get(self.token(at)?.place.clone())
    }

    fn is_word(&self, at: usize, word: &str) -> bool {
        self.whole(at) == Some(word)
    }

    fn part(&self, at: usize) -> Option<Part> {
        let whole = self.whole(at)?;
        if whole.starts_with(|c: char| c.is_ascii_digit()) {
            return whole.parse().ok().map(Part::Digits);
        }
        let place = |words: &[&str]| words.iter().position(|word| *word == whole);
        let value = |place: usize| place as f64;
        Some(match whole {
            "zero" => Part::Zero,
            "hundred" => Part::Hundred,
            "thousand" => Part::Scale(1e3),
            "million" => Part::Scale(1e6),
            _ => place(&UNITS)
                .map(|place| Part::Unit(value(place) + 1.0))
                .or_else(|| place(&TEENS).map(|place| Part::Teen(value(place) + 10.0)))
                .or_else(|| place(&TENS).map(|place| Part::Tens(value(place) * 10.0 + 20.0)))?,
        })
    }

    /// Whether only a space or a hyphen stands between a word and the one before it in this number.
    fn is_joined(&self, at: usize) -> bool {
        if at == self.from {
            return true;
        }
        let between = self.between(at);
        between.is_some_and(|between| between.trim().is_empty() || between == "-")
    }

    /// Whether the next two words stand right behind the last one.
    fn is_glued(&self) -> bool {
        let is_empty = |at: usize| self.between(at).is_some_and(str::is_empty);
        is_empty(self.next) && is_empty(self.next + 1)
    }

    fn between(&self, at: usize) -> Option<&'a str> {
        let before = self.token(at.checked_sub(1)?)?.place.end;
        self.sentence.text.get(before..self.token(at)?.place.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_make_one_number_are_read_as_one() {
        fn check(text: &str, expected: &[f64]) {
            let sentence = Sentence::read(text);
            let found: Vec<f64> = english(&sentence).iter().map(|one| one.value).collect();
            assert_eq!(found, expected, "{text}");
        }
        for (place, word) in UNITS.iter().chain(&TEENS).enumerate() {
            check(word, &[place as f64 + 1.0]);
        }
        check("zero", &[0.0]);
        check("twenty five", &[25.0]);
        check("Twenty-Five percent", &[25.0]);
        check("ninety nine", &[99.0]);
        check("a hundred", &[100.0]);
        check("two hundred", &[200.0]);
        check("one hundred and five", &[105.0]);
        check("two hundred and twenty five", &[225.0]);
        check("twelve hundred", &[1_200.0]);
        check("two thousand three hundred", &[2_300.0]);
        check("one million two thousand and seven", &[1_002_007.0]);
        check("2.5 million", &[2_500_000.0]);
        check("2 hundred", &[200.0]);
        check("1,000", &[1_000.0]);
        check("1,234,567.5 and 12", &[1_234_567.5, 12.0]);
        check("two point five", &[2.5]);
        check("zero point zero five", &[0.05]);
        check("two and a half minutes", &[2.5]);
        // These are two each.
        check("five six", &[5.0, 6.0]);
        check("20 5", &[20.0, 5.0]);
        check("twenty and five", &[20.0, 5.0]);
        check("nineteen eighty", &[19.0, 80.0]);
        check("five, twenty", &[5.0, 20.0]);
        check("between 1,2 and 3", &[1.0, 2.0, 3.0]);
        check("twenty / five", &[20.0, 5.0]);
        check("this one and that one, one by one", &[1.0, 1.0]);
    }
}
