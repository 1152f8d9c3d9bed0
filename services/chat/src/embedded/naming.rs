//! Which ids a text names.
//! Never: an id found within a longer one.

use std::{cmp::Reverse, ops::Range};

use super::words::is_chinese;

/// What a text names.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// The places of the ids among all.
    pub(crate) which: Vec<usize>,
    /// Where in the text they stand.
    pub(crate) places: Vec<Range<usize>>,
}

/// The ids that it names, as whole words and whatever their case.
pub(crate) fn named<'a>(text: &str, ids: impl Iterator<Item = &'a str>) -> Named {
    // Ids are of ASCII, and so no place is moved.
    let mut left = text.to_ascii_lowercase();
    let mut ids: Vec<(usize, String)> = ids.map(str::to_ascii_lowercase).enumerate().collect();
    // What a longer one names is not there for a shorter one.
    ids.sort_by_key(|(_, id)| Reverse(id.len()));
    let mut found = Named::default();
    for (place, id) in ids.into_iter().filter(|(_, id)| !id.is_empty()) {
        let places = left.match_indices(&id).map(|(at, _)| at);
        let whole: Vec<usize> = places.filter(|at| is_whole(&left, *at, id.len())).collect();
        for at in &whole {
            left.replace_range(*at..*at + id.len(), &" ".repeat(id.len()));
            found.places.push(*at..*at + id.len());
        }
        if !whole.is_empty() {
            found.which.push(place);
        }
    }
    found
}

/// Whether neither what stands before it nor what follows makes a longer id of it.
fn is_whole(text: &str, at: usize, length: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    let after = text.get(at + length..).unwrap_or_default();
    !goes_on(before.chars().rev()) && !goes_on(after.chars())
}

/// Whether letters or digits follow, be it behind what joins them.
fn goes_on(chars: impl Iterator<Item = char>) -> bool {
    let is_letter = |c: &char| c.is_alphanumeric() && !is_chinese(*c);
    let mut rest = chars.skip_while(|c| matches!(c, '-' | '_' | '.' | ':'));
    rest.next().is_some_and(|c| is_letter(&c))
}
