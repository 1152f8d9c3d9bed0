//! The text of documents, by libraries that strangers' bytes may break: this runs in the child process.
//! Never: bytes passed over in silence; what cannot be read is said, with its place.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, PlainTextOutput, output_doc_page};
use switchboard_store::BookFault;

use super::{Format, chunks::Section, markdown};

/// How much text a document may have; a small file can stand for a great deal of it.
const MOST_TEXT_BYTES: usize = 64 * 1024 * 1024;
/// How wide a line of HTML may be before it is wrapped, in characters.
const HTML_WIDTH: usize = 4_000;
/// How far into a file the head of a PDF may be.
const PDF_HEAD_WITHIN: usize = 1_024;

/// A document in sections.
pub(super) fn sections(format: Format, bytes: &[u8]) -> Result<Vec<Section>, BookFault> {
    let sections = match format {
        Format::Plain => vec![Section {
            text: tidy(text(bytes)?),
            ..Section::default()
        }],
        Format::Markdown => markdown::sections(&tidy(text(bytes)?)),
        Format::Html => markdown::sections(&tidy(&html(text(bytes)?)?)),
        Format::Pdf => pages(bytes)?,
    };
    let size: usize = sections.iter().map(|section| section.text.len()).sum();
    if size > MOST_TEXT_BYTES {
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

/// The bytes as the text that they must be.
fn text(bytes: &[u8]) -> Result<&str, BookFault> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let place = place(bytes, error.valid_up_to());
        let detail = format!("It is not UTF-8 {place}; save it as UTF-8 and send it again.");
        fault("invalid_utf8", detail)
    })?;
    match text.find('\0') {
        Some(at) => {
            let detail = format!(
                "The character U+0000 stands {}; it cannot be stored.",
                place(bytes, at)
            );
            Err(fault("nul_character", detail))
        }
        None => Ok(text),
    }
}

fn place(bytes: &[u8], at: usize) -> String {
    let before = bytes.get(..at).unwrap_or(bytes);
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    format!(
        "at byte {} (line {})",
        at.saturating_add(1),
        line.saturating_add(1)
    )
}

/// Without control characters, trailing white space, and more than one blank line in a row.
fn tidy(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    let mut blank = 0_usize;
    for line in text.lines() {
        let kept = line.chars().filter(|c| *c == '\t' || !c.is_control());
        let kept: String = kept.collect();
        let kept = kept.trim_end();
        blank = if kept.is_empty() {
            blank.saturating_add(1)
        } else {
            0
        };
        if blank < 2 {
            tidied.push_str(kept);
            tidied.push('\n');
        }
    }
    tidied
}

/// The text of a page of the web, with its headings as Markdown writes them.
fn html(page: &str) -> Result<String, BookFault> {
    let renderer = html2text::config::plain()
        .no_table_borders()
        .link_footnotes(false)
        .no_link_wrapping();
    let read = renderer.string_from_read(page.as_bytes(), HTML_WIDTH);
    let text =
        read.map_err(|error| fault("unreadable", format!("The HTML cannot be read: {error}.")))?;
    // What the page draws with lines says nothing.
    let is_drawn = |line: &&str| {
        !line.is_empty() && line.chars().all(|c| ('\u{2500}'..='\u{257F}').contains(&c))
    };
    let lines: Vec<_> = text.lines().filter(|line| !is_drawn(line)).collect();
    Ok(lines.join("\n"))
}

fn pages(bytes: &[u8]) -> Result<Vec<Section>, BookFault> {
    let head = bytes.get(..PDF_HEAD_WITHIN).unwrap_or(bytes);
    if !head.windows(5).any(|window| window == b"%PDF-") {
        return Err(fault(
            "not_a_pdf",
            "It is no PDF: it does not begin with %PDF-.",
        ));
    }
    let broken = |reason: String| fault("unreadable", format!("The PDF cannot be read: {reason}."));
    let mut document = Document::load_mem(bytes).map_err(|error| broken(error.to_string()))?;
    if document.is_encrypted() && document.decrypt("").is_err() {
        let detail = "The PDF is encrypted with a password; send it without one.";
        return Err(fault("encrypted", detail));
    }
    let mut sections = Vec::new();
    let mut size = 0_usize;
    for number in document.get_pages().into_keys() {
        let text = tidy(&page(&document, number)?);
        size = size.saturating_add(text.len());
        if size > MOST_TEXT_BYTES {
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

/// The text of one page. The library that places words best gives up on many files that are only odd; another one,
/// which knows less, then has a try.
fn page(document: &Document, number: u32) -> Result<String, BookFault> {
    let careful = catch_unwind(AssertUnwindSafe(|| {
        let mut text = String::new();
        output_doc_page(document, &mut PlainTextOutput::new(&mut text), number).map(|()| text)
    }));
    if let Ok(Ok(text)) = careful {
        return Ok(text);
    }
    let simple = catch_unwind(AssertUnwindSafe(|| document.extract_text(&[number])));
    match simple {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(unreadable_page(number, &format!(": {error}"))),
        Err(_) => Err(unreadable_page(number, "")),
    }
}

fn unreadable_page(number: u32, reason: &str) -> BookFault {
    fault(
        "unreadable",
        format!("Page {number} of the PDF cannot be read{reason}."),
    )
}

fn too_much_text() -> BookFault {
    let most = MOST_TEXT_BYTES / (1024 * 1024);
    fault(
        "too_much_text",
        format!("It has more than {most} MiB of text; send it as several books."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PDF with one line on each page.
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
    fn what_is_no_text_is_said_with_its_place() {
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
    fn text_is_tidied() {
        fn check(text: &str, expected: &str) {
            assert_eq!(tidy(text), expected);
        }
        check("a  \r\n\r\n\r\n\r\nb\u{7}\tc", "a\n\nb\tc\n");
        check("", "");
    }

    #[test]
    fn html_is_read_with_its_headings_and_without_its_scripts() {
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
    fn a_pdf_is_read_page_by_page() {
        let found = sections(Format::Pdf, &pdf(&["First page", "Second page"])).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|section| (section.page, section.text.trim()))
            .collect();
        assert_eq!(found, [(Some(1), "First page"), (Some(2), "Second page")]);
    }
}
