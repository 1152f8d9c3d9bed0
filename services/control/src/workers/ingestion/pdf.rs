//! Extracts the text of PDF documents, page by page.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, PlainTextOutput, output_doc_page};
use switchboard_store::BookFault;

use super::{
    chunks::Section,
    text::{MAX_TEXT_BYTES, fault, normalize, too_much_text},
};

/// How far into a file the header of a PDF may be.
const HEADER_RANGE: usize = 1_024;

/// The text of each page of a PDF.
pub(super) fn pages(bytes: &[u8]) -> Result<Vec<Section>, BookFault> {
    let start = bytes.get(..HEADER_RANGE).unwrap_or(bytes);
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
        let text = normalize(&page_text(&document, number)?);
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
fn page_text(document: &Document, number: u32) -> Result<String, BookFault> {
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
    fn broken_pdf_is_reported() {
        assert_eq!(pages(b"<html>").unwrap_err().kind, "not_a_pdf");
        assert_eq!(pages(b"%PDF-1.7\ngarbage").unwrap_err().kind, "unreadable");
    }

    #[test]
    fn pdf_has_a_section_per_page() {
        let found = pages(&pdf(&["First page", "Second page"])).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|section| (section.page, section.text.trim()))
            .collect();
        assert_eq!(found, [(Some(1), "First page"), (Some(2), "Second page")]);
    }
}
