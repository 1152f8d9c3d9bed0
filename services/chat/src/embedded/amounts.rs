//! Which number of a sentence is the value of a parameter.
//! Never: by how much something changes for what it is to be, or one of two by chance.

use super::{
    abilities::Ability,
    concepts::{ACTS, Meaning},
    numbers::Number,
    parameters::{Parameter, Takes},
    words::Sentence,
};

/// Words of a change, beside those of the table.
const MORE: &[&str] = &["more", "less", "extra", "another"];
/// A parameter with one of these takes a change.
const CHANGES: &[&str] = &[
    "by",
    "step",
    "steps",
    "delta",
    "offset",
    "amount",
    "change",
    "increment",
    "relative",
];
const CHANGES_CHINESE: &[&str] = &["增量", "步长", "幅度", "变化"];

/// What was found.
pub(super) enum Amount {
    None,
    /// The place among the numbers.
    At(usize),
    /// Something was said that could be it, and could be something else.
    Unclear,
}

/// The number that stands nearest to the parameter's own words, or else the first that is left.
pub(super) fn pick(
    numbers: &[Number],
    parameter: &Parameter,
    ability: &Ability,
    sentence: &Sentence,
    places: &[usize],
    wanted: usize,
) -> Amount {
    let nearest = |number: &Number| {
        let away = places.iter().map(|at| at.abs_diff(number.place.start));
        away.min().unwrap_or_default()
    };
    // What is perhaps no number is one only where one is wanted, and no other is there.
    let fits = |at: &usize| {
        let number = numbers.get(*at);
        number.is_some_and(|number| parameter.required || !number.is_vague)
    };
    let counts_time = unit_of(parameter).is_some();
    let rank = |at: &usize| {
        let number = numbers.get(*at);
        number.map(|number| {
            let is_time = number.seconds.is_some();
            (
                number.is_vague,
                is_time != counts_time && (is_time || counts_time),
                nearest(number),
            )
        })
    };
    let mut left: Vec<usize> = (0..numbers.len()).filter(fits).collect();
    left.sort_by_key(rank);
    let Some(best) = left.first().copied() else {
        return Amount::None;
    };
    let class = |at: usize| rank(&at).map(|(is_vague, is_other, _)| (is_vague, is_other));
    left.retain(|at| class(*at) == class(best));
    let ends: Vec<usize> = left
        .iter()
        .copied()
        .filter(|at| numbers.get(*at).is_some_and(|number| number.is_end))
        .collect();
    let chosen = match (left.len() <= wanted || !places.is_empty(), ends.as_slice()) {
        (true, _) => best,
        (false, [only]) => *only,
        (false, _) => return Amount::Unclear,
    };
    let Some(number) = numbers.get(chosen) else {
        return Amount::None;
    };
    if number.is_unclear
        || number.is_sum && !counts_time
        || is_other(number, parameter, ability, sentence)
    {
        return Amount::Unclear;
    }
    Amount::At(chosen)
}

/// Whether it says by how much, where what is wanted is how much; or does not say which way.
fn is_other(
    number: &Number,
    parameter: &Parameter,
    ability: &Ability,
    sentence: &Sentence,
) -> bool {
    if number.is_end {
        return false;
    }
    let words = sentence.english();
    let is_changed = sentence.has(Meaning::Up)
        || sentence.has(Meaning::Down)
        || number.is_change
        || words.iter().any(|word| MORE.contains(word));
    if !is_changed {
        return false;
    }
    let of_changes = CHANGES_CHINESE
        .iter()
        .any(|word| parameter.words.text.contains(word))
        || parameter
            .words
            .english()
            .iter()
            .any(|word| CHANGES.contains(word));
    let means = |meanings: &[Meaning]| {
        meanings
            .iter()
            .any(|meaning| ability.meanings.contains(meaning))
    };
    let takes_change = of_changes
        || !ability.named.contains(&Meaning::Set)
            && (means(ACTS) || means(&[Meaning::Up, Meaning::Down]));
    let says_which = ability.named.contains(&Meaning::Down)
        || ability
            .parameters
            .iter()
            .any(|other| matches!(other.takes, Takes::Flag | Takes::OneOf(_)));
    !takes_change || sentence.has(Meaning::Down) && !says_which
}

/// How many seconds the unit has that the parameter counts, if it counts time.
pub(super) fn unit_of(parameter: &Parameter) -> Option<f64> {
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
