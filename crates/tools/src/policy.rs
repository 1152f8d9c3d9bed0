//! Tool policies of NPCs.
//! Invariant: a policy has the same effect with both names of a service.

use crate::Naming;

/// Whether a policy permits a service: it is allowed (all are, without a list) and not denied.
/// Policies use the registered name, or the tool name at the device's own endpoint.
#[must_use]
pub fn permits(allow: Option<&[String]>, deny: &[String], service: &str) -> bool {
    let tool = Naming::Alone.service(service);
    let lists = |list: &[String]| list.iter().any(|name| name == service || *name == tool);
    !lists(deny) && allow.is_none_or(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_matches_both_names_of_a_service() {
        fn check(allow: Option<&[&str]>, deny: &[&str], expected: bool) {
            let owned =
                |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            let allow = allow.map(owned);
            let seen = permits(allow.as_deref(), &owned(deny), "wheel.turn");
            assert_eq!(seen, expected, "{allow:?} {deny:?}");
        }
        check(None, &[], true);
        check(Some(&[]), &[], false);
        check(Some(&["wheel.turn"]), &[], true);
        check(Some(&["wheel_turn-76abe56d"]), &[], true);
        check(None, &["wheel_turn-76abe56d"], false);
        check(Some(&["wheel.turn"]), &["wheel.turn"], false);
        check(None, &["wheel"], true);
    }
}
