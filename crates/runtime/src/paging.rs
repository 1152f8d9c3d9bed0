//! Pages of lists: how many elements, and where the next page begins.
//! Never: a page without an end.

use crate::problem::Problem;

/// The most elements of a page.
const LARGEST_LIMIT: u16 = 200;

/// How many elements a page has when nobody says.
#[must_use]
pub const fn default_limit() -> u16 {
    50
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
    pub fn cut<T, Id>(self, mut found: Vec<T>, id: impl Fn(&T) -> Id) -> (Vec<T>, Option<Id>) {
        let more = found.len() > usize::from(self.0);
        found.truncate(self.0.into());
        let next = found.last().filter(|_| more).map(id);
        (found, next)
    }
}
