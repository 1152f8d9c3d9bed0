//! PNG files as chunks: the one that holds a character card taken out, or put in.
//! Never: anything unpacked, a chunk whose checksum is wrong, or a byte that belongs to no chunk.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::StatusCode;
use switchboard_runtime::problem::Problem;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Where cards of the second and the third version stand.
const CARD: &[u8] = b"chara";
const CARD_V3: &[u8] = b"ccv3";
/// Chunks that begin with a keyword.
const TEXTS: [[u8; 4]; 3] = [*b"tEXt", *b"zTXt", *b"iTXt"];
/// Nobody's picture has so many.
const MOST_CHUNKS: usize = 100_000;

/// One chunk of a file.
struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
    /// With its length and checksum.
    whole: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// What a text chunk holds under this keyword.
    fn under(&self, keyword: &[u8]) -> Option<&'a [u8]> {
        let text = TEXTS.contains(&self.kind).then_some(self.data)?;
        text.strip_prefix(keyword)?.strip_prefix(b"\0")
    }

    fn is_card(&self) -> bool {
        [CARD, CARD_V3]
            .iter()
            .any(|keyword| self.under(keyword).is_some())
    }
}

/// Whether a file begins as a PNG.
pub(super) fn is_png(file: &[u8]) -> bool {
    file.starts_with(SIGNATURE)
}

/// The card in a PNG as JSON, of at most so many bytes, and the PNG without it.
///
/// # Errors
/// When the file is no whole PNG, or has no card of the second version, or more than one.
pub(super) fn taken_out(file: &[u8], most: usize) -> Result<(Vec<u8>, Vec<u8>), Problem> {
    let chunks = chunks(file)?;
    let mut cards = chunks
        .iter()
        .filter_map(|chunk| Some((chunk, chunk.under(CARD)?)));
    let (chunk, text) = match (cards.next(), cards.next()) {
        (Some(card), None) => card,
        (Some(_), Some(_)) => {
            return Err(broken(
                "It has two `chara` chunks; which one counts is not known.",
            ));
        }
        (None, _) if chunks.iter().any(|chunk| chunk.under(CARD_V3).is_some()) => {
            return Err(broken(
                "Its card is a V3 card (`ccv3`) only; export it as Character Card V2.",
            ));
        }
        (None, _) => {
            return Err(broken(
                "It is a PNG without a character card: no `tEXt` chunk is called `chara`.",
            ));
        }
    };
    if chunk.kind != *b"tEXt" {
        return Err(broken(
            "Its card is packed; it must stand in a `tEXt` chunk.",
        ));
    }
    // Base64 writes three bytes as four.
    if text.len() / 4 > most / 3 {
        return Err(broken("Its card has more than 1 MiB."));
    }
    let card = BASE64_STANDARD.decode(text.trim_ascii());
    let card =
        card.map_err(|error| broken(&format!("Its `chara` chunk is not Base64: {error}.")))?;
    let rest = chunks.iter().filter(|chunk| !chunk.is_card());
    Ok((card, written(rest.map(|chunk| chunk.whole))))
}

/// The PNG with this card, in place of any that it had.
///
/// # Errors
/// When the file is no whole PNG.
pub(super) fn put_in(file: &[u8], card: &[u8]) -> Result<Vec<u8>, Problem> {
    let chunks = chunks(file)?;
    let mut data = [CARD, b"\0"].concat();
    data.extend(BASE64_STANDARD.encode(card).bytes());
    let card = chunk(*b"tEXt", &data);
    let rest: Vec<_> = chunks.iter().filter(|chunk| !chunk.is_card()).collect();
    let (end, before) = rest.split_last().ok_or_else(|| broken("It is empty."))?;
    let before = before.iter().map(|chunk| chunk.whole);
    Ok(written(before.chain([card.as_slice(), end.whole])))
}

fn written<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut file = SIGNATURE.to_vec();
    file.extend(chunks.flatten());
    file
}

