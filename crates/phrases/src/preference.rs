//! Which language a user gets: what locales and the words of a message decide.

use crate::{Language, detection};

/// What locales state about the language of messages to a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preference {
    language: Option<Language>,
    /// The user's language has no table, so a message in it can only be mistaken for another language.
    is_without_table: bool,
}

impl Preference {
    /// Of a user with these BCP 47 tags, most wanted first. The first tag that has a table is the
    /// language. If the first tag of all has none, the words of messages decide nothing.
    #[must_use]
    pub fn of_user<'a>(tags: impl IntoIterator<Item = &'a str>) -> Self {
        let tags = tags.into_iter();
        let mut tags = tags.filter(|tag| !tag.is_empty() && !tag.eq_ignore_ascii_case("und"));
        let Some(first) = tags.next().map(Language::from_tag) else {
            return Self::default();
        };
        Self {
            language: first.or_else(|| tags.find_map(Language::from_tag)),
            is_without_table: first.is_none(),
        }
    }

    /// The same with a language for users whose locales have no table, or who have none.
    #[must_use]
    pub fn or(self, language: Option<Language>) -> Self {
        Self {
            language: self.language.or(language),
            ..self
        }
    }

    /// The language without a message: English where no locale decides.
    #[must_use]
    pub fn language(self) -> Language {
        self.language.unwrap_or_default()
    }

    /// The language of the answer to a message: its own, and where its words do not decide,
    /// [`language`](Self::language).
    #[must_use]
    pub fn language_of(self, text: &str) -> Language {
        let language = self.language();
        if self.is_without_table {
            return language;
        }
        detection::detect(text, language).unwrap_or(language)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Language::{English, French, German, Japanese, SimplifiedChinese};

    #[test]
    fn message_locale_and_default_decide_in_this_order() {
        fn check(own: &[&str], other: Option<Language>, text: &str, expected: Language) {
            let preference = Preference::of_user(own.iter().copied()).or(other);
            assert_eq!(preference.language_of(text), expected, "{own:?}: {text}");
        }
        check(&["ja"], Some(German), "OK", Japanese);
        check(&["ja"], Some(German), "What time is it?", English);
        check(&["tlh", "de", "en"], None, "", German);
        check(&[], Some(German), "OK", German);
        check(&["und", ""], Some(German), "Quelle heure est-il ?", French);
        check(&[], None, "OK", English);
        // A language without a table.
        check(&["tr"], Some(German), "Lambayı aç", German);
        check(&["tr"], None, "What time is it?", English);
        check(&["tr"], Some(German), "What time is it?", German);
        check(&["ko"], None, "時間", English);
        check(
            &["ko", "zh"],
            Some(German),
            "What time is it?",
            SimplifiedChinese,
        );
    }
}
