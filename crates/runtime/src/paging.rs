//! Pagination of lists: page size and cursors.

mod cursor;
mod elements;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use cursor::{Cursor, List};
pub use elements::JsonElements;

use crate::problem::Problem;

/// Maximum number of elements per page.
const MAX_LIMIT: u16 = 200;

/// Maximum size of a page's elements in bytes, unless it is a single element.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

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

/// The order of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "desc")]
pub enum Order {
    /// Oldest first.
    #[default]
    Asc,
    /// Newest first.
    Desc,
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

    /// Converts the fetched elements to one page as JSON, which ends at 4 MiB with at least one
    /// element, and returns the cursor of the next page, if any.
    pub fn json_page<T, C, V: Serialize>(
        self,
        found: Vec<T>,
        cursor: impl Fn(&T) -> C,
        view: impl Fn(T) -> V,
    ) -> (JsonElements, Option<C>) {
        let (mut page, mut last) = (JsonElements::default(), None);
        for (index, element) in found.into_iter().enumerate() {
            let next = cursor(&element);
            if index == usize::from(self.0) || !page.push(&view(element)) {
                return (page, last);
            }
            last = Some(next);
        }
        (page, None)
    }

    /// Truncates the fetched elements to one page and returns the cursor of the next page, if any.
    pub fn page<T, C>(self, mut found: Vec<T>, cursor: impl Fn(&T) -> C) -> (Vec<T>, Option<C>) {
        let more = found.len() > usize::from(self.0);
        found.truncate(self.0.into());
        let next = found.last().filter(|_| more).map(cursor);
        (found, next)
    }
}

/// The size of a page whose elements may be large: it ends at 4 MiB.
///
/// Invariant: a page has at least one element if there is one.
#[derive(Debug, Default)]
pub struct PageBytes {
    total: usize,
    is_started: bool,
}

impl PageBytes {
    /// Adds an element of this size. False if it belongs to the next page.
    pub fn add(&mut self, bytes: usize) -> bool {
        let total = self.total.saturating_add(bytes);
        let fits = !self.is_started || total <= MAX_PAGE_BYTES;
        if fits {
            self.total = total;
            self.is_started = true;
        }
        fits
    }

    /// Returns the size of all elements of the page.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_page_ends_by_count_or_bytes() {
        fn check(sizes: &[usize], limit: u16, count: usize, next: Option<usize>) {
            let found: Vec<_> = sizes.iter().copied().enumerate().collect();
            let limit = Limit::fixed(limit);
            let (page, cursor) =
                limit.json_page(found, |(index, _)| *index, |(_, size)| "x".repeat(size));
            let json = serde_json::to_value(&page).unwrap();
            let elements = json.as_array().unwrap();
            assert_eq!((elements.len(), cursor), (count, next), "{sizes:?}");
            // With quotes.
            let bytes: usize = sizes.iter().take(count).map(|size| size + 2).sum();
            assert_eq!(page.bytes(), bytes);
        }
        const HALF: usize = MAX_PAGE_BYTES / 2 - 2;
        check(&[], 2, 0, None);
        check(&[1, 1], 2, 2, None);
        check(&[1, 1, 1], 2, 2, Some(1));
        check(&[HALF, HALF], 4, 2, None);
        check(&[HALF, HALF, 1], 4, 2, Some(1));
        check(&[3 * HALF, 1], 4, 1, Some(0));
    }

    #[test]
    fn page_ends_by_bytes_with_at_least_one_element() {
        fn check(sizes: &[usize], expected: usize) {
            let mut page = PageBytes::default();
            let fitting = sizes.iter().take_while(|bytes| page.add(**bytes));
            let count = fitting.count();
            assert_eq!(count, expected, "{sizes:?}");
            assert_eq!(page.total(), sizes.iter().take(count).sum::<usize>());
        }
        const MAX: usize = MAX_PAGE_BYTES;
        check(&[], 0);
        check(&[MAX + 1], 1);
        check(&[MAX + 1, 1], 1);
        check(&[1, MAX], 1);
        check(&[1, MAX - 1], 2);
        check(&[MAX, 1, 1], 1);
        check(&[0, MAX + 1], 1);
    }
}
