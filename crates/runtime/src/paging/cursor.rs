//! Where a page ended, opaque to callers: a seal over the list, who reads it and the place, and behind it the place.
//! Never: a place in one list taken for one in another, or in the same list of another organisation.

use std::{fmt::Display, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::problem::Problem;

/// How many bytes of the hash stand before the place. There is no secret in it: whoever makes up a cursor has named a
/// place in a list that they may read anyway.
const SEAL_BYTES: usize = 8;

/// Where a page ended: good for the same list, asked for by the same organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(
    value_type = String,
    pattern = "^[A-Za-z0-9_-]{12,96}$",
    example = "vJ2LRzJsvAl0cGxfMDFhMWZkYzFlODM2NzBmNjgwMjBjMDcxZmQ1MzM2MDU"
)]
#[serde(transparent)]
pub struct Cursor(String);

/// A list as one organisation, or the operator, reads it.
#[derive(Debug)]
pub struct List {
    seal: Sha256,
}

impl List {
    /// The list of this name, which is its path, for this reader.
    #[must_use]
    pub fn of(name: &str, reader: impl Display) -> Self {
        let mut seal = Sha256::new();
        seal.update(format!("{name}\0{reader}\0"));
        Self { seal }
    }

    /// Where the page after the one that ended with this element begins.
    #[must_use]
    pub fn behind(&self, last: impl Display) -> Cursor {
        let place = last.to_string();
        let sealed = [self.seal(&place).as_slice(), place.as_bytes()].concat();
        Cursor(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Which element ended the page before.
    ///
    /// # Errors
    /// A 400 problem when the cursor is damaged, or of another list or organisation.
    pub fn after<Place: FromStr>(&self, cursor: Option<Cursor>) -> Result<Option<Place>, Problem> {
        let Some(Cursor(text)) = cursor else {
            return Ok(None);
        };
        self.open(&text).map(Some).ok_or_else(|| {
            Problem::invalid_query(
                "`cursor` is not one of this list; send `next_cursor` of its page before as it is.",
            )
        })
    }

    fn open<Place: FromStr>(&self, text: &str) -> Option<Place> {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (seal, place) = sealed.split_first_chunk::<SEAL_BYTES>()?;
        let place = std::str::from_utf8(place).ok()?;
        if *seal != self.seal(place) {
            return None;
        }
        place.parse().ok()
    }

    fn seal(&self, place: &str) -> [u8; SEAL_BYTES] {
        let hash: [u8; 32] = self.seal.clone().chain_update(place).finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        [a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let list = List::of("/v1/numbers", "org_1");
        let Cursor(text) = list.behind(12_345);
        let opened = |list: &List, text: &str| {
            let found = list.after::<u32>(Some(Cursor(text.to_owned())));
            found.map_err(|problem| (problem.status.as_u16(), problem.detail))
        };
        assert_eq!(opened(&list, &text), Ok(Some(12_345)));
        assert_eq!(list.after::<u32>(None).unwrap(), None);
        let mut wrong = vec![
            String::new(),
            "x".to_owned(),
            "!".to_owned(),
            format!("{text}="),
        ];
        for at in 0..text.len() {
            let other = if text.as_bytes()[at] == b'A' {
                "B"
            } else {
                "A"
            };
            let mut damaged = text.clone();
            damaged.replace_range(at..=at, other);
            wrong.extend([damaged, text[..at].to_owned()]);
        }
        for (name, reader) in [("/v1/numbers", "org_2"), ("/v1/digits", "org_1")] {
            wrong.push(List::of(name, reader).behind(12_345).0);
        }
        wrong.push(list.behind("no number").0);
        for text in wrong {
            let (status, detail) = opened(&list, &text).unwrap_err();
            assert_eq!(status, 400, "{text:?}");
            assert!(
                detail.starts_with("`cursor` is not one of this list"),
                "{detail}"
            );
        }
    }

    #[test]
    fn cursors_are_as_the_document_says() {
        for place in ["x".to_owned(), "x".repeat(64)] {
            let Cursor(text) = List::of("/v1/devices", "org_1").behind(&place);
            assert!((12..=96).contains(&text.len()), "{text}");
        }
    }
}
