//! Pages of lists: how many elements, and where the next page begins.
//! Never: a page without an end, or a place in another list.

mod cursor;

use serde::Deserialize;
use utoipa::IntoParams;

pub use cursor::{Cursor, List};

use crate::problem::Problem;

/// The most elements of a page.
const LARGEST_LIMIT: u16 = 200;

/// How many elements a page has when nobody says.
#[must_use]
pub const fn default_limit() -> u16 {
    50
}

/// The query string of a list that cannot be narrowed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// The most elements of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "default_limit")]
    pub limit: u16,
    /// `next_cursor` of the page before.
    pub cursor: Option<Cursor>,
}

/// The number of elements of a page, checked.
#[derive(Debug, Clone, Copy)]
pub struct Limit(u16);

impl Limit {
    /// As a query string has it.
    ///
    /// # Errors
    /// A 400 problem when it is not from 1 to 200.
    pub fn new(limit: u16) -> Result<Self, Problem> {
        if (1..=LARGEST_LIMIT).contains(&limit) {
            return Ok(Self(limit));
        }
        Err(Problem::invalid_query(format!(
            "`limit` must be from 1 to {LARGEST_LIMIT}."
        )))
    }

    /// How many it is.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0
    }

    /// How many to ask for: one more than a page tells whether another page follows.
    #[must_use]
    pub fn probe(self) -> u32 {
        u32::from(self.0).saturating_add(1)
    }

    /// The page out of what was found, and where the next one begins.
    pub fn cut<T>(
        self,
        mut found: Vec<T>,
        behind: impl Fn(&T) -> Cursor,
    ) -> (Vec<T>, Option<Cursor>) {
        let more = found.len() > usize::from(self.0);
        found.truncate(self.0.into());
        let next = found.last().filter(|_| more).map(behind);
        (found, next)
    }
}
