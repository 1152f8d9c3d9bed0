//! What was said, with what is known of it beforehand: where devices are named, and where an answer begins.
//! Never: a text that was changed; values are given as they were said.

use std::ops::Range;

use super::words::Sentence;

/// What was said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wording {
    pub(crate) text: String,
    /// Where devices are named.
    pub(crate) names: Vec<Range<usize>>,
    /// Where the answer to what was asked back begins.
    pub(crate) answer: Option<usize>,
}

impl Wording {
    pub(super) fn sentence(&self) -> Sentence {
        read(&self.text, 0, &self.names)
    }

    /// The question, and the answer to what was asked back.
    pub(super) fn parts(&self) -> Vec<Sentence> {
        let at = self.answer.unwrap_or(self.text.len());
        let (question, answer) = self.text.split_at_checked(at).unwrap_or((&self.text, ""));
        let mut parts = vec![read(question, 0, &self.names)];
        if !answer.trim().is_empty() {
            parts.push(read(answer, at, &self.names));
        }
        parts
    }

    /// What is left of it from a place on.
    pub(super) fn from(&self, at: usize) -> Self {
        let names = self.names.iter().filter(|name| name.start >= at);
        Self {
            text: self.text.get(at..).unwrap_or_default().to_owned(),
            names: names.map(|name| name.start - at..name.end - at).collect(),
            answer: self.answer.and_then(|answer| answer.checked_sub(at)),
        }
    }
}

fn read(text: &str, at: usize, names: &[Range<usize>]) -> Sentence {
    let mut sentence = Sentence::read(text);
    let names = names
        .iter()
        .filter(|name| name.start >= at && name.end <= at + text.len());
    sentence.names = names.map(|name| name.start - at..name.end - at).collect();
    // What only tells one device from another says nothing of a service.
    for token in &mut sentence.tokens {
        let place = token.place.start;
        let is_name = sentence.names.iter().find(|name| name.contains(&place));
        let digits = |name: &Range<usize>| {
            let name = text.get(name.clone()).unwrap_or_default();
            name.contains(|c: char| c.is_ascii_digit())
        };
        token.empty |= is_name.is_some_and(digits) && token.meanings.is_empty();
    }
    sentence
}
