//! The numbers in a text with what they count, and whether all of each was understood.
//! Never: a number out of a word or an id that only contains one.

use std::ops::Range;

use super::{chinese_numerals, numerals, stretches, words::Sentence};

/// A number in its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Number {
    pub(super) place: Range<usize>,
    /// Behind the unit.
    end: usize,
    pub(super) value: f64,
    pub(super) percent: bool,
    /// How many seconds one of what it counts has, if it counts time.
    pub(super) seconds: Option<f64>,
    /// It may be none: `one` that counts nothing.
    pub(super) is_vague: bool,
    /// It is not known what all that stands there comes to.
    pub(super) is_unclear: bool,
    /// It was added up from hours, minutes and seconds.
    pub(super) is_sum: bool,
    /// It is said to be what is arrived at, or by how much that changes.
    pub(super) is_end: bool,
    pub(super) is_change: bool,
}

const UNITS: &[(&str, f64)] = &[
    ("milliseconds", 0.001),
    ("ms", 0.001),
    ("seconds", 1.0),
    ("second", 1.0),
    ("secs", 1.0),
    ("sec", 1.0),
    ("s", 1.0),
    ("minutes", 60.0),
    ("minute", 60.0),
    ("mins", 60.0),
    ("min", 60.0),
    ("hours", 3600.0),
    ("hour", 3600.0),
    ("hrs", 3600.0),
    ("hr", 3600.0),
    ("h", 3600.0),
    ("days", 86_400.0),
    ("day", 86_400.0),
    ("毫秒", 0.001),
    ("秒", 1.0),
    ("分钟", 60.0),
    ("分鐘", 60.0),
    ("分", 60.0),
    ("刻钟", 900.0),
    ("小时", 3600.0),
    ("小時", 3600.0),
    ("钟头", 3600.0),
    ("天", 86_400.0),
];
/// Behind a number they make it another.
const MORE: &[&str] = &[
    "billion", "trillion", "dozen", "half", "halves", "quarter", "quarters", "third", "thirds",
    "score", "point", "k", "hundred", "thousand", "million",
];
const ORDINALS: &[&str] = &["st", "nd", "rd", "th"];
const ARRIVES: &[&str] = &["to", "at", "=", "到", "至", "成", "为", "為", "is"];
const ABOUT: &[&str] = &[
    "about", "around", "exactly", "roughly", "大约", "大概", "约", "大約",
];
const CHANGES: &str = "高低大小加减減升降快慢热冷亮暗增多少调";
const JOINS: &[&str] = &["", "and", ",", "又", "零"];
const OR: &[&str] = &[
    "to", "or", "-", "–", "~", "～", "到", "至", "或", "或者", "/", ":", ",",
];

/// All of them, in their order.
pub(super) fn all(sentence: &Sentence) -> Vec<Number> {
    let text = sentence.text.as_str();
    let quoted = stretches::quoted(text);
    let is_apart = |place: &Range<usize>| {
        let mut others = sentence.names.iter().chain(&quoted);
        !others.any(|other| place.start < other.end && other.start < place.end)
    };
    let spoken = numerals::english(sentence).into_iter();
    let spoken = spoken.filter_map(|numeral| {
        let before = text.get(..numeral.place.start).unwrap_or_default();
        // `lamp-3` and `v2` are names.
        let is_name = before
            .trim_end_matches(['-', '_'])
            .ends_with(|c: char| c.is_ascii_alphabetic())
            && !before.ends_with(' ');
        let after = text.get(numeral.place.end..).unwrap_or_default();
        let is_place = ORDINALS.iter().any(|ordinal| word(after) == *ordinal);
        let (value, length, is_unclear) = chinese_numerals::scaled(after, numeral.value);
        let place = numeral.place.start..numeral.place.end + length;
        let mut found = number(text, place, value);
        found.is_unclear |= is_unclear;
        found.is_vague = numeral.is_one && found.seconds.is_none() && !found.percent;
        (!is_name && !is_place).then_some(found)
    });
    let chinese = chinese_numerals::all(text).into_iter().map(|numeral| {
        let mut found = number(text, numeral.place, numeral.value);
        found.is_unclear |= numeral.is_unclear;
        found
    });
    let all = spoken.chain(chinese).chain(articles(text));
    let mut found: Vec<Number> = all.filter(|number| is_apart(&number.place)).collect();
    found.sort_by_key(|number| number.place.start);
    added_up(text, found)
}

/// `half an hour`, `a minute`: only of time.
fn articles(text: &str) -> Vec<Number> {
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<Number> = Vec::new();
    for (said, value) in [
        ("half an ", 0.5),
        ("half a ", 0.5),
        ("an ", 1.0),
        ("a ", 1.0),
    ] {
        for (at, _) in lower.match_indices(said) {
            let before = lower.get(..at).unwrap_or_default();
            let counted = number(text, at..at + said.trim_end().len(), value);
            let is_part = before.trim_end().ends_with("of") || before.trim_end().ends_with("half");
            let is_word = !before.ends_with(|c: char| c.is_alphanumeric());
            if counted.seconds.is_some() && is_word && !is_part {
                found.push(counted);
            }
        }
    }
    found
}

