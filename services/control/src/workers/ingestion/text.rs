//! Extracts the text of documents. The libraries may fail on malicious documents, so this runs in
//! the child process.
//!
//! Invariant: no bytes are skipped silently; the fault has the position of what cannot be parsed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, PlainTextOutput, output_doc_page};
use switchboard_store::BookFault;

use super::{Format, chunks::Section, markdown};

/// The maximum size of the text of a document; a small file can expand to much text.
const MAX_TEXT_BYTES: usize = 64 * 1024 * 1024;
/// The width at which lines of HTML are wrapped, in characters.
const HTML_WIDTH: usize = 4_000;
/// How far into a file the header of a PDF may be.
const PDF_HEADER_RANGE: usize = 1_024;

/// The sections of a document.
pub(super) fn sections(format: Format, bytes: &[u8]) -> Result<Vec<Section>, BookFault> {
    let sections = match format {
        Format::Plain => vec![Section {
            text: normalize(utf8(bytes)?),
            ..Section::default()
        }],
        Format::Markdown => markdown::sections(&normalize(utf8(bytes)?)),
        Format::Html => markdown::sections(&normalize(&html_to_markdown(utf8(bytes)?)?)),
        Format::Pdf => pdf_pages(bytes)?,
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
fn normalize(text: &str) -> String {
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

fn pdf_pages(bytes: &[u8]) -> Result<Vec<Section>, BookFault> {
    let start = bytes.get(..PDF_HEADER_RANGE).unwrap_or(bytes);
    if !start.windows(5).any(|window| window == b"%PDF-") {
        return Err(fault(
            "not_a_pdf",
            "The document is not a PDF: it does not begin with %PDF-.",
        ));
    }
    let broken =
        |reason: String| fault("unreadable", format!("The PDF cannot be parsed: {reason}."));
    let mut document = Document::load_mem(bytes).map_err(|error| broken(error.to_string()))?;
    if document.is_encrypted() && document.decrypt("").is_err() {
        let detail = "The PDF is encrypted with a password; upload it without one.";
        return Err(fault("encrypted", detail));
    }
    let mut sections = Vec::new();
    let mut size = 0_usize;
    for number in document.get_pages().into_keys() {
        let text = normalize(&pdf_page(&document, number)?);
        size = size.saturating_add(text.len());
        if size > MAX_TEXT_BYTES {
            return Err(too_much_text());
        }
        sections.push(Section {
            heading: None,
            page: i32::try_from(number).ok(),
            text,
        });
    }
    Ok(sections)
}

/// The text of one page. The library with the better layout fails on many unusual files; then a
/// simpler extraction is tried.
fn pdf_page(document: &Document, number: u32) -> Result<String, BookFault> {
    let with_layout = catch_unwind(AssertUnwindSafe(|| {
        let mut text = String::new();
        output_doc_page(document, &mut PlainTextOutput::new(&mut text), number).map(|()| text)
    }));
    if let Ok(Ok(text)) = with_layout {
        return Ok(text);
    }
    let without_layout = catch_unwind(AssertUnwindSafe(|| document.extract_text(&[number])));
    match without_layout {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(unreadable_page(number, &format!(": {error}"))),
        Err(_) => Err(unreadable_page(number, "")),
    }
}

fn unreadable_page(number: u32, reason: &str) -> BookFault {
    fault(
        "unreadable",
        format!("Page {number} of the PDF cannot be parsed{reason}."),
    )
}

fn too_much_text() -> BookFault {
    let max = MAX_TEXT_BYTES / (1024 * 1024);
    fault(
        "too_much_text",
        format!("The document has more than {max} MiB of text; split it into several books."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PDF with one line per page.
    fn pdf(lines: &[&str]) -> Vec<u8> {
        let pages = (0..lines.len()).map(|page| format!("{} 0 R", 4 + 2 * page));
        let pages: Vec<_> = pages.collect();
        let mut objects = vec![
            "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
            format!(
                "<</Type/Pages/Kids[{}]/Count {}>>",
                pages.join(" "),
                lines.len()
            ),
            "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned(),
        ];
        for (page, line) in lines.iter().enumerate() {
            let content = format!("BT /F1 12 Tf 72 720 Td ({line}) Tj ET");
            objects.push(format!(
                "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents {} 0 R>>",
                5 + 2 * page
            ));
            objects.push(format!(
                "<</Length {}>>stream\n{content}\nendstream",
                content.len()
            ));
        }
        let mut file = "%PDF-1.4\n".to_owned();
        let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
        for (number, object) in objects.iter().enumerate() {
            table.push_str(&format!("{:010} 00000 n \n", file.len()));
            file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", number + 1));
        }
        let size = objects.len() + 1;
        let start = file.len();
        file.push_str(&format!(
            "{table}trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n"
        ));
        file.into_bytes()
    }

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
        let fault = sections(Format::Pdf, b"<html>").unwrap_err();
        assert_eq!(fault.kind, "not_a_pdf");
        let fault = sections(Format::Pdf, b"%PDF-1.7\ngarbage").unwrap_err();
        assert_eq!(fault.kind, "unreadable");
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

    #[test]
    fn pdf_has_a_section_per_page() {
        let found = sections(Format::Pdf, &pdf(&["First page", "Second page"])).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|section| (section.page, section.text.trim()))
            .collect();
        assert_eq!(found, [(Some(1), "First page"), (Some(2), "Second page")]);
    }
}
