//! Scopes as the database stores them: an array of their names.
//! Invariant: an unknown name grants nothing.

use switchboard_protocol::token::{Scope, Scopes};

pub(crate) fn encode(scopes: Scopes) -> Vec<String> {
    scopes.iter().map(|scope| scope.to_string()).collect()
}

/// A newer version may have written names that are unknown to this one.
pub(crate) fn decode(names: &[String]) -> Scopes {
    names
        .iter()
        .filter_map(|name| name.parse::<Scope>().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_round_trip_without_unknown_names() {
        let scopes: Scopes = [Scope::Admin, Scope::Call].into_iter().collect();
        let mut names = encode(scopes);
        assert_eq!(decode(&names), scopes);
        names.push("superuser".to_owned());
        assert_eq!(decode(&names), scopes);
    }
}
