//! Versions as entity tags, and the precondition `If-Match` (RFC 9110, section 13): a client
//! changes only a version that it has read.

use http::{HeaderMap, header};
use switchboard_runtime::problem::{Problem, ProblemKind};

/// A version as an entity tag.
pub(crate) fn from_version(version: i64) -> String {
    format!("\"{version}\"")
}

/// Requires that `If-Match` has this version: the problem is 428 without the header, 412 otherwise.
pub(crate) fn require_version(headers: &HeaderMap, version: i64) -> Result<(), Problem> {
    require_etag(headers, &from_version(version))
}

/// Like [`require_version`], for entity tags with more than one version.
pub(crate) fn require_etag(headers: &HeaderMap, current: &str) -> Result<(), Problem> {
    let mut sent = headers.get_all(header::IF_MATCH).iter().peekable();
    if sent.peek().is_none() {
        return Err(Problem::new(
            ProblemKind::PreconditionRequired,
            "Send If-Match with the ETag of the version that you have read.",
        ));
    }
    let matches = sent
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim() == current || tag.trim() == "*");
    if matches {
        Ok(())
    } else {
        Err(precondition_failed())
    }
}

/// The problem of a resource that another request has changed.
pub(crate) fn precondition_failed() -> Problem {
    Problem::new(
        ProblemKind::PreconditionFailed,
        "The resource does not have the version in If-Match; read it again and repeat the change.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_requires_the_current_version() {
        fn check(sent: &[&str], expected: Option<u16>) {
            let mut headers = HeaderMap::new();
            for value in sent {
                headers.append(header::IF_MATCH, value.parse().unwrap());
            }
            let refused = require_version(&headers, 3).err();
            assert_eq!(
                refused.map(|problem| problem.status().as_u16()),
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
