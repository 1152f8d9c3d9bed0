//! The language of an answer: that of the question, or of the character where the question has none.
//! Never: a third language; there are no words for it.

use super::words::is_chinese;

/// What the responder speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    Chinese,
}

impl Language {
    /// The language that a text is written in; that of the locale when the text has no letters.
    pub(crate) fn of(text: &str, locale: Option<&str>) -> Self {
        if text.chars().any(is_chinese) {
            return Self::Chinese;
        }
        let speaks_chinese =
            locale.is_some_and(|locale| locale.to_ascii_lowercase().starts_with("zh"));
        if speaks_chinese && !text.chars().any(char::is_alphabetic) {
            return Self::Chinese;
        }
        Self::English
    }
}
