//! Names that end in an id, `npcs/npc_…`, in lists that are read in byte order.
//! Never: two names for one id.

use std::{fmt::Display, str::FromStr};

/// The id in such a name.
pub(crate) fn id_in<I: FromStr + Display>(name: &str, before: &str) -> Option<I> {
    let written = name.strip_prefix(before)?;
    let id: I = written.parse().ok()?;
    (id.to_string() == written).then_some(id)
}

/// Behind which id a list of such names goes on after this name, `Some(None)` from the first one on; `None` when no
/// name comes after it.
pub(crate) fn goes_on_behind<I: FromStr + Display>(
    after: Option<&str>,
    before: &str,
) -> Option<Option<I>> {
    match after {
        Some(after) if after >= before => id_in(after, before).map(Some),
        _ => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::NpcId;

    use super::*;

    #[test]
    fn a_list_goes_on_where_its_cursor_says() {
        fn check(after: Option<&str>, expected: Option<Option<&str>>) {
            let found = goes_on_behind::<NpcId>(after, "npcs/");
            let expected = expected.map(|id| id.map(|id| id.parse().unwrap()));
            assert_eq!(found, expected, "{after:?}");
        }
        const ID: &str = "npc_01a1fdc1ea0571c1a2f6d8a4b7c90e13";
        check(None, Some(None));
        check(Some("a"), Some(None));
        check(Some("npcs"), Some(None));
        check(Some(&format!("npcs/{ID}")), Some(Some(ID)));
        check(Some(&format!("npcs/{}", ID.replace("fdc", "FDC"))), None);
        check(Some("npcs/x"), None);
        check(Some("z"), None);
    }
}
