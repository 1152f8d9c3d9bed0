//! The problems that a caller without a good credential reads.
//! Never: anything of the credential itself.

use http::{StatusCode, header};
use switchboard_bus::TrustError;
use switchboard_protocol::access::{AccessError, Scope};
use switchboard_runtime::problem::Problem;

const BARE_CHALLENGE: &str = "Bearer";
const INVALID_TOKEN: &str = "Bearer error=\"invalid_token\"";

const MISSING: &str = "missing_credentials";
const UNKNOWN_KEY: &str = "unknown_api_key";
const UNVERIFIABLE: &str = "credentials_unverifiable";

/// The slugs of all refusals, but for that of a good credential.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    let own = [MISSING, UNKNOWN_KEY, UNVERIFIABLE];
    own.into_iter().chain(AccessError::CODES)
}

/// 401: no `Authorization` header, or one that is not a bearer's.
pub(crate) fn missing_credentials() -> Problem {
    unauthorized(
        MISSING,
        "Missing credentials",
        "Send `Authorization: Bearer` with an API key or an access token.",
        BARE_CHALLENGE,
    )
}

/// 401: neither of the two forms that a credential has.
pub(crate) fn malformed() -> Problem {
    unauthorized(
        AccessError::Malformed.code(),
        "Malformed credential",
        "This is neither an API key (`sb_` and 43 characters) nor an access token.",
        INVALID_TOKEN,
    )
}

/// 401: never made, or revoked; which of the two is nobody's business.
pub(crate) fn unknown_api_key() -> Problem {
    unauthorized(
        UNKNOWN_KEY,
        "Unknown API key",
        "The API key does not exist or was revoked.",
        INVALID_TOKEN,
    )
}

/// 401 with the reason, or 503 while this node cannot judge.
pub(crate) fn token(error: &TrustError) -> Problem {
    match error {
        TrustError::NoKeys => {
            unavailable("This node has not received the keys that tokens are signed with.")
        }
        TrustError::Access(error) => unauthorized(
            error.code(),
            "Access token refused",
            &sentence(&error.to_string()),
            INVALID_TOKEN,
        ),
    }
}

/// 503: nothing here can say whether the credential is good.
pub(crate) fn unavailable(detail: &str) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        UNVERIFIABLE,
        "Credentials cannot be verified",
        format!("{detail} Try again in a moment."),
    )
    .header(header::RETRY_AFTER, 1)
}

/// 403: a good credential that does not allow this.
pub(crate) fn insufficient_scope(scope: Scope) -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "insufficient_scope",
        "Insufficient scope",
        format!("This needs the scope `{scope}`, which the credential does not have."),
    )
    .with("scope", scope)
    .header(
        header::WWW_AUTHENTICATE,
        format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\""),
    )
}

fn unauthorized(slug: &'static str, title: &'static str, detail: &str, challenge: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, slug, title, detail)
        .header(header::WWW_AUTHENTICATE, challenge)
}

/// An error's words as the sentence that a problem's detail is.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_wrong_with_a_token_is_said() {
        fn check(error: impl Into<TrustError>, status: u16, slug: &str) {
            let problem = token(&error.into());
            assert_eq!((problem.status.as_u16(), problem.slug), (status, slug));
            assert!(kinds().any(|kind| kind == slug), "{slug} is counted");
            assert!(problem.detail.ends_with('.'), "{}", problem.detail);
            let challenged = problem
                .headers
                .iter()
                .any(|(name, _)| name == header::WWW_AUTHENTICATE);
            assert_eq!(challenged, status == 401);
        }
        check(TrustError::NoKeys, 503, "credentials_unverifiable");
        check(AccessError::Expired { at: 1 }, 401, "token_expired");
        check(AccessError::Revoked, 401, "token_revoked");
        check(AccessError::Malformed, 401, "token_malformed");
    }
}
