//! Stretches of a text: what is quoted, and what is left when the words that were understood are taken out.
//! Never: a stretch that begins or ends within a word.

use std::ops::Range;

use super::words::{Sentence, Token, Word};

/// What opens a quotation, and what closes it.
const QUOTES: &[(char, char)] = &[
    ('"', '"'),
    ('“', '”'),
    ('「', '」'),
    ('『', '』'),
    ('《', '》'),
    ('\'', '\''),
    ('‘', '’'),
    ('`', '`'),
];
const PREPOSITIONS: &[&str] = &[
    "in", "at", "for", "to", "from", "about", "of", "into", "saying", "called", "named",
];

const DENIALS: &[&str] = &[
    "not", "dont", "no", "never", "cant", "cannot", "wont", "不要", "别", "不用", "不",
];

/// Where there are quotations, without their marks.
pub(super) fn quoted(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some((at, c)) = text.get(rest..).and_then(|left| {
        left.char_indices()
            .find(|(_, c)| QUOTES.iter().any(|(open, _)| open == c))
    }) {
        let from = rest + at + c.len_utf8();
        let before = text
            .get(..rest + at)
            .and_then(|left| left.chars().next_back());
        // An apostrophe stands within a word.
        let within = matches!(c, '\'' | '‘') && before.is_some_and(char::is_alphanumeric);
        let close = QUOTES
            .iter()
            .find(|(open, _)| *open == c)
            .map_or(c, |(_, close)| *close);
        let left = text.get(from..).unwrap_or_default();
        let end = left.char_indices().find(|(at, c)| {
            let after = left
                .get(at + c.len_utf8()..)
                .and_then(|left| left.chars().next());
            *c == close && !(close == '\'' && after.is_some_and(char::is_alphanumeric))
        });
        rest = match end {
            Some((at, _)) if !within => {
                found.push(from..from + at);
                from + at + close.len_utf8()
            }
            _ => from,
        };
    }
    found
}

/// What is left of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) text: String,
    /// A word stands before it that says what it is to something.
    pub(super) is_attached: bool,
}

/// The stretches between the tokens that are taken, without empty words at their ends.
pub(super) fn left(sentence: &Sentence, taken: impl Fn(usize, &Token) -> bool) -> Vec<Stretch> {
    let mut found = Vec::new();
    let mut run: Vec<usize> = Vec::new();
    for (at, token) in sentence.tokens.iter().enumerate() {
        if is_edge(sentence, at) || taken(at, token) {
            found.extend(stretch(sentence, &run));
            run.clear();
        } else {
            run.push(at);
        }
    }
    found.extend(stretch(sentence, &run));
    found
}

/// A full stop within a name, like that of `notes.txt`, parts nothing.
fn is_edge(sentence: &Sentence, at: usize) -> bool {
    let Some(token) = sentence
        .tokens
        .get(at)
        .filter(|token| token.word == Word::Break)
    else {
        return false;
    };
    let touches = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let before = sentence
        .text
        .get(..token.place.start)
        .and_then(|text| text.chars().next_back());
    let after = sentence
        .text
        .get(token.place.end..)
        .and_then(|text| text.chars().next());
    !(touches(before)
        && touches(after)
        && sentence
            .text
            .get(token.place.clone())
            .is_some_and(|mark| matches!(mark, "." | ":")))
}

fn stretch(sentence: &Sentence, run: &[usize]) -> Option<Stretch> {
    let says = |at: &&usize| sentence.tokens.get(**at).is_some_and(|token| !token.empty);
    // Without its `not` a text would say the opposite; it is left as it was said.
    let denies = |at: &usize| {
        let token = sentence.tokens.get(*at);
        let said = token.and_then(|token| sentence.text.get(token.place.clone()));
        said.is_some_and(|said| {
            let said = said.to_lowercase().replace(['\'', '’'], "");
            DENIALS.contains(&said.as_str())
        })
    };
    let first = *run.iter().find(says)?;
    let first = if run.iter().any(denies) {
        *run.first()?
    } else {
        first
    };
    let last = *run.iter().rev().find(says)?;
    let (from, to) = (sentence.tokens.get(first)?, sentence.tokens.get(last)?);
    let text = sentence.text.get(from.place.start..to.place.end)?.trim();
    let before = first
        .checked_sub(1)
        .and_then(|at| sentence.tokens.get(at))
        .map(|token| &token.word);
    let is_attached = match before {
        Some(Word::English { whole, .. }) => PREPOSITIONS.contains(&whole.as_str()),
        _ => !text.is_ascii(),
    };
    (!text.is_empty()).then(|| Stretch {
        text: text.to_owned(),
        is_attached,
    })
}
