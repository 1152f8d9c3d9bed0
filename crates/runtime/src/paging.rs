//! Pagination of lists: page size and cursors.

mod cursor;

use serde::Deserialize;
use utoipa::IntoParams;

pub use cursor::{Cursor, List};

use crate::problem::Problem;

/// Maximum number of elements per page.
const MAX_LIMIT: u16 = 200;

/// Default number of elements per page.
#[must_use]
pub const fn default_limit() -> u16 {
    50
}

/// Query parameters of a list without filters.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// Maximum number of elements in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "default_limit")]
    pub limit: u16,
    /// `next_cursor` of the previous page.
    pub cursor: Option<Cursor>,
}

/// A validated page size.
#[derive(Debug, Clone, Copy)]
pub struct Limit(u16);

impl Limit {
    /// Validates a page size from a query string.
    ///
    /// # Errors
    /// A 400 problem unless it is from 1 to 200.
    pub fn new(limit: u16) -> Result<Self, Problem> {
        if (1..=MAX_LIMIT).contains(&limit) {
            return Ok(Self(limit));
        }
        Err(Problem::invalid_query(format!(
            "`limit` must be from 1 to {MAX_LIMIT}."
        )))
    }

    /// Creates a page size that is not part of a request.
    #[must_use]
    pub const fn fixed(count: u16) -> Self {
        Self(count)
    }

    /// Returns the page size.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0
    }

    /// Returns the number of elements to fetch: one more than the page size shows whether another
    /// page follows.
    #[must_use]
    pub fn fetch_count(self) -> u32 {
        u32::from(self.0).saturating_add(1)
    }

    /// Truncates the fetched elements to one page and returns the cursor of the next page, if any.
    pub fn page<T, C>(self, mut found: Vec<T>, cursor: impl Fn(&T) -> C) -> (Vec<T>, Option<C>) {
        let more = found.len() > usize::from(self.0);
        found.truncate(self.0.into());
        let next = found.last().filter(|_| more).map(cursor);
        (found, next)
    }
}
