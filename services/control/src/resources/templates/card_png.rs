//! Extracts a character card from the chunks of a PNG, and inserts one.
//!
//! Nothing is decompressed. A file with a wrong checksum or with bytes outside its
//! chunks is rejected.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Bytes, BytesMut};
use switchboard_runtime::problem::{Problem, ProblemKind};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// The keywords of cards of version 2 and 3.
const CARD: &[u8] = b"chara";
const CARD_V3: &[u8] = b"ccv3";
/// The types of chunks that begin with a keyword.
const TEXT_CHUNKS: [[u8; 4]; 3] = [*b"tEXt", *b"zTXt", *b"iTXt"];
const CUT: &str = "It is truncated, or a checksum is wrong.";
const ORDER: &str = "Its chunks are not in the order of a PNG, or are too many.";
/// The maximum number of chunks in a file. Protects the CPU.
const MAX_CHUNKS: usize = 100_000;

/// One chunk of a file.
struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
    /// Including its length and checksum.
    encoded: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// The text of a text chunk with this keyword.
    fn text_for(&self, keyword: &[u8]) -> Option<&'a [u8]> {
        let text = TEXT_CHUNKS.contains(&self.kind).then_some(self.data)?;
        text.strip_prefix(keyword)?.strip_prefix(b"\0")
    }

    fn is_card(&self) -> bool {
        [CARD, CARD_V3]
            .iter()
            .any(|keyword| self.text_for(keyword).is_some())
    }
}

/// Whether a file begins like a PNG.
pub(super) fn is_png(file: &[u8]) -> bool {
    file.starts_with(SIGNATURE)
}

/// The card in a PNG, as JSON of at most `max_bytes`, and the PNG without it. The PNG stays in the memory
/// of the body, which is charged: nothing of it is copied elsewhere.
///
/// # Errors
/// When the file is not an intact PNG, or has no card of version 2, or more than one.
pub(super) fn extract_card(file: Bytes, max_bytes: usize) -> Result<(Vec<u8>, Bytes), Problem> {
    let card = find_card(&file, max_bytes)?;
    let mut file = BytesMut::from(file);
    let (mut kept, mut at) = (SIGNATURE.len(), SIGNATURE.len());
    while let Some(chunk) = first_chunk(file.get(at..).unwrap_or_default()) {
        let (length, is_card) = (chunk.encoded.len(), chunk.is_card());
        if !is_card {
            file.copy_within(at..at + length, kept);
            kept += length;
        }
        at += length;
    }
    file.truncate(kept);
    Ok((card, file.freeze()))
}

fn find_card(file: &[u8], max_bytes: usize) -> Result<Vec<u8>, Problem> {
    let mut cards = Vec::new();
    let mut has_v3 = false;
    visit_chunks(file, |chunk| {
        has_v3 |= chunk.text_for(CARD_V3).is_some();
        if let Some(text) = chunk.text_for(CARD).filter(|_| cards.len() < 2) {
            cards.push((chunk.kind, text));
        }
    })?;
    let (kind, text) = match *cards {
        [card] => card,
        [] if has_v3 => {
            return Err(broken(
                "Its card is a V3 card (`ccv3`) only; export it as Character Card V2.",
            ));
        }
        [] => {
            return Err(broken(
                "It is a PNG without a character card: no `tEXt` chunk is called `chara`.",
            ));
        }
        [..] => return Err(broken("It has two `chara` chunks.")),
    };
    if kind != *b"tEXt" {
        return Err(broken(
            "Its card is compressed; it must be in a `tEXt` chunk.",
        ));
    }
    // Base64 encodes three bytes as four.
    if text.len() / 4 > max_bytes / 3 {
        return Err(broken("Its card has more than 1 MiB."));
    }
    let card = BASE64_STANDARD.decode(text.trim_ascii());
    card.map_err(|error| broken(&format!("Its `chara` chunk is not Base64: {error}.")))
}

