//! The numbers in a text: digits, English words, Chinese ones; and what they count.
//! Never: a number out of a word that only contains one.

use std::ops::Range;

use super::{
    numerals,
    words::{Sentence, is_chinese},
};

/// A number in its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Number {
    pub(super) place: Range<usize>,
    pub(super) value: f64,
    pub(super) percent: bool,
    /// How many seconds one of what it counts has, if it counts time.
    pub(super) seconds: Option<f64>,
    /// It may be none: `one` that counts nothing.
    pub(super) is_vague: bool,
}

const UNITS: &[(&str, f64)] = &[
    ("milliseconds", 0.001),
    ("ms", 0.001),
    ("seconds", 1.0),
    ("second", 1.0),
    ("sec", 1.0),
    ("minutes", 60.0),
    ("minute", 60.0),
    ("min", 60.0),
    ("hours", 3600.0),
    ("hour", 3600.0),
    ("毫秒", 0.001),
    ("秒", 1.0),
    ("分钟", 60.0),
    ("小时", 3600.0),
    ("个小时", 3600.0),
];
const DIGITS: &str = "零一二三四五六七八九";
/// What a single Chinese `one` must stand before to be a number, and not part of a word.
const COUNTED: &str = "米度分秒级次步档小百十千圈厘公%％楼号";

/// All of them, in their order.
pub(super) fn all(sentence: &Sentence) -> Vec<Number> {
    let text = sentence.text.as_str();
    let spoken = numerals::english(sentence).into_iter().map(|numeral| {
        let mut found = number(text, numeral.place, numeral.value);
        found.is_vague = numeral.is_one && found.seconds.is_none() && !found.percent;
        found
    });
    let mut found: Vec<Number> = spoken.chain(chinese(text)).collect();
    found.sort_by_key(|number| number.place.start);
    found
}

/// What makes the number behind it one below zero; how long it is.
fn minus(before: &str) -> Option<usize> {
    let is_apart = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || c == '-');
    let before_words = before.trim_end();
    let spaces = before.len() - before_words.len();
    let lower = before_words.to_lowercase();
    let said = ["minus", "negative", "零下", "负", "負"];
    let said = said.into_iter().find(|word| {
        let rest = lower.strip_suffix(word);
        rest.is_some_and(|rest| !word.is_ascii() || is_apart(rest))
    });
    if let Some(word) = said {
        return Some(spaces + word.len());
    }
    let rest = before.strip_suffix('-')?;
    is_apart(rest).then_some(1)
}

fn number(text: &str, place: Range<usize>, value: f64) -> Number {
    let after = text
        .get(place.end..)
        .unwrap_or_default()
        .trim_start()
        .to_lowercase();
    let before = text.get(..place.start).unwrap_or_default();
    let minus = minus(before);
    let place = place.start - minus.unwrap_or(0)..place.end;
    let percent = ["%", "％", "percent"]
        .iter()
        .any(|sign| after.starts_with(sign))
        || before.ends_with("百分之");
    let unit = UNITS.iter().filter(|(unit, _)| {
        let rest = after.strip_prefix(unit);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
    });
    let seconds = unit
        .max_by_key(|(unit, _)| unit.len())
        .map(|(_, seconds)| *seconds);
    Number {
        place,
        value: if minus.is_some() { -value } else { value },
        percent,
        seconds,
        is_vague: false,
    }
}

fn is_numeral(c: char) -> bool {
    DIGITS.contains(c) || matches!(c, '两' | '十' | '百' | '千')
}

fn chinese(text: &str) -> Vec<Number> {
    let mut found = Vec::new();
    let mut from = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if is_numeral(c) {
            from.get_or_insert(at);
            continue;
        }
        let Some(from) = from.take() else { continue };
        let run = text.get(from..at).unwrap_or_default();
        // `百分之五十` is a number behind two characters that are none.
        let is_share = run == "百" && text.get(at..).is_some_and(|left| left.starts_with("分之"));
        let before = text.get(..from).and_then(|left| left.chars().next_back());
        let of_a_word = run == "一" && !COUNTED.contains(c)
            || matches!(before, Some('星' | '期' | '第' | '周'))
            || run == "千"
            || run == "零" && c == '下'
            || run == "百" && !is_chinese(c);
        if !is_share && !of_a_word {
            found.push(number(text, from..at, value(run)));
        }
    }
    found
}

/// `二十三` is 23, `一百零五` 105, `三五` 35.
fn value(run: &str) -> f64 {
    let digit = |c: char| {
        if c == '两' {
            Some(2)
        } else {
            DIGITS.chars().position(|digit| digit == c)
        }
    };
    let has_scale = run.contains(['十', '百', '千']);
    let (mut sum, mut current, mut any) = (0_u64, 0_u64, false);
    for c in run.chars() {
        let scale = match c {
            '十' => 10,
            '百' => 100,
            '千' => 1000,
            _ => {
                let digit = digit(c).unwrap_or_default() as u64;
                current = if has_scale {
                    digit
                } else {
                    current.saturating_mul(10).saturating_add(digit)
                };
                any = true;
                continue;
            }
        };
        sum = sum.saturating_add(if any { current } else { 1 }.saturating_mul(scale));
        (current, any) = (0, false);
    }
    sum.saturating_add(current) as f64
}
