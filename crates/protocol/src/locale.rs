//! Language tags, as devices and settings name the language of their users.

use std::str::FromStr;

/// Maximum bytes of a [`Locale`].
pub const MAX_LOCALE_BYTES: usize = 35;

/// A language tag of BCP 47, such as `de` or `zh-Hans-CN`. Its form is valid; whether there is such a
/// language is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locale(Box<str>);

/// A text that is no language tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a language tag like de or zh-Hans-CN, of at most {MAX_LOCALE_BYTES} characters")]
pub struct LocaleError;

impl Locale {
    /// The tag as it was given.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Locale {
    type Err = LocaleError;

    fn from_str(text: &str) -> Result<Self, LocaleError> {
        let mut subtags = text.split('-');
        let language = subtags.next().unwrap_or_default();
        let is_language = (2..=8).contains(&language.len())
            && language.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_valid = subtags.all(|subtag| {
            (1..=8).contains(&subtag.len())
                && subtag.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        if is_language && is_valid && text.len() <= MAX_LOCALE_BYTES {
            Ok(Self(text.into()))
        } else {
            Err(LocaleError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_has_a_form_and_a_length() {
        let check = |text: &str, expected: bool| {
            let parsed = text.parse::<Locale>();
            assert_eq!(parsed.is_ok(), expected, "{text}");
            assert!(parsed.is_ok_and(|locale| locale.as_str() == text) == expected);
        };
        check("de", true);
        check("zh-Hans-CN", true);
        check("de-DE-1996-u-co-phonebk", true);
        check("zh_CN", false);
        check("zh_CN.UTF-8", false);
        check("C", false);
        check("", false);
        check("de-", false);
        check("d3", false);
        check("deutschland", false);
        check("中文", false);
        check(&format!("de{}", "-12345678".repeat(4)), false);
    }
}
