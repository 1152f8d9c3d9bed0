//! Pages of elements that may be large: bounded by count and by bytes.
//! Invariant: a page has at least one element if there is one.

use uuid::Uuid;

/// The maximum size of a page's elements in bytes, unless it is a single element.
pub(crate) const MAX_PAGE_BYTES: i64 = 4 * 1024 * 1024;

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// Its elements, in the order of the list.
    pub elements: Vec<T>,
    /// Whether further elements follow.
    pub more: bool,
}

impl<T> Page<T> {
    /// The element after which the next page begins.
    #[must_use]
    pub fn next_page_after(&self) -> Option<&T> {
        self.elements.last().filter(|_| self.more)
    }
}

/// An element's id, and the size of all elements up to and including it.
pub(crate) struct SizedId {
    pub(crate) id: Uuid,
    pub(crate) bytes: i64,
}

/// The ids of a page of at most `limit` elements, and whether others follow. `sizes` contains one
/// more element than fits, if there is one.
pub(crate) fn page_ids(sizes: &[SizedId], limit: u16) -> (Vec<Uuid>, bool) {
    let fits = |one: &&SizedId| one.bytes <= MAX_PAGE_BYTES;
    let count = sizes.iter().take(limit.into()).take_while(fits).count();
    let count = count.max(1);
    let ids = sizes.iter().take(count).map(|one| one.id).collect();
    (ids, sizes.len() > count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_bounded_by_count_and_bytes() {
        fn check(sums: &[i64], expected: (usize, bool)) {
            let sizes: Vec<_> = (1..)
                .zip(sums)
                .map(|(id, bytes)| SizedId {
                    id: Uuid::from_u128(id),
                    bytes: *bytes,
                })
                .collect();
            let (ids, more) = page_ids(&sizes, 3);
            let first: Vec<_> = sizes.iter().take(ids.len()).map(|one| one.id).collect();
            assert_eq!((ids.len(), more), expected, "{sums:?}");
            assert_eq!(ids, first);
        }
        const MAX: i64 = MAX_PAGE_BYTES;
        check(&[], (0, false));
        check(&[1], (1, false));
        check(&[MAX + 1], (1, false));
        check(&[MAX + 1, MAX + 2], (1, true));
        check(&[1, MAX], (2, false));
        check(&[1, MAX, MAX + 1], (2, true));
        check(&[1, 2, 3], (3, false));
        check(&[1, 2, 3, 4], (3, true));
    }
}
