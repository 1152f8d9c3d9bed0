//! Scopes as the database writes them: an array of their names.
//! Never: a name that nobody knows taken for a scope.

use switchboard_protocol::access::{Scope, Scopes};

pub(crate) fn write(scopes: Scopes) -> Vec<String> {
    scopes.iter().map(|scope| scope.to_string()).collect()
}

/// Names unknown to this version grant nothing: a newer version may have written them.
pub(crate) fn read(names: &[String]) -> Scopes {
    names
        .iter()
        .filter_map(|name| name.parse::<Scope>().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_round_trip_and_unknown_ones_grant_nothing() {
        let scopes: Scopes = [Scope::Admin, Scope::Call].into_iter().collect();
        let mut names = write(scopes);
        assert_eq!(read(&names), scopes);
        names.push("superuser".to_owned());
        assert_eq!(read(&names), scopes);
    }
}
