//! Pages of elements that may be large: they end by count, and by bytes.
//! Never: a page without an element where there is one, or one that is read to be thrown away.

use uuid::Uuid;

/// The most bytes that the elements of a page have together, unless it is one element.
pub(crate) const LARGEST_PAGE_BYTES: i64 = 4 * 1024 * 1024;

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// What it has, in the list's order.
    pub elements: Vec<T>,
    /// Whether the list goes on behind it.
    pub more: bool,
}

impl<T> Page<T> {
    /// The element behind which the list goes on.
    #[must_use]
    pub fn continues_behind(&self) -> Option<&T> {
        self.elements.last().filter(|_| self.more)
    }
}

/// An element ahead, and how many bytes those up to it have together, itself included.
pub(crate) struct Ahead {
    pub(crate) id: Uuid,
    pub(crate) bytes: i64,
}

/// The elements of a page of at most so many, and whether others follow, out of what is ahead: one more than fits, if
/// there is one.
pub(crate) fn fill(ahead: &[Ahead], limit: u16) -> (Vec<Uuid>, bool) {
    let fits = |one: &&Ahead| one.bytes <= LARGEST_PAGE_BYTES;
    let count = ahead.iter().take(limit.into()).take_while(fits).count();
    let count = count.max(1);
    let ids = ahead.iter().take(count).map(|one| one.id).collect();
    (ids, ahead.len() > count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_by_count_and_by_bytes() {
        fn check(sums: &[i64], expected: (usize, bool)) {
            let ahead: Vec<_> = (1..)
                .zip(sums)
                .map(|(id, bytes)| Ahead {
                    id: Uuid::from_u128(id),
                    bytes: *bytes,
                })
                .collect();
            let (ids, more) = fill(&ahead, 3);
            let first: Vec<_> = ahead.iter().take(ids.len()).map(|one| one.id).collect();
            assert_eq!((ids.len(), more), expected, "{sums:?}");
            assert_eq!(ids, first);
        }
        const MOST: i64 = LARGEST_PAGE_BYTES;
        check(&[], (0, false));
        check(&[1], (1, false));
        check(&[MOST + 1], (1, false));
        check(&[MOST + 1, MOST + 2], (1, true));
        check(&[1, MOST], (2, false));
        check(&[1, MOST, MOST + 1], (2, true));
        check(&[1, 2, 3], (3, false));
        check(&[1, 2, 3, 4], (3, true));
    }
}
