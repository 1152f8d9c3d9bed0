//! What a clause forbids, and what it only says is not meant.
//! Never: a negation that is overheard because something stands between it and the deed.

use std::ops::Range;

use super::{
    clauses::{self, Clause},
    concepts::Kind,
    words::{Token, Word},
};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Negations {
    /// Where what is forbidden begins.
    pub(super) forbids: Vec<usize>,
    /// Values that are not meant.
    pub(super) excluded: Vec<Range<usize>>,
}

const NOT: &[&str] = &[
    "not",
    "no",
    "never",
    "dont",
    "doesnt",
    "didnt",
    "cannot",
    "cant",
    "couldnt",
    "wont",
    "wouldnt",
    "shouldnt",
    "mustnt",
    "neednt",
    "isnt",
    "arent",
    "wasnt",
    "aint",
    "avoid",
    "refrain",
    "forbid",
    "forbidden",
    "prohibited",
    "nobody",
    "neither",
    "nor",
    "forget",
    "forgot",
    "forgotten",
];
/// These only say how.
const WITHOUT: &[&str] = &["without", "except"];
/// What is not to be left undone is to be done.
const LEFT_UNDONE: &[&str] = &["forget", "hesitate", "fail"];
/// Where what is not meant ends.
const BUT: &[&str] = &["but", "rather", "instead", "only"];
const NOT_CHINESE: &[&str] = &[
    "别", "別", "勿", "甭", "不", "没", "沒", "禁止", "严禁", "嚴禁", "无需", "無需", "无须", "忘",
];
/// Words that have one of these characters and deny nothing.
const NO_NEGATION: &[&str] = &[
    "特别",
    "特別",
    "别的",
    "別的",
    "分别",
    "分別",
    "区别",
    "區別",
    "级别",
    "个别",
    "性别",
    "类别",
    "识别",
    "告别",
    "别人",
    "别墅",
    "差别",
    "不错",
    "不好意思",
    "不过",
    "差不多",
    "对不起",
    "不客气",
    "不管",
    "不仅",
    "不但",
    "不断",
    "不久",
    "不同",
    "不小心",
    "不得不",
    "没事",
    "没关系",
    "没问题",
];
const BUT_CHINESE: &[&str] = &["而是", "是", "而", "要", "但"];

/// What of it is denied; `acts` when something to be done was said before.
pub(super) fn of(clause: &Clause<'_>, acts: bool) -> Negations {
    let mut found = Negations::default();
    for (negation, from) in denials(clause) {
        let end = clause
            .tokens
            .iter()
            .find(|token| token.place.start >= from && ends_it(clause, token, from));
        let end = end.map_or(clause.place.end, |token| token.place.start);
        let behind = |token: &&&Token| token.place.start >= from;
        let is_verb = |token: &&&Token| clauses::is_verb(token);
        let does = clause
            .tokens
            .iter()
            .filter(behind)
            .any(|token| is_verb(&token));
        let did = clause.tokens.iter().filter(|token| !behind(token));
        let did = acts || did.into_iter().any(|token| is_verb(&token));
        let within = clause.tokens.iter().filter(behind);
        let mut within = within.filter(|token| token.place.start < end);
        let is_how = negation == Denial::How;
        let is_value =
            negation == Denial::Deed && !does && did && within.any(|token| names_a_value(token));
        if is_how || is_value {
            found.excluded.push(from..end);
        } else {
            found.forbids.push(clause.place.start.max(from));
        }
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Denial {
    /// `not`
    Deed,
    /// `no`, `never`
    All,
    /// `without`
    How,
}

/// The denials of a clause, with where what they deny begins.
fn denials(clause: &Clause<'_>) -> Vec<(Denial, usize)> {
    let words: Vec<(&str, &Token)> = clause
        .tokens
        .iter()
        .filter_map(|token| Some((clauses::english(token)?, *token)))
        .collect();
    let mut found = Vec::new();
    let mut undone = None;
    for (at, (word, token)) in words.iter().enumerate() {
        let next = words.get(at + 1).map(|(word, _)| *word);
        if WITHOUT.contains(word)
            || matches!(
                (*word, next),
                ("instead", Some("of")) | ("rather", Some("than"))
            )
        {
            found.push((Denial::How, token.place.end));
        } else if matches!(*word, "stop" | "quit") && next.is_some_and(|next| next.ends_with("ing"))
        {
            found.push((Denial::All, token.place.end));
        } else if NOT.contains(word) && undone != Some(at) {
            let mut ahead = words.iter().enumerate().skip(at + 1).take(2);
            undone = ahead
                .find(|(_, (word, _))| LEFT_UNDONE.contains(word))
                .map(|(at, _)| at);
            if undone.is_none() {
                let is_all = matches!(*word, "no" | "never" | "nobody");
                let denial = if is_all { Denial::All } else { Denial::Deed };
                found.push((denial, token.place.end));
            }
        }
    }
    found.extend(chinese(clause).into_iter().map(|at| (Denial::Deed, at)));
    found
}

fn chinese(clause: &Clause<'_>) -> Vec<usize> {
    let mut text = clause.text.clone();
    for word in NO_NEGATION {
        text = text.replace(word, &" ".repeat(word.len()));
    }
    let mut found: Vec<usize> = Vec::new();
    for (at, _) in text.char_indices() {
        let left = text.get(at..).unwrap_or_default();
        let Some(word) = NOT_CHINESE.iter().find(|word| left.starts_with(**word)) else {
            continue;
        };
        // `别忘了` forbids nothing; `好不好` is a question, or polite.
        let place = clause.place.start + at;
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = left.chars().nth(1);
        let is_doubled = *word == "不" && before.is_some() && before == after;
        if *word == "忘" {
            let denied = found
                .last()
                .is_some_and(|last| place.saturating_sub(*last) <= 3);
            if denied {
                found.pop();
                continue;
            }
        }
        if !is_doubled {
            found.push(place + word.len());
        }
    }
    found
}

fn ends_it(clause: &Clause<'_>, token: &Token, from: usize) -> bool {
    if let Some(word) = clauses::english(token) {
        return BUT.contains(&word);
    }
    let at = token.place.start - clause.place.start;
    let left = clause.text.get(at..).unwrap_or_default();
    // Of `不是` and `不要` themselves this is the second half.
    token.place.start > from && BUT_CHINESE.iter().any(|word| left.starts_with(word))
}

fn names_a_value(token: &Token) -> bool {
    let known = token
        .meanings
        .iter()
        .any(|meaning| matches!(meaning.kind(), Kind::Topic | Kind::Value));
    known && token.word != Word::Break
}
