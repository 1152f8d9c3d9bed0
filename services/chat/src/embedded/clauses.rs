//! The clauses of a sentence: what stands between its marks, and whether it asks.
//! Never: the words of a quotation, which are a value.

use std::ops::Range;

use super::{
    concepts::{ACTS, Kind},
    questions, stretches,
    words::{Sentence, Token, Word},
};

/// What is said before what is meant.
const BEFORE: &[&str] = &[
    "please", "so", "and", "but", "ok", "okay", "well", "hey", "hi", "hello", "now", "then", "um",
    "uh", "oh", "just", "also", "sorry", "yes", "no", "instead", "rather", "only",
];
/// Verbs that mean nothing without what follows.
const VERBS: &[&str] = &["turn", "switch", "put", "give", "tell", "let", "make"];
const BEFORE_CHINESE: &[&str] = &[
    "请", "請", "你", "您", "那么", "那", "现在", "現在", "就", "嘿", "喂", "哦", "还有", "再",
];
/// What opens an order, beside a deed.
const ORDERS_CHINESE: &[&str] = &[
    "把", "将", "將", "给", "要", "改", "帮", "幫", "而", "向", "往",
];

/// How a clause asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    No,
    /// It has the form of a question, and is an order.
    Politely,
    YesOrNo,
    Something,
    /// It says what is so.
    States,
}

/// A part of a sentence.
#[derive(Debug)]
pub(super) struct Clause<'a> {
    /// Where it stands, with the mark that ends it.
    pub(super) place: Range<usize>,
    /// As long as what was said, with spaces for what is quoted.
    pub(super) text: String,
    pub(super) tokens: Vec<&'a Token>,
    pub(super) asks: Asks,
}

/// All of them, in their order.
pub(super) fn all(sentence: &Sentence) -> Vec<Clause<'_>> {
    let quoted = stretches::quoted(&sentence.text);
    let is_quoted = |token: &Token| {
        quoted
            .iter()
            .any(|quote| quote.contains(&token.place.start))
    };
    let (mut found, mut tokens, mut from) = (Vec::new(), Vec::new(), 0);
    let ends = sentence.tokens.iter().map(Some).chain([None]);
    for token in ends {
        match token {
            Some(token) if is_quoted(token) => {}
            Some(token) if token.word != Word::Break => tokens.push(token),
            end => {
                let to = end.map_or(sentence.text.len(), |token| token.place.end);
                let mut text = sentence.text.get(from..to).unwrap_or_default().to_owned();
                for quote in quoted
                    .iter()
                    .filter(|quote| quote.start >= from && quote.end <= to)
                {
                    let spaces = " ".repeat(quote.len());
                    text.replace_range(quote.start - from..quote.end - from, &spaces);
                }
                let mut clause = Clause {
                    place: from..to,
                    text,
                    tokens: std::mem::take(&mut tokens),
                    asks: Asks::No,
                };
                clause.asks = questions::asks(&clause);
                if !clause.tokens.is_empty() || clause.text.contains(['?', '？']) {
                    found.push(clause);
                }
                from = to;
            }
        }
    }
    found
}

impl<'a> Clause<'a> {
    /// Its English words, as they were said, in small letters.
    pub(super) fn words(&self) -> Vec<&'a str> {
        self.tokens
            .iter()
            .filter_map(|token| english(token))
            .collect()
    }

    /// Its English words from the one on that is meant.
    pub(super) fn meant(&self) -> Vec<&'a str> {
        let words = self.words().into_iter();
        words.skip_while(|word| BEFORE.contains(word)).collect()
    }

    /// Its text from the first character on that is meant.
    pub(super) fn meant_chinese(&self) -> &str {
        let mut text = self.text.trim();
        while let Some(rest) = BEFORE_CHINESE
            .iter()
            .find_map(|word| text.strip_prefix(word))
        {
            text = rest.trim_start();
        }
        text
    }

    pub(super) fn is_question(&self) -> bool {
        matches!(self.asks, Asks::YesOrNo | Asks::Something)
    }

    /// Whether it begins as orders do.
    pub(super) fn is_order(&self) -> bool {
        if self.is_question() || self.asks == Asks::States {
            return false;
        }
        if self.asks == Asks::Politely {
            return true;
        }
        let meant = self.meant_chinese();
        if ORDERS_CHINESE.iter().any(|word| meant.starts_with(word)) {
            return true;
        }
        let begins = self.place.start + (self.text.trim_end().len() - meant.len());
        let first = self.tokens.iter().find(|token| match english(token) {
            Some(word) => !BEFORE.contains(&word),
            None => token.place.start >= begins,
        });
        first.is_some_and(|token| is_verb(token))
    }
}

/// Whether it names something that is done.
pub(super) fn is_verb(token: &Token) -> bool {
    let does = token
        .meanings
        .iter()
        .any(|meaning| meaning.kind() == Kind::Deed || ACTS.contains(meaning));
    does || english(token).is_some_and(|word| VERBS.contains(&word))
}

pub(super) fn english(token: &Token) -> Option<&str> {
    match &token.word {
        Word::English { whole, .. } => Some(whole),
        _ => None,
    }
}
