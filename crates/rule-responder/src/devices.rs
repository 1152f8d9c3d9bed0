//! Devices that a sentence names by their id.

use crate::Offer;

/// Words that belong to the id behind them.
const BEFORE: [&str; 5] = [" on", " of", " at", " in", " the"];

/// The devices that the sentence names, or all; and the sentence without their ids.
pub(crate) fn named<'a>(offers: &[Offer<'a>], text: &str) -> (Vec<Offer<'a>>, String) {
    let mut named = Vec::new();
    let mut rest = text.to_owned();
    for offer in offers {
        // The only device needs no name, and its id may be a word such as `lamp`.
        let is_name = offers.len() > 1 || offer.device.contains(|c: char| c.is_ascii_digit());
        let Some(start) = place_of(&rest, offer.device).filter(|_| is_name) else {
            continue;
        };
        named.push(*offer);
        let before = rest.get(..start).unwrap_or_default().trim_end();
        let without = BEFORE.iter().find_map(|word| before.strip_suffix(word));
        let after = rest.get(start + offer.device.len()..).unwrap_or_default();
        rest = format!("{} {after}", without.unwrap_or(before));
    }
    let named = if named.is_empty() {
        offers.to_vec()
    } else {
        named
    };
    (named, rest)
}

/// The place of the whole id in the text, in any case.
fn place_of(text: &str, device: &str) -> Option<usize> {
    let (text, device) = (text.to_ascii_lowercase(), device.to_ascii_lowercase());
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let mut places = text.match_indices(&device).map(|(at, _)| at);
    places.find(|at| {
        let before = text.get(..*at).unwrap_or_default();
        let after = text.get(at + device.len()..).unwrap_or_default();
        let inner = after.trim_start_matches(['-', '.', ':', '_']);
        !before.ends_with(|c| is_part(c) || "-.:_".contains(c)) && !inner.starts_with(is_part)
    })
}
