//! Splits documents into chunks: at headings and pages, then at paragraphs and sentences. Each
//! chunk overlaps the previous one a little.
//!
//! Invariant: the same document always has the same chunks, so that another worker can continue.

use serde::{Deserialize, Serialize};
use switchboard_store::NewChunk;
use text_splitter::{ChunkConfig, TextSplitter};

/// The size of a chunk in characters.
const CHUNK_SIZE: std::ops::Range<usize> = 700..1_000;
/// The maximum overlap with the previous chunk, in characters.
const CHUNK_OVERLAP: usize = 120;
/// How many bytes are split at a time: the time of the splitter grows faster than its text.
const BLOCK_BYTES: usize = 64 * 1024;

/// The text below one heading, or on one page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) heading: Option<String>,
    pub(super) page: Option<i32>,
    pub(super) text: String,
}

/// A chunk in the output of the child process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    heading: Option<String>,
    page: Option<i32>,
    text: String,
}

impl From<Chunk> for NewChunk {
    fn from(chunk: Chunk) -> Self {
        Self {
            heading: chunk.heading,
            page: chunk.page,
            text: chunk.text,
        }
    }
}

/// The chunks of all sections, in order.
pub(super) fn split(sections: &[Section]) -> Vec<Chunk> {
    let config = ChunkConfig::new(CHUNK_SIZE);
    // An overlap below the size is never rejected.
    let Ok(config) = config.with_overlap(CHUNK_OVERLAP) else {
        return Vec::new();
    };
    let splitter = TextSplitter::new(config);
    let mut chunks = Vec::new();
    for section in sections {
        for block in blocks(&section.text) {
            let texts = splitter.chunks(block).filter(|text| has_words(text));
            chunks.extend(texts.map(|text| Chunk {
                heading: section.heading.clone(),
                page: section.page,
                text: text.to_owned(),
            }));
        }
    }
    chunks
}

/// Whether a search could find the text.
fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// Splits a long text into blocks that end with a paragraph, or at least with a line.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (block, after) = rest.split_at(block_end(rest));
        rest = after;
        Some(block)
    })
}

fn block_end(text: &str) -> usize {
    if text.len() <= BLOCK_BYTES {
        return text.len();
    }
    let max = text.floor_char_boundary(BLOCK_BYTES);
    let head = text.get(..max).unwrap_or(text);
    let after = |end: &str| head.rfind(end).map(|at| at.saturating_add(end.len()));
    after("\n\n")
        .or_else(|| after("\n"))
        .or_else(|| after(" "))
        .unwrap_or(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> Section {
        Section {
            text: text.to_owned(),
            ..Section::default()
        }
    }

    #[test]
    fn chunks_contain_every_word_and_are_limited() {
        fn check(text: &str, min: usize) {
            let chunks = split(&[section(text)]);
            assert!(chunks.len() >= min, "{} chunks", chunks.len());
            assert_eq!(chunks, split(&[section(text)]));
            for chunk in &chunks {
                assert!(
                    chunk.text.chars().count() <= CHUNK_SIZE.end,
                    "{}",
                    chunk.text
                );
            }
            for word in text.split_whitespace() {
                assert!(
                    chunks.iter().any(|chunk| chunk.text.contains(word)),
                    "{word}"
                );
            }
        }
        check("", 0);
        check("one", 1);
        let numbered = |count: usize, between: &str| {
            (0..count)
                .map(|n| format!("word{n}"))
                .collect::<Vec<_>>()
                .join(between)
        };
        check(&numbered(500, " "), 4);
        check(&numbered(500, ". "), 4);
        check(&numbered(500, "\n\n"), 4);
        check(&numbered(12_000, "\n"), 90);
        // Without spaces and sentences.
        let unbroken = split(&[section(&"换".repeat(3_000))]);
        let sizes: Vec<_> = unbroken
            .iter()
            .map(|chunk| chunk.text.chars().count())
            .collect();
        assert!(
            sizes.iter().all(|size| *size <= CHUNK_SIZE.end),
            "{sizes:?}"
        );
        assert!(sizes.iter().sum::<usize>() >= 3_000, "{sizes:?}");
        assert_eq!(split(&[section(" \n --- \n")]), []);
    }

    #[test]
    fn chunks_overlap_and_have_their_heading_and_page() {
        let text: Vec<_> = (0..60)
            .map(|n| format!("This is sentence number {n}."))
            .collect();
        let heading = Some("Guide › Setup".to_owned());
        let chunks = split(&[Section {
            heading: heading.clone(),
            page: Some(7),
            text: text.join(" "),
        }]);
        assert!(chunks.len() > 1);
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk.heading == heading && chunk.page == Some(7))
        );
        let last = chunks[0].text.rsplit('.').nth(1).unwrap().trim();
        assert!(
            chunks[1].text.contains(last),
            "{last:?} is not in {:?}",
            chunks[1].text
        );
    }
}
