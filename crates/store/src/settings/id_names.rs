//! Names that consist of a prefix and an id, `npcs/npc_…`, in lists in byte order.
//! Invariant: an id has one name.

use std::{fmt::Display, str::FromStr};

/// The id in such a name.
pub(crate) fn parse_id<I: FromStr + Display>(name: &str, prefix: &str) -> Option<I> {
    let written = name.strip_prefix(prefix)?;
    let id: I = written.parse().ok()?;
    (id.to_string() == written).then_some(id)
}

/// The id after which a list of such names continues after this name, `Some(None)` from the first
/// one; `None` if no name follows.
pub(crate) fn resume_after<I: FromStr + Display>(
    after: Option<&str>,
    prefix: &str,
) -> Option<Option<I>> {
    match after {
        Some(after) if after >= prefix => parse_id(after, prefix).map(Some),
        _ => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::NpcId;

    use super::*;

    #[test]
    fn list_resumes_after_cursor() {
        fn check(after: Option<&str>, expected: Option<Option<&str>>) {
            let found = resume_after::<NpcId>(after, "npcs/");
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