/// A chunk as it is written.
fn chunk(kind: [u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [kind.as_slice(), data].concat();
    // What is put in has at most a few MiB.
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut whole = length.to_be_bytes().to_vec();
    whole.extend(&body);
    whole.extend(crc32fast::hash(&body).to_be_bytes());
    whole
}

/// The chunks of a file, from IHDR to IEND.
fn chunks(file: &[u8]) -> Result<Vec<Chunk<'_>>, Problem> {
    let mut rest = file
        .strip_prefix(SIGNATURE)
        .ok_or_else(|| broken("It does not begin as a PNG."))?;
    let mut found: Vec<Chunk<'_>> = Vec::new();
    loop {
        let chunk = first(rest).ok_or_else(|| broken("It breaks off, or a checksum is wrong."))?;
        rest = rest.get(chunk.whole.len()..).unwrap_or_default();
        let is_end = chunk.kind == *b"IEND";
        if found.is_empty() != (chunk.kind == *b"IHDR") || found.len() > MOST_CHUNKS {
            return Err(broken(
                "Its chunks are not in the order of a PNG, or are too many.",
            ));
        }
        found.push(chunk);
        match (is_end, rest.is_empty()) {
            (true, true) => return Ok(found),
            (true, false) => return Err(broken("Something follows its end.")),
            (false, _) => {}
        }
    }
}

/// The first chunk, if it is whole.
fn first(rest: &[u8]) -> Option<Chunk<'_>> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let body = after.get(..length.checked_add(4)?)?;
    let (sum, _) = after.get(body.len()..)?.split_first_chunk::<4>()?;
    let (kind, data) = body.split_first_chunk::<4>()?;
    let is_right = crc32fast::hash(body) == u32::from_be_bytes(*sum);
    is_right.then_some(Chunk {
        kind: *kind,
        data,
        whole: rest.get(..body.len().checked_add(8)?)?,
    })
}

fn broken(detail: &str) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "broken_card",
        "Broken card",
        format!("The PNG cannot be read as a character card. {detail}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        written(chunks.iter().map(Vec::as_slice))
    }

    fn text(keyword: &str, value: &str) -> Vec<u8> {
        chunk(*b"tEXt", format!("{keyword}\0{value}").as_bytes())
    }

    fn refusal(file: &[u8]) -> String {
        taken_out(file, 99).map(drop).unwrap_err().detail
    }

    #[test]
    fn a_card_comes_out_as_it_was_put_in() {
        let (head, end) = (chunk(*b"IHDR", &[7; 13]), chunk(*b"IEND", b""));
        let body = chunk(*b"IDAT", &[9; 99]);
        let note = text("Comment", "chara");
        let plain = file(&[head.clone(), note.clone(), body.clone(), end.clone()]);
        let with_card = put_in(&plain, b"{}").unwrap();
        assert_eq!(
            taken_out(&with_card, 99).unwrap(),
            (b"{}".to_vec(), plain.clone())
        );
        // One that was there, of whatever version, is replaced.
        let v3 = text("ccv3", "e30=");
        let older = file(&[head, v3, text("chara", "W10="), note, body, end]);
        assert_eq!(put_in(&older, b"{}").unwrap(), with_card);
        assert_eq!(taken_out(&older, 99).unwrap(), (b"[]".to_vec(), plain));
    }

    #[test]
    fn what_is_no_whole_png_with_one_card_is_refused() {
        let (head, end) = (chunk(*b"IHDR", &[7; 13]), chunk(*b"IEND", b""));
        let card = text("chara", "e30=");
        let good = file(&[head.clone(), card.clone(), end.clone()]);
        taken_out(&good, 99).unwrap();
        for cut in 0..good.len() {
            refusal(&good[..cut]);
        }
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 1;
            refusal(&flipped);
        }
        let mut endless = good.clone();
        endless[8..12].fill(0xFF);
        assert!(refusal(&endless).contains("breaks off"));
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
        for (file, wanted) in [
            (with(&[]), "without a character card"),
            (with(&[text("ccv3", "e30=")]), "V3"),
            (with(&[card.clone(), card.clone()]), "two"),
            (with(&[text("chara", "%%%")]), "not Base64"),
            (with(&[text("chara", &long)]), "1 MiB"),
            (with(&[chunk(*b"zTXt", b"chara\0\0xx")]), "packed"),
            (with(&[head.clone(), card.clone()]), "order"),
            (file(&[card.clone(), end.clone()]), "order"),
            ([good.as_slice(), b"more"].concat(), "follows its end"),
        ] {
            let detail = refusal(&file);
            assert!(detail.contains(wanted), "{detail}");
        }
    }
}
