//! What prompts and resources have in common: whose they are, pages, and a record that cannot be read.
//! Never: a page that hides that another one follows.

use rmcp::ErrorData;
use switchboard_protocol::id::{OrgId, SkillsBookId};
use switchboard_store::{Npc, StoreError};

/// Which prompts and resources somebody reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Readable<'a> {
    /// All of an organisation.
    Of(OrgId),
    /// Those of one NPC.
    OfNpc(&'a Npc),
}

impl<'a> Readable<'a> {
    pub(super) const fn org(self) -> OrgId {
        match self {
            Self::Of(org) => org,
            Self::OfNpc(npc) => npc.org,
        }
    }

    /// The skills books; `None` where that is all of them.
    pub(super) fn books(self) -> Option<&'a [SkillsBookId]> {
        match self {
            Self::Of(_) => None,
            Self::OfNpc(npc) => Some(&npc.effective.settings.skills_book_ids),
        }
    }
}

/// Some of a list, and where to go on.
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

/// A page of what was found, where one more than a page was looked for. The cursor is the last one's place.
pub(super) fn paged<F, T>(
    mut found: Vec<F>,
    limit: u32,
    place: impl Fn(&F) -> String,
    shown: impl Fn(F) -> T,
) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = if more { found.last().map(place) } else { None };
    Page {
        items: found.into_iter().map(shown).collect(),
        next_cursor,
    }
}

/// Two lists in byte order of their places as one; of two at one place, the first list's.
pub(super) fn merged<T>(first: Vec<T>, second: Vec<T>, place: impl Fn(&T) -> &str) -> Vec<T> {
    let mut all = first;
    all.extend(second);
    all.sort_by(|one, other| place(one).cmp(place(other)));
    all.dedup_by(|later, earlier| place(later) == place(earlier));
    all
}

/// The record could not be read, so nothing is known of it.
pub(super) fn unreadable(error: &StoreError) -> ErrorData {
    tracing::warn!(
        error = error.report(),
        "what agents may read could not be looked up"
    );
    let detail = "the record cannot be read at the moment; try again in a moment";
    ErrorData::internal_error(detail, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_the_last_place_where_more_follows() {
        fn check(found: &[&str], limit: u32, shown: usize, next: Option<&str>) {
            let page = paged(found.to_vec(), limit, |item| (*item).to_owned(), str::len);
            assert_eq!(page.items.len(), shown);
            assert_eq!(page.next_cursor.as_deref(), next);
        }
        check(&[], 2, 0, None);
        check(&["a", "b"], 2, 2, None);
        check(&["a", "b", "c"], 2, 2, Some("b"));
    }

    #[test]
    fn two_lists_become_one_in_order() {
        let (first, second) = (vec![("b", 1), ("d", 1)], vec![("a", 2), ("b", 2), ("e", 2)]);
        let all = merged(first, second, |item| item.0);
        assert_eq!(all, [("a", 2), ("b", 1), ("d", 1), ("e", 2)]);
    }
}
