//! Splits Markdown into sections, each with its headings. The text itself, including
//! its markup, is not changed.

use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};

use super::chunks::Section;

/// The maximum length of a heading, in characters.
const MAX_HEADING_CHARS: usize = 120;
/// Separates a heading from one below it.
const SEPARATOR: &str = " › ";

/// The sections of a text, in order. A heading is also part of the text below it.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut open: Vec<(HeadingLevel, String)> = Vec::new();
    let mut start = 0;
    let mut heading: Option<(HeadingLevel, String)> = None;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                push(&mut sections, &open, text.get(start..range.start));
                start = range.start;
                heading = Some((level, String::new()));
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some((level, title)) = heading.take() {
                    open.retain(|(above, _)| *above < level);
                    open.push((level, truncated(&title)));
                }
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some((_, title)) = &mut heading {
                    title.push_str(&words);
                }
            }
            Event::SoftBreak | Event::HardBreak => {
                if let Some((_, title)) = &mut heading {
                    title.push(' ');
                }
            }
            _ => {}
        }
    }
    push(&mut sections, &open, text.get(start..));
    sections
}

fn push(sections: &mut Vec<Section>, open: &[(HeadingLevel, String)], text: Option<&str>) {
    let text = text.unwrap_or_default();
    if text.trim().is_empty() {
        return;
    }
    let titles = open.iter().map(|(_, title)| title.as_str());
    let titles: Vec<_> = titles.filter(|title| !title.is_empty()).collect();
    sections.push(Section {
        heading: (!titles.is_empty()).then(|| titles.join(SEPARATOR)),
        page: None,
        text: text.to_owned(),
    });
}

fn truncated(title: &str) -> String {
    let words: Vec<_> = title.split_whitespace().collect();
    words.join(" ").chars().take(MAX_HEADING_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_their_headings() {
        fn check(text: &str, expected: &[(Option<&str>, &str)]) {
            let found = sections(text);
            let found: Vec<_> = found
                .iter()
                .map(|section| (section.heading.as_deref(), section.text.trim()))
                .collect();
            assert_eq!(found, expected);
        }
        check("", &[]);
        check("no heading", &[(None, "no heading")]);
        check(
            "before\n# A *b* `c`\none\n## D\ntwo\n# E\nthree",
            &[
                (None, "before"),
                (Some("A b c"), "# A *b* `c`\none"),
                (Some("A b c › D"), "## D\ntwo"),
                (Some("E"), "# E\nthree"),
            ],
        );
        check("题目\n====\n内容", &[(Some("题目"), "题目\n====\n内容")]);
        check(
            "```\n# no heading\n```",
            &[(None, "```\n# no heading\n```")],
        );
        check(
            "### C\nx\n# A\ny",
            &[(Some("C"), "### C\nx"), (Some("A"), "# A\ny")],
        );
    }
}
