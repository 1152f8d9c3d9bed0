//! Extracts the text of documents. The libraries may fail on malicious documents, so this runs in
//! the child process.
//!
//! Invariant: no bytes are skipped silently; the fault has the position of what cannot be parsed.

use switchboard_store::BookFault;

#[cfg(feature = "pdf")]
use super::pdf;
use super::{Format, chunks::Section, markdown};

/// The maximum size of the text of a document; a small file can expand to much text.
pub(super) const MAX_TEXT_BYTES: usize = 64 * 1024 * 1024;
/// The width at which lines of HTML are wrapped, in characters.
const HTML_WIDTH: usize = 4_000;

/// The sections of a document.
pub(super) fn sections(format: Format, bytes: &[u8]) -> Result<Vec<Section>, BookFault> {
    let sections = match format {
        Format::Plain => vec![Section {
            text: normalize(utf8(bytes)?),
            ..Section::default()
        }],
        Format::Markdown => markdown::sections(&normalize(utf8(bytes)?)),
        Format::Html => markdown::sections(&normalize(&html_to_markdown(utf8(bytes)?)?)),
        #[cfg(feature = "pdf")]
        Format::Pdf => pdf::pages(bytes)?,
        #[cfg(not(feature = "pdf"))]
        Format::Pdf => {
            let detail = "This build has no PDF parser; start Switchboard with `./up --release`, or upload the text \
                          as text/plain or text/markdown.";
            return Err(fault("unsupported_format", detail));
        }
    };
    let size: usize = sections.iter().map(|section| section.text.len()).sum();
    if size > MAX_TEXT_BYTES {
        return Err(too_much_text());
    }
    Ok(sections)
}

pub(super) fn fault(kind: &str, detail: impl Into<String>) -> BookFault {
    BookFault {
        kind: kind.to_owned(),
        detail: detail.into(),
    }
}

/// The bytes as UTF-8 text without U+0000.
fn utf8(bytes: &[u8]) -> Result<&str, BookFault> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let position = position(bytes, error.valid_up_to());
        let detail =
            format!("The document is not UTF-8 {position}; save it as UTF-8 and upload it again.");
        fault("invalid_utf8", detail)
    })?;
    match text.find('\0') {
        Some(at) => {
            let detail = format!(
                "The document has the character U+0000 {}, which cannot be stored.",
                position(bytes, at)
            );
            Err(fault("nul_character", detail))
        }
        None => Ok(text),
    }
}

fn position(bytes: &[u8], at: usize) -> String {
    let before = bytes.get(..at).unwrap_or(bytes);
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    format!(
        "at byte {} (line {})",
        at.saturating_add(1),
        line.saturating_add(1)
    )
}

/// Removes control characters, trailing white space, and repeated blank lines.
pub(super) fn normalize(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    let mut blank = 0_usize;
    for line in text.lines() {
        let visible = line.chars().filter(|c| *c == '\t' || !c.is_control());
        let visible: String = visible.collect();
        let visible = visible.trim_end();
        blank = if visible.is_empty() {
            blank.saturating_add(1)
        } else {
            0
        };
        if blank < 2 {
            normalized.push_str(visible);
            normalized.push('\n');
        }
    }
    normalized
}

/// The text of an HTML page, with its headings as in Markdown.
fn html_to_markdown(page: &str) -> Result<String, BookFault> {
    let renderer = html2text::config::plain()
        .no_table_borders()
        .link_footnotes(false)
        .no_link_wrapping();
    let rendered = renderer.string_from_read(page.as_bytes(), HTML_WIDTH);
    let text = rendered
        .map_err(|error| fault("unreadable", format!("The HTML cannot be parsed: {error}.")))?;
    // Lines of box-drawing characters have no content.
    let is_ruler = |line: &&str| {
        !line.is_empty() && line.chars().all(|c| ('\u{2500}'..='\u{257F}').contains(&c))
    };
    let lines: Vec<_> = text.lines().filter(|line| !is_ruler(line)).collect();
    Ok(lines.join("\n"))
}

pub(super) fn too_much_text() -> BookFault {
    let max = MAX_TEXT_BYTES / (1024 * 1024);
    fault(
        "too_much_text",
        format!("The document has more than {max} MiB of text; split it into several books."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_text_is_reported_with_its_position() {
        fn check(bytes: &[u8], kind: &str, part: &str) {
            let fault = sections(Format::Plain, bytes).unwrap_err();
            assert_eq!(fault.kind, kind);
            assert!(fault.detail.contains(part), "{}", fault.detail);
        }
        check(b"ab\ncd\xFFe", "invalid_utf8", "byte 6 (line 2)");
        check(b"\xEF\xBB\xBF\xC3", "invalid_utf8", "byte 1 (line 1)");
        check(b"a\n\n\0", "nul_character", "byte 4 (line 3)");
    }

    #[test]
    fn text_is_normalized() {
        fn check(text: &str, expected: &str) {
            assert_eq!(normalize(text), expected);
        }
        check("a  \r\n\r\n\r\n\r\nb\u{7}\tc", "a\n\nb\tc\n");
        check("", "");
    }

    #[test]
    fn html_keeps_headings_and_drops_scripts() {
        let page = "<title>T</title><script>evil()</script><h1>Guide</h1><p>One <b>two</b>.<hr>\
                    <h2>Set&uuml;p</h2><ul><li>three</ul><table><tr><td>four<td>five</table>";
        let found = sections(Format::Html, page.as_bytes()).unwrap();
        let headings: Vec<_> = found
            .iter()
            .map(|section| section.heading.as_deref())
            .collect();
        assert_eq!(headings, [Some("Guide"), Some("Guide › Setüp")]);
        let text: String = found.into_iter().map(|section| section.text).collect();
        for word in ["One", "two", "three", "four", "five"] {
            assert!(text.contains(word), "{text}");
        }
        assert!(!text.contains("evil") && !text.contains('─'), "{text}");
    }
}
