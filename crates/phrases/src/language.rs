//! The languages that have a table, and how a language tag selects one.

use std::cmp::Reverse;

use crate::{
    phrase::Table,
    tables::{ENGLISH, FRENCH, GERMAN, JAPANESE, SIMPLIFIED_CHINESE, SPANISH, TRADITIONAL_CHINESE},
};

/// Languages of an `Accept-Language` header that are considered.
const MAX_ACCEPTED: usize = 16;

/// A language with a table of phrases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// English, where nothing else is known.
    #[default]
    English,
    /// Chinese in simplified characters.
    SimplifiedChinese,
    /// Chinese in traditional characters.
    TraditionalChinese,
    /// German.
    German,
    /// Spanish.
    Spanish,
    /// French.
    French,
    /// Japanese.
    Japanese,
}

/// How a language separates what a message lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Punctuation {
    /// Between descriptions in a list.
    pub items: &'static str,
    /// Between names in a list.
    pub names: &'static str,
    /// Between values in a list.
    pub values: &'static str,
    /// Between two sentences.
    pub sentences: &'static str,
    /// Between a name and its value.
    pub colon: &'static str,
    /// At the end of a sentence.
    pub period: &'static str,
}

impl Language {
    /// All languages.
    pub const ALL: [Self; 7] = [
        Self::English,
        Self::SimplifiedChinese,
        Self::TraditionalChinese,
        Self::German,
        Self::Spanish,
        Self::French,
        Self::Japanese,
    ];

    /// The BCP 47 tag.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::SimplifiedChinese => "zh-Hans",
            Self::TraditionalChinese => "zh-Hant",
            Self::German => "de",
            Self::Spanish => "es",
            Self::French => "fr",
            Self::Japanese => "ja",
        }
    }

    /// The language of a BCP 47 tag; `None` if it has no table. Only the language decides, and for
    /// Chinese the script, or the region where no script is named.
    #[must_use]
    pub fn from_tag(tag: &str) -> Option<Self> {
        let mut subtags = tag.split('-');
        let language = subtags.next().unwrap_or_default();
        let is = |name: &str| language.eq_ignore_ascii_case(name);
        Some(match language {
            _ if is("en") => Self::English,
            _ if is("zh") || is("cmn") => chinese(subtags),
            _ if is("de") => Self::German,
            _ if is("es") => Self::Spanish,
            _ if is("fr") => Self::French,
            _ if is("ja") => Self::Japanese,
            _ => return None,
        })
    }

    /// How the language separates what it lists.
    #[must_use]
    pub const fn punctuation(self) -> Punctuation {
        match self {
            Self::SimplifiedChinese | Self::TraditionalChinese => Punctuation {
                items: "；",
                names: "、",
                values: "，",
                sentences: "",
                colon: "：",
                period: "。",
            },
            Self::Japanese => Punctuation {
                items: "、",
                names: "、",
                values: "、",
                sentences: "",
                colon: "：",
                period: "。",
            },
            Self::French => Punctuation {
                items: "\u{a0}; ",
                names: ", ",
                values: ", ",
                sentences: " ",
                colon: "\u{a0}: ",
                period: ".",
            },
            Self::English | Self::German | Self::Spanish => Punctuation {
                items: "; ",
                names: ", ",
                values: ", ",
                sentences: " ",
                colon: ": ",
                period: ".",
            },
        }
    }

    pub(crate) const fn table(self) -> &'static Table {
        match self {
            Self::English => &ENGLISH,
            Self::SimplifiedChinese => &SIMPLIFIED_CHINESE,
            Self::TraditionalChinese => &TRADITIONAL_CHINESE,
            Self::German => &GERMAN,
            Self::Spanish => &SPANISH,
            Self::French => &FRENCH,
            Self::Japanese => &JAPANESE,
        }
    }
}

/// The script of Chinese, from what follows the language in its tag.
fn chinese<'a>(subtags: impl Iterator<Item = &'a str>) -> Language {
    for subtag in subtags {
        let is = |name: &&str| subtag.eq_ignore_ascii_case(name);
        if ["Hant", "TW", "HK", "MO"].iter().any(is) {
            return Language::TraditionalChinese;
        }
        // What follows a single letter or digit is no script and no region.
        if ["Hans", "CN", "SG"].iter().any(is) || subtag.len() == 1 {
            break;
        }
    }
    Language::SimplifiedChinese
}

/// The tags of an `Accept-Language` header, most wanted first. Those with `q=0`, `*`, and all after the
/// first 16 are left out.
#[must_use]
pub fn accepted(header: &str) -> Vec<&str> {
    let entries = header.split(',').take(MAX_ACCEPTED).filter_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let tag = parts.next().filter(|tag| !tag.is_empty() && *tag != "*")?;
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        let quality: f32 = quality.map_or(Some(1.0), |number| number.trim().parse().ok())?;
        (quality > 0.0).then_some((tag, (quality.min(1.0) * 1_000.0) as u16))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|(_, quality)| Reverse(*quality));
    entries.into_iter().map(|(tag, _)| tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_selects_a_language() {
        use Language::{English, French, German, SimplifiedChinese, TraditionalChinese};
        let check = |tag, expected| assert_eq!(Language::from_tag(tag), expected, "{tag}");
        check("en-GB", Some(English));
        check("DE", Some(German));
        check("fr-Latn-CA", Some(French));
        check("zh", Some(SimplifiedChinese));
        check("zh-CN", Some(SimplifiedChinese));
        check("zh-TW", Some(TraditionalChinese));
        check("zh-hant", Some(TraditionalChinese));
        check("zh-Hans-HK", Some(SimplifiedChinese));
        check("zh-Hant-CN", Some(TraditionalChinese));
        check("zh-u-co-TW", Some(SimplifiedChinese));
        check("cmn-Hant", Some(TraditionalChinese));
        check("tlh", None);
        check("eng", None);
        check("", None);
        for language in Language::ALL {
            check(language.tag(), Some(language));
        }
    }

    #[test]
    fn header_is_ordered_by_quality() {
        fn check(header: &str, expected: &[&str]) {
            assert_eq!(accepted(header), expected, "{header}");
        }
        check("fr;q=0.5, de-CH, en;q=0.9, it;q=0", &["de-CH", "en", "fr"]);
        check("*, de ; q=0.1", &["de"]);
        check("de;q=high, en;q=7", &["en"]);
        check("", &[]);
        check(&"de,".repeat(1_000), &["de"; MAX_ACCEPTED]);
    }
}
