//! What a sentence wants: an action now, information, or neither.

use crate::{
    vocabulary::{
        AFTER_OBJECT, AUXILIARIES, CHINESE_VERBS, FILLER, NOT_NOW, QUESTION, VERBS, lists,
    },
    words::{Kind, Token},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It begins with a verb that asks for an action.
    Command,
    Question,
    Statement,
    /// It forbids, sets a condition, or names a later time.
    NotNow,
}

impl Intent {
    pub(crate) fn read(sentence: &[Token]) -> Self {
        if sentence.iter().any(|token| token.is(NOT_NOW)) || names_a_time(sentence) {
            return Self::NotNow;
        }
        let Some(first) = sentence.iter().find(|token| !token.is(FILLER)) else {
            return Self::Statement;
        };
        let asks = |token: &Token| {
            let marks = ['吗', '嗎', '几', '幾', '哪', '谁', '多'];
            token.is(QUESTION) || token.kind != Kind::Quote && token.raw.contains(marks)
        };
        let starts_with_verb =
            lists(VERBS, &first.raw) || !first.raw.is_ascii() && lists(CHINESE_VERBS, &first.key);
        let mut words = sentence.iter();
        if sentence.iter().any(asks) || lists(AUXILIARIES, &first.raw) {
            Self::Question
        } else if starts_with_verb || words.any(|token| lists(AFTER_OBJECT, &token.raw)) {
            Self::Command
        } else {
            Self::Statement
        }
    }
}

/// `at 8`, `in ten minutes`, `in an hour`, `8:30`, 八点: a time at which to act.
fn names_a_time(sentence: &[Token]) -> bool {
    let is_span = |token: &Token| lists("second minute hour moment bit", &token.key);
    sentence.iter().enumerate().any(|(at, token)| {
        let next = |count: usize| sentence.iter().skip(at + 1).take(count);
        match token.raw.as_str() {
            "at" | "by" | "around" => next(1).any(|next| next.number().is_some()),
            "in" | "within" => next(3).any(is_span),
            raw if token.kind == Kind::Word => raw.len() > 1 && raw.contains(':'),
            _ => token.number().is_some() && next(1).any(|next| next.raw.starts_with('点')),
        }
    })
}