fn word(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
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
    let lower = text.to_ascii_lowercase();
    let after = lower.get(place.end..).unwrap_or_default();
    let before = lower.get(..place.start).unwrap_or_default();
    let minus = minus(before);
    let mut rest = after.trim_start();
    let percent = ["%", "％", "percent"]
        .iter()
        .any(|sign| rest.starts_with(sign))
        || before.ends_with("百分之");
    let mut value = value;
    let of_these = rest.strip_prefix(['个', '個']);
    if let Some(half) = of_these.and_then(|rest| rest.strip_prefix('半')) {
        (value, rest) = (value + 0.5, half);
    } else if let Some(unit) = of_these {
        rest = unit;
    }
    let unit = UNITS.iter().filter(|(unit, _)| {
        let behind = rest.strip_prefix(unit);
        behind.is_some_and(|behind| !behind.starts_with(|c: char| c.is_ascii_alphabetic()))
            && !rest.starts_with("分之")
            && !rest.starts_with("分贝")
    });
    let unit = unit.max_by_key(|(unit, _)| unit.len());
    let counted = unit.map_or(rest, |(unit, _)| rest.get(unit.len()..).unwrap_or_default());
    let behind = counted
        .strip_prefix(['度', '米'])
        .filter(|_| unit.is_none())
        .unwrap_or(counted);
    let half = behind
        .strip_prefix('半')
        .or_else(|| behind.strip_prefix(" and a half"));
    let is_half = half.is_some() && behind.len() < after.len();
    if is_half {
        value += 0.5;
    }
    let end = half.filter(|_| is_half).unwrap_or(counted);
    let said = before
        .get(..before.len() - minus.unwrap_or(0))
        .unwrap_or_default();
    let said = said.strip_suffix("百分之").unwrap_or(said).trim_end();
    let said = ABOUT
        .iter()
        .find_map(|word| said.strip_suffix(word))
        .unwrap_or(said)
        .trim_end();
    let is_more = MORE.contains(&word(counted.trim_start())) && !is_half;
    Number {
        place: place.start - minus.unwrap_or(0)..place.end,
        end: text.len() - end.len(),
        value: if minus.is_some() { -value } else { value },
        percent,
        seconds: unit.map(|(_, seconds)| *seconds),
        is_vague: false,
        is_unclear: is_more,
        is_sum: false,
        is_end: ARRIVES.iter().any(|word| ends_with(said, word)),
        is_change: ends_with(said, "by") || said.ends_with(|c| CHANGES.contains(c)),
    }
}

/// Whether the last word is this.
fn ends_with(text: &str, word: &str) -> bool {
    let rest = text.strip_suffix(word);
    rest.is_some_and(|rest| {
        !word.chars().all(char::is_alphabetic)
            || !word.is_ascii()
            || !rest.ends_with(|c: char| c.is_ascii_alphanumeric())
    })
}

/// Hours with their minutes and seconds; what stands side by side otherwise is not clear.
fn added_up(text: &str, all: Vec<Number>) -> Vec<Number> {
    let mut found: Vec<Number> = Vec::new();
    // The unit of the last that was added.
    let mut last_unit = None;
    for mut number in all {
        let Some(before) = found.last_mut() else {
            last_unit = number.seconds;
            found.push(number);
            continue;
        };
        let between = text.get(before.end..number.place.start).unwrap_or_default();
        let (is_glued, joint) = (between.is_empty(), between.trim().to_lowercase());
        let joins = JOINS.contains(&joint.as_str());
        let units = (last_unit, number.seconds);
        match units {
            (Some(large), Some(small)) if joins && small < large && !number.is_unclear => {
                let sum = before.value * before.seconds.unwrap_or(1.0) + number.value * small;
                (before.value, before.seconds) = (sum, Some(1.0));
                (before.end, before.is_sum) = (number.end, true);
                before.place = before.place.start..number.place.end;
                last_unit = number.seconds;
                continue;
            }
            (Some(_), None) if joins => before.is_unclear = true,
            (_, _) if joint.is_empty() => {
                // Two that nothing parts may be one, or two values.
                before.is_unclear |= is_glued;
                number.is_unclear |= is_glued;
            }
            (_, _) if OR.contains(&joint.as_str()) && (is_tight(between) || joint != ",") => {
                (before.is_unclear, number.is_unclear) = (true, true);
            }
            _ => {}
        }
        last_unit = number.seconds;
        found.push(number);
    }
    found
}

fn is_tight(between: &str) -> bool {
    !between.contains(' ')
}
