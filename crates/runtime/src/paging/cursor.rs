//! Opaque cursors: a checksum over list, reader and position, followed by the position.
//!
//! Invariant: a cursor is rejected by any other list, and by the same list of another organisation.

use std::{fmt::Display, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::Order;
use crate::problem::Problem;

/// Length of the truncated hash before the position. It holds no secret: a forged cursor names a
/// position in a list that its author may read anyway.
const SEAL_BYTES: usize = 8;

/// Position after the last element of a page, valid for the same list and organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(
    value_type = String,
    pattern = "^[A-Za-z0-9_-]{12,96}$",
    example = "vJ2LRzJsvAl0cGxfMDFhMWZkYzFlODM2NzBmNjgwMjBjMDcxZmQ1MzM2MDU"
)]
#[serde(transparent)]
pub struct Cursor(String);

/// A list as seen by one reader: an organisation or the operator.
#[derive(Debug)]
pub struct List {
    seal: Sha256,
}

impl List {
    /// Creates the list with this name, which is its path, for this reader.
    #[must_use]
    pub fn new(name: &str, reader: impl Display) -> Self {
        let mut seal = Sha256::new();
        seal.update(format!("{name}\0{reader}\0"));
        Self { seal }
    }

    /// The list in this order. A cursor of the other order is rejected.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        if order == Order::Desc {
            self.seal.update("desc\0");
        }
        self
    }

    /// Returns the cursor of the page that follows this element.
    #[must_use]
    pub fn cursor(&self, last: impl Display) -> Cursor {
        let position = last.to_string();
        let sealed = [self.seal(&position).as_slice(), position.as_bytes()].concat();
        Cursor(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Returns the position encoded in a cursor: the last element of the previous page.
    ///
    /// # Errors
    /// A 400 problem when the cursor is damaged, or belongs to another list or organisation.
    pub fn position<P: FromStr>(&self, cursor: Option<Cursor>) -> Result<Option<P>, Problem> {
        let Some(Cursor(text)) = cursor else {
            return Ok(None);
        };
        self.open(&text).map(Some).ok_or_else(|| {
            Problem::invalid_query(
                "`cursor` does not belong to this list; send `next_cursor` of the previous page unchanged.",
            )
        })
    }

    fn open<P: FromStr>(&self, text: &str) -> Option<P> {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (seal, position) = sealed.split_first_chunk::<SEAL_BYTES>()?;
        let position = std::str::from_utf8(position).ok()?;
        if *seal != self.seal(position) {
            return None;
        }
        position.parse().ok()
    }

    fn seal(&self, position: &str) -> [u8; SEAL_BYTES] {
        let hash: [u8; 32] = self.seal.clone().chain_update(position).finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        [a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_valid_for_its_own_list_only() {
        let list = List::new("/v1/numbers", "org_1");
        let Cursor(text) = list.cursor(12_345);
        let opened = |list: &List, text: &str| {
            let found = list.position::<u32>(Some(Cursor(text.to_owned())));
            found.map_err(|problem| (problem.status().as_u16(), problem.detail))
        };
        assert_eq!(opened(&list, &text), Ok(Some(12_345)));
        assert_eq!(list.position::<u32>(None).unwrap(), None);
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
            wrong.push(List::new(name, reader).cursor(12_345).0);
        }
        let newest_first = List::new("/v1/numbers", "org_1").ordered(Order::Desc);
        wrong.push(newest_first.cursor(12_345).0);
        wrong.push(list.cursor("not a number").0);
        for text in wrong {
            let (status, detail) = opened(&list, &text).unwrap_err();
            assert_eq!(status, 400, "{text:?}");
            assert!(
                detail.starts_with("`cursor` does not belong to this list"),
                "{detail}"
            );
        }
    }

    #[test]
    fn cursor_matches_its_schema() {
        for position in ["x".to_owned(), "x".repeat(64)] {
            let Cursor(text) = List::new("/v1/devices", "org_1").cursor(&position);
            assert!((12..=96).contains(&text.len()), "{text}");
        }
    }
}
