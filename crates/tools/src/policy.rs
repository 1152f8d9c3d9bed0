//! Which services a character may use.
//! Never: a service that is refused under one of its names and allowed under the other.

use crate::Naming;

/// Whether a policy lets a service be used: it is allowed (all are, without a list) and not denied. Policies name a
/// service as its device does, or as a tool of that device's own endpoint.
#[must_use]
pub fn permits(allow: Option<&[String]>, deny: &[String], service: &str) -> bool {
    let tool = Naming::Alone.service(service);
    let named = |list: &[String]| list.iter().any(|name| name == service || *name == tool);
    !named(deny) && allow.is_none_or(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_a_service_are_heeded() {
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