/// Puts a card into a PNG that arrives part by part, in place of any other card in it. Holds a few
/// bytes of the PNG at a time.
///
/// ```text
/// Signature ──► Header ──► Body ──► Sum ──┬──► End
///                 ▲                       │ IEND
///                 └───────────────────────┘
/// ```
pub(super) struct CardInserter {
    /// The chunk to insert; taken when it was.
    card: Option<Vec<u8>>,
    stage: Stage,
    /// The bytes of the current stage so far, if it needs all of them.
    held: Vec<u8>,
    chunks: usize,
}

enum Stage {
    Signature,
    /// The length and the type of a chunk, and the keyword of a text chunk.
    Header,
    Body {
        left: usize,
        sum: crc32fast::Hasher,
        chunk: ChunkKind,
    },
    Sum {
        expected: u32,
        chunk: ChunkKind,
    },
    End,
}

/// What becomes of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChunkKind {
    /// Any other card. It is left out.
    Card,
    Last,
    Other,
}

/// Bytes of the length and the type of a chunk, and of its checksum.
const HEADER_BYTES: usize = 8;
const SUM_BYTES: usize = 4;
/// Bytes at the begin of a text chunk that show whether it is a card.
const KEYWORD_BYTES: usize = CARD.len() + 1;

impl CardInserter {
    pub(super) fn new(card: &[u8]) -> Self {
        let mut data = [CARD, b"\0"].concat();
        data.extend(BASE64_STANDARD.encode(card).bytes());
        Self {
            card: Some(encode_chunk(*b"tEXt", &data)),
            stage: Stage::Signature,
            held: Vec::new(),
            chunks: 0,
        }
    }

    /// Appends what the next bytes of the PNG become.
    ///
    /// # Errors
    /// When they are not of an intact PNG.
    pub(super) fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
        while !bytes.is_empty() {
            match &mut self.stage {
                Stage::Signature => {
                    if hold(&mut self.held, &mut bytes, SIGNATURE.len()) {
                        if self.held != SIGNATURE {
                            return Err(broken("It does not begin like a PNG."));
                        }
                        self.stage = Stage::Header;
                        out.append(&mut self.held);
                    }
                }
                Stage::Header => self.read_header(&mut bytes, out)?,
                Stage::Body { left, sum, chunk } => {
                    let (part, rest) = bytes.split_at((*left).min(bytes.len()));
                    sum.update(part);
                    if *chunk != ChunkKind::Card {
                        out.extend_from_slice(part);
                    }
                    (bytes, *left) = (rest, *left - part.len());
                }
                Stage::Sum { expected, chunk } => {
                    if hold(&mut self.held, &mut bytes, SUM_BYTES) {
                        if self.held != expected.to_be_bytes() {
                            return Err(broken(CUT));
                        }
                        let is_last = *chunk == ChunkKind::Last;
                        if *chunk != ChunkKind::Card {
                            out.append(&mut self.held);
                        }
                        self.held.clear();
                        self.stage = if is_last { Stage::End } else { Stage::Header };
                    }
                }
                Stage::End => return Err(broken("Data follows its end.")),
            }
            self.end_body();
        }
        Ok(())
    }

    /// A body whose bytes have all arrived is followed by its checksum.
    fn end_body(&mut self) {
        if let Stage::Body {
            left: 0,
            sum,
            chunk,
        } = &self.stage
        {
            let (expected, chunk) = (sum.clone().finalize(), *chunk);
            self.stage = Stage::Sum { expected, chunk };
        }
    }

    fn read_header(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
        if !hold(&mut self.held, bytes, HEADER_BYTES) {
            return Ok(());
        }
        let (length, kind) = self.held.split_at(4);
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let is_text = TEXT_CHUNKS.iter().any(|text| kind.starts_with(text));
        let keyword = if is_text {
            length.min(KEYWORD_BYTES)
        } else {
            0
        };
        if !hold(&mut self.held, bytes, HEADER_BYTES + keyword) {
            return Ok(());
        }
        let (kind, data) = (&self.held[4..HEADER_BYTES], &self.held[HEADER_BYTES..]);
        let is_card = |keyword: &[u8]| {
            let keyword = [keyword, b"\0"].concat();
            data.starts_with(&keyword)
        };
        let chunk = match kind {
            b"IEND" => ChunkKind::Last,
            _ if is_text && (is_card(CARD) || is_card(CARD_V3)) => ChunkKind::Card,
            _ => ChunkKind::Other,
        };
        if (self.chunks == 0) != (kind == b"IHDR") || self.chunks > MAX_CHUNKS {
            return Err(broken(ORDER));
        }
        self.chunks += 1;
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.held[4..]);
        let left = length - keyword;
        self.stage = Stage::Body { left, sum, chunk };
        if chunk == ChunkKind::Last {
            out.extend(self.card.take().into_iter().flatten());
        }
        if chunk != ChunkKind::Card {
            out.append(&mut self.held);
        }
        self.held.clear();
        Ok(())
    }

    /// Checks that the PNG is complete.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn finish(self) -> Result<(), Problem> {
        match self.stage {
            Stage::End => Ok(()),
            _ => Err(broken(CUT)),
        }
    }
}

