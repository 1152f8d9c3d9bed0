//! The language and the voice that a program speaks with.

/// The language of text in Chinese and of other text, where the character has none.
const CHINESE: &str = "cmn";
const ENGLISH: &str = "en";

/// Whether a voice, which an organisation chooses, can be an argument: no option and no path.
pub(crate) fn is_name(voice: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '+');
    voice.starts_with(|char: char| char.is_ascii_alphanumeric()) && voice.chars().all(is_plain)
}

/// The language in which to speak a text.
pub(crate) fn language<'a>(text: &str, locale: Option<&'a str>) -> &'a str {
    let is_chinese = |char: char| ('\u{4e00}'..='\u{9fff}').contains(&char);
    let locale = locale.map(|tag| tag.split('-').next().unwrap_or(tag));
    match locale {
        _ if text.contains(is_chinese) && locale != Some("ja") => CHINESE,
        Some("zh") => CHINESE,
        Some(language) if is_name(language) => language,
        _ => ENGLISH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_text_is_spoken_in_chinese() {
        let check = |text, locale, expect| assert_eq!(language(text, locale), expect, "{text}");
        check("Hello.", None, "en");
        check("Hallo.", Some("de-DE"), "de");
        check("现在几点？", Some("en"), "cmn");
        check("hello", Some("zh-CN"), "cmn");
        check("今日は", Some("ja"), "ja");
        check("hello", Some("--help"), "en");
    }

    #[test]
    fn voice_is_neither_an_option_nor_a_path() {
        for (voice, expect) in [
            ("en+f3", true),
            ("joe_medium", true),
            ("-f", false),
            ("a/b", false),
            ("", false),
        ] {
            assert_eq!(is_name(voice), expect, "{voice}");
        }
    }
}
