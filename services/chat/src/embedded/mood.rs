//! What a sentence does: it asks, orders, supposes, or forbids.
//! Never: a decision about a service.

use std::ops::Range;

use super::{
    clauses::{self, Asks, Clause},
    declining, negations, questions,
    words::{Sentence, Token},
};

/// What a sentence does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mood {
    pub(super) asks: bool,
    pub(super) yes_or_no: bool,
    pub(super) orders: bool,
    /// The clauses that ask, or say what is so.
    pub(super) asking: Vec<Range<usize>>,
    /// Where a condition is.
    pub(super) supposes: Option<usize>,
    /// Where something is forbidden, or taken back.
    pub(super) forbids: Vec<usize>,
    /// Something that was said before is taken back.
    pub(super) retracts: bool,
    /// What is said not to be a value.
    excluded: Vec<Range<usize>>,
    /// Where an order begins, behind all that is forbidden.
    pub(super) then: Option<usize>,
}

/// What makes an order one for later, if ever.
const CONDITIONS: &[&str] = &["if", "unless", "when", "whenever", "until"];
const CONDITIONS_CHINESE: &[&str] = &[
    "如果",
    "假如",
    "要是",
    "万一",
    "一旦",
    "除非",
    "的时候",
    "的時候",
];
/// `If you please` is none.
const NO_CONDITION: &[&str] = &["you", "possible"];

impl Mood {
    pub(super) fn of(sentence: &Sentence) -> Self {
        let clauses = clauses::all(sentence);
        let mut mood = Self::default();
        let first_yes_or_no = clauses.iter().find(|clause| clause.is_question());
        mood.yes_or_no = first_yes_or_no.is_some_and(|clause| clause.asks == Asks::YesOrNo);
        let (mut acts, mut before) = (false, None);
        for clause in &clauses {
            if let Some(at) = condition(clause) {
                mood.supposes.get_or_insert(at);
            }
            if clause.is_question() {
                mood.asks = true;
                mood.asking.push(clause.place.clone());
                if questions::confirms(clause) {
                    mood.asking.extend(before);
                }
                before = Some(clause.place.clone());
                continue;
            }
            before = Some(clause.place.clone());
            mood.orders |= clause.asks == Asks::Politely && clause.text.is_ascii();
            let found = negations::of(clause, acts);
            if clause.asks == Asks::States && found.forbids.is_empty() {
                mood.asking.push(clause.place.clone());
            }
            let retracts = declining::takes_back(clause);
            mood.retracts |= retracts && acts;
            if retracts || !found.forbids.is_empty() {
                if found.forbids.is_empty() {
                    mood.forbids.push(clause.place.start);
                }
                mood.forbids.extend(found.forbids);
                mood.then = None;
            } else if !mood.forbids.is_empty() && mood.then.is_none() && clause.is_order() {
                mood.then = Some(clause.place.start);
            }
            mood.excluded.extend(found.excluded);
            acts |= clause.tokens.iter().any(|token| clauses::is_verb(token));
        }
        mood
    }

    /// Whether it is said not to be meant.
    pub(super) fn excludes(&self, token: &Token) -> bool {
        let mut excluded = self.excluded.iter();
        excluded.any(|place| place.contains(&token.place.start))
    }
}

fn condition(clause: &Clause<'_>) -> Option<usize> {
    let next = |at: usize| {
        clause
            .tokens
            .get(at + 1)
            .and_then(|token| clauses::english(token))
    };
    let english = clause.tokens.iter().enumerate().find(|(at, token)| {
        clauses::english(token).is_some_and(|word| CONDITIONS.contains(&word))
            && !next(*at).is_some_and(|next| NO_CONDITION.contains(&next))
    });
    let chinese = CONDITIONS_CHINESE
        .iter()
        .find_map(|word| clause.text.find(word));
    english
        .map(|(_, token)| token.place.start)
        .or(chinese.map(|at| clause.place.start + at))
}
