//! Versions as entity tags, and what a writer must have seen (RFC 9110, section 13).
//! Never: a change by somebody who has not seen what they change.

use http::{HeaderMap, StatusCode, header};
use switchboard_runtime::problem::Problem;

/// A version as an entity tag.
pub(crate) fn etag(version: i64) -> String {
    format!("\"{version}\"")
}

/// Lets those on who have seen this version: 428 without If-Match, 412 when it names others.
pub(crate) fn require(headers: &HeaderMap, version: i64) -> Result<(), Problem> {
    require_tag(headers, &etag(version))
}

/// As [`require`], for what has more than one version in its entity tag.
pub(crate) fn require_tag(headers: &HeaderMap, current: &str) -> Result<(), Problem> {
    let mut sent = headers.get_all(header::IF_MATCH).iter().peekable();
    if sent.peek().is_none() {
        return Err(Problem::new(
            StatusCode::PRECONDITION_REQUIRED,
            "precondition_required",
            "Precondition required",
            "Send If-Match with the ETag of the version that you have seen.",
        ));
    }
    let seen = sent
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim() == current || tag.trim() == "*");
    if seen { Ok(()) } else { Err(stale()) }
}

/// Somebody else was faster.
pub(crate) fn stale() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "precondition_failed",
        "Precondition failed",
        "It is not in the version that If-Match names; read it again and decide anew.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_have_seen_it_go_on() {
        fn check(sent: &[&str], expected: Option<u16>) {
            let mut headers = HeaderMap::new();
            for value in sent {
                headers.append(header::IF_MATCH, value.parse().unwrap());
            }
            let refused = require(&headers, 3).err();
            assert_eq!(
                refused.map(|problem| problem.status.as_u16()),
                expected,
                "{sent:?}"
            );
        }
        check(&["\"3\""], None);
        check(&["*"], None);
        check(&["\"1\", \"3\""], None);
        check(&["\"1\"", "\"3\""], None);
        check(&[], Some(428));
        check(&[""], Some(412));
        check(&["\"2\""], Some(412));
        check(&["3"], Some(412));
        check(&["W/\"3\""], Some(412));
    }
}
