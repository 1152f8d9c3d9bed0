//! What prompts and resources share: the scope of what a caller can read, and pages.

use rmcp::ErrorData;
use serde::Serialize;
use switchboard_protocol::id::{OrgId, SkillsBookId};
use switchboard_runtime::{
    paging::{Limit, PageBytes},
    response_budget::json_bytes,
};
use switchboard_store::{Npc, StoreError};

/// The prompts and resources that a caller can read.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadScope<'a> {
    /// Those of an organisation.
    Org(OrgId),
    /// Those of one NPC.
    Npc(&'a Npc),
}

impl<'a> ReadScope<'a> {
    pub(super) const fn org(self) -> OrgId {
        match self {
            Self::Org(org) => org,
            Self::Npc(npc) => npc.org,
        }
    }

    /// The skills books. `None` for all of them.
    pub(super) fn books(self) -> Option<&'a [SkillsBookId]> {
        match self {
            Self::Org(_) => None,
            Self::Npc(npc) => Some(&npc.effective.settings.skills_book_ids),
        }
    }
}

/// A page of a list.
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    pub(super) next_cursor: Option<String>,
}

impl<T> Page<T> {
    pub(super) const fn empty() -> Self {
        Self {
            items: Vec::new(),
            next_cursor: None,
        }
    }
}

/// A page of sorted items, of which [`Limit::fetch_count`] were fetched: it ends at 4 MiB, with at
/// least one item. The cursor is the key of the last item.
pub(super) fn paginate<F, T: Serialize>(
    items: Vec<F>,
    limit: Limit,
    key: impl Fn(&F) -> String,
    convert: impl Fn(F) -> T,
) -> Page<T> {
    let (items, mut next_cursor) = limit.page(items, &key);
    let (mut page, mut bytes) = (Vec::with_capacity(items.len()), PageBytes::default());
    let mut last = None;
    for item in items {
        let key = key(&item);
        let item = convert(item);
        if !bytes.add(json_bytes(&item)) {
            next_cursor = last;
            break;
        }
        last = Some(key);
        page.push(item);
    }
    Page {
        items: page,
        next_cursor,
    }
}

/// Merges two lists in byte order of their keys. Of two items with one key, keeps the first list's.
pub(super) fn merge<T>(first: Vec<T>, second: Vec<T>, key: impl Fn(&T) -> &str) -> Vec<T> {
    let mut all = first;
    all.extend(second);
    all.sort_by(|one, other| key(one).cmp(key(other)));
    all.dedup_by(|later, earlier| key(later) == key(earlier));
    all
}

/// The error of a request that failed because the database could not be read.
pub(super) fn unavailable(error: &StoreError) -> ErrorData {
    tracing::warn!(
        error = error.report(),
        "prompts or resources could not be read from the database"
    );
    let detail = "the database is unavailable; retry later";
    ErrorData::internal_error(detail, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_the_last_key_if_more_follows() {
        fn check(items: &[&str], limit: u16, len: usize, next: Option<&str>) {
            let limit = Limit::fixed(limit);
            let page = paginate(items.to_vec(), limit, |item| (*item).to_owned(), str::len);
            assert_eq!(page.items.len(), len);
            assert_eq!(page.next_cursor.as_deref(), next);
        }
        check(&[], 2, 0, None);
        check(&["a", "b"], 2, 2, None);
        check(&["a", "b", "c"], 2, 2, Some("b"));
    }

    #[test]
    fn page_of_large_items_ends_by_bytes() {
        let sizes = [1, 3, 3, 3].map(|mebibytes| "x".repeat(mebibytes << 20));
        let key = |item: &String| item.len().to_string();
        let page = paginate(sizes.to_vec(), Limit::fixed(9), key, |item| item.len());
        assert_eq!(
            (page.items.len(), page.next_cursor),
            (4, None),
            "small items"
        );
        let page = paginate(sizes.to_vec(), Limit::fixed(9), key, |item| item);
        assert_eq!(
            (page.items.len(), page.next_cursor),
            (1, Some(key(&sizes[0])))
        );
        let page = paginate(vec!["x".repeat(5 << 20)], Limit::fixed(9), key, |item| item);
        assert_eq!((page.items.len(), page.next_cursor), (1, None));
    }

    #[test]
    fn merged_list_is_sorted_and_unique() {
        let (first, second) = (vec![("b", 1), ("d", 1)], vec![("a", 2), ("b", 2), ("e", 2)]);
        let all = merge(first, second, |item| item.0);
        assert_eq!(all, [("a", 2), ("b", 1), ("d", 1), ("e", 2)]);
    }
}