/// Moves bytes until there are `wanted` of them. Returns whether there are.
fn hold(held: &mut Vec<u8>, bytes: &mut &[u8], wanted: usize) -> bool {
    let missing = wanted.saturating_sub(held.len()).min(bytes.len());
    let (part, rest) = bytes.split_at(missing);
    held.extend_from_slice(part);
    *bytes = rest;
    held.len() >= wanted
}

fn encode_chunk(kind: [u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [kind.as_slice(), data].concat();
    // An inserted card has at most a few MiB.
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut encoded = length.to_be_bytes().to_vec();
    encoded.extend(&body);
    encoded.extend(crc32fast::hash(&body).to_be_bytes());
    encoded
}

/// Visits the chunks of a file, from IHDR to IEND.
fn visit_chunks<'a>(file: &'a [u8], mut visit: impl FnMut(&Chunk<'a>)) -> Result<(), Problem> {
    let mut rest = file
        .strip_prefix(SIGNATURE)
        .ok_or_else(|| broken("It does not begin like a PNG."))?;
    for number in 0..=MAX_CHUNKS {
        let chunk = first_chunk(rest).ok_or_else(|| broken(CUT))?;
        rest = rest.get(chunk.encoded.len()..).unwrap_or_default();
        if (number == 0) != (chunk.kind == *b"IHDR") {
            return Err(broken(ORDER));
        }
        visit(&chunk);
        match (chunk.kind == *b"IEND", rest.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) => return Err(broken("Data follows its end.")),
            (false, _) => {}
        }
    }
    Err(broken(ORDER))
}

/// The first chunk, if it is complete and its checksum is right.
fn first_chunk(rest: &[u8]) -> Option<Chunk<'_>> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let body = after.get(..length.checked_add(4)?)?;
    let (sum, _) = after.get(body.len()..)?.split_first_chunk::<4>()?;
    let (kind, data) = body.split_first_chunk::<4>()?;
    let is_intact = crc32fast::hash(body) == u32::from_be_bytes(*sum);
    is_intact.then_some(Chunk {
        kind: *kind,
        data,
        encoded: rest.get(..body.len().checked_add(8)?)?,
    })
}

fn broken(detail: &str) -> Problem {
    Problem::new(
        ProblemKind::BrokenCard,
        format!("The PNG cannot be read as a character card. {detail}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        [SIGNATURE, &chunks.concat()].concat()
    }

    fn extract(file: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Problem> {
        let extracted = extract_card(Bytes::copy_from_slice(file), 99);
        extracted.map(|(card, rest)| (card, rest.to_vec()))
    }

    fn text(keyword: &str, value: &str) -> Vec<u8> {
        encode_chunk(*b"tEXt", format!("{keyword}\0{value}").as_bytes())
    }

    /// The PNG with this card, however it is cut into parts.
    fn insert_card(file: &[u8], card: &[u8]) -> Result<Vec<u8>, String> {
        let insert = |length: usize| {
            let (mut inserter, mut out) = (CardInserter::new(card), Vec::new());
            let fed = file
                .chunks(length)
                .try_for_each(|part| inserter.feed(part, &mut out));
            let ended = fed.and_then(|()| inserter.finish());
            ended.map(|()| out).map_err(|problem| problem.detail)
        };
        let whole = insert(file.len().max(1));
        for length in [1, 2, 3, 7, 13, 64] {
            assert_eq!(insert(length), whole);
        }
        whole
    }

    fn rejection(file: &[u8]) -> String {
        extract(file).map(drop).unwrap_err().detail
    }

    #[test]
    fn inserted_card_is_extracted_unchanged() {
        let (head, end) = (
            encode_chunk(*b"IHDR", &[7; 13]),
            encode_chunk(*b"IEND", b""),
        );
        let body = encode_chunk(*b"IDAT", &[9; 99]);
        let note = text("Comment", "chara");
        let plain = file(&[head.clone(), note.clone(), body.clone(), end.clone()]);
        let with_card = insert_card(&plain, b"{}").unwrap();
        assert_eq!(
            extract(&with_card).unwrap(),
            (b"{}".to_vec(), plain.clone())
        );
        // A card of any version is replaced.
        let v3 = text("ccv3", "e30=");
        let older = file(&[head, v3, text("chara", "W10="), note, body, end]);
        assert_eq!(insert_card(&older, b"{}").unwrap(), with_card);
        assert_eq!(extract(&older).unwrap(), (b"[]".to_vec(), plain));
    }

    #[test]
    fn picture_stays_in_the_memory_of_the_body() {
        let (head, end) = (
            encode_chunk(*b"IHDR", &[7; 13]),
            encode_chunk(*b"IEND", b""),
        );
        let body = Bytes::from(file(&[head, text("chara", "e30="), end]));
        let memory = body.as_ptr();
        let (_, picture) = extract_card(body, 99).unwrap();
        assert_eq!(picture.as_ptr(), memory);
    }

    #[test]
    fn png_without_exactly_one_card_is_rejected() {
        let (head, end) = (
            encode_chunk(*b"IHDR", &[7; 13]),
            encode_chunk(*b"IEND", b""),
        );
        let card = text("chara", "e30=");
        let good = file(&[head.clone(), card.clone(), end.clone()]);
        extract(&good).unwrap();
        for cut in 0..good.len() {
            rejection(&good[..cut]);
            insert_card(&good[..cut], b"{}").unwrap_err();
        }
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 1;
            rejection(&flipped);
            insert_card(&flipped, b"{}").unwrap_err();
        }
        let mut endless = good.clone();
        endless[8..12].fill(0xFF);
        assert!(rejection(&endless).contains("truncated"));
        let with = |chunks: &[Vec<u8>]| {
            file(
                &[
                    std::slice::from_ref(&head),
                    chunks,
                    std::slice::from_ref(&end),
                ]
                .concat(),
            )
        };
        let long = "A".repeat(400);
        for (file, expected) in [
            (with(&[]), "without a character card"),
            (with(&[text("ccv3", "e30=")]), "V3"),
            (with(&[card.clone(), card.clone()]), "two"),
            (with(&[text("chara", "%%%")]), "not Base64"),
            (with(&[text("chara", &long)]), "1 MiB"),
            (
                with(&[encode_chunk(*b"zTXt", b"chara\0\0xx")]),
                "compressed",
            ),
            (with(&[head.clone(), card.clone()]), "order"),
            (file(&[card.clone(), end.clone()]), "order"),
            ([good.as_slice(), b"more"].concat(), "follows its end"),
        ] {
            let detail = rejection(&file);
            assert!(detail.contains(expected), "{detail}");
        }
    }
}
