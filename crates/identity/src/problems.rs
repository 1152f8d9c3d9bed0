//! Problem documents for failed authentication.
//! Invariant: they contain nothing of the credential.

use http::header;
use switchboard_bus::TokenError;
use switchboard_protocol::token::{AccessError, Outside, Scope};
use switchboard_runtime::problem::{Problem, ProblemKind};

const BARE_CHALLENGE: &str = "Bearer";
const INVALID_TOKEN: &str = "Bearer error=\"invalid_token\"";

/// Kinds of problems for requests without a valid credential.
const KINDS: [ProblemKind; 19] = [
    ProblemKind::MissingCredentials,
    ProblemKind::UnknownApiKey,
    ProblemKind::CredentialsUnverifiable,
    ProblemKind::TokenMalformed,
    ProblemKind::TokenUnknownKey,
    ProblemKind::TokenBadSignature,
    ProblemKind::TokenExpired,
    ProblemKind::TokenWrongAudience,
    ProblemKind::TokenWrongIssuer,
    ProblemKind::TokenRevoked,
    ProblemKind::TokenBadKey,
    ProblemKind::TokenUnknownScope,
    ProblemKind::TokenBadSubject,
    ProblemKind::TokenLifetimeTooLong,
    ProblemKind::TokenIssuedInFuture,
    ProblemKind::OrgSuspended,
    ProblemKind::SessionExpired,
    ProblemKind::CrossSiteRequest,
    ProblemKind::OrganisationRequired,
];

/// Returns the slugs of all problems for requests without a valid credential.
pub(crate) fn slugs() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(ProblemKind::slug)
}

/// 401: no `Authorization: Bearer` header.
pub(crate) fn missing_credentials() -> Problem {
    unauthorized(
        ProblemKind::MissingCredentials,
        "Send `Authorization: Bearer` with an API key or an access token.",
        BARE_CHALLENGE,
    )
}

/// 401: neither of the two forms of credentials.
pub(crate) fn malformed() -> Problem {
    unauthorized(
        ProblemKind::MalformedCredential,
        "This is neither an API key (`sb_` and 43 characters) nor an access token.",
        INVALID_TOKEN,
    )
}

/// 401: unknown or revoked, which the response does not reveal.
pub(crate) fn unknown_api_key() -> Problem {
    unauthorized(
        ProblemKind::UnknownApiKey,
        "The API key does not exist, has expired, or was revoked.",
        INVALID_TOKEN,
    )
}

/// 401 with the reason, or 503 while this node cannot verify tokens.
pub(crate) fn token(error: &TokenError) -> Problem {
    match error {
        TokenError::NoKeys => {
            unavailable("This node has not received the keys that tokens are signed with.")
        }
        TokenError::Access(AccessError::OrgSuspended) => org_suspended(),
        TokenError::Access(error) => unauthorized(
            token_kind(error),
            &sentence(&error.to_string()),
            INVALID_TOKEN,
        ),
    }
}

/// 503: this node cannot verify the credential.
pub(crate) fn unavailable(detail: &str) -> Problem {
    Problem::new(
        ProblemKind::CredentialsUnverifiable,
        format!("{detail} Try again in a moment."),
    )
    .header(header::RETRY_AFTER, 1)
}

/// 403: the credential is valid but lacks the scope.
pub(crate) fn insufficient_scope(scope: Scope) -> Problem {
    Problem::new(
        ProblemKind::InsufficientScope,
        format!("This needs the scope `{scope}`, which the credential does not have."),
    )
    .with("scope", scope)
    .header(
        header::WWW_AUTHENTICATE,
        format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\""),
    )
}

/// 403: the credential is valid, and its organisation is suspended.
pub(crate) fn org_suspended() -> Problem {
    Problem::new(
        ProblemKind::OrgSuspended,
        "The organisation of this credential is suspended; the operator of this installation can lift the suspension.",
    )
}

/// 403: the credential is valid, and restricted to something else.
#[must_use]
pub fn outside_key(outside: &Outside<'_>) -> Problem {
    let problem = Problem::new(
        ProblemKind::OutsideKey,
        format!("This credential is restricted to {outside}. Use a credential that reaches more."),
    )
    .with("restriction", outside.member());
    match outside {
        Outside::DevicePrefix(prefix) => problem.with("value", prefix),
        Outside::DeviceLabel(label) => problem.with("value", label),
        Outside::Services(patterns) => problem.with("value", patterns),
    }
}

/// 401: a cookie that is too old, or that this installation has not sealed.
pub(crate) fn session_expired() -> Problem {
    unauthorized(
        ProblemKind::SessionExpired,
        "The session has ended: it ends 12 hours after its sign-in, and after an hour without use. Sign in again.",
        INVALID_TOKEN,
    )
}

/// 403: a cookie that was not sent by the console.
pub(crate) fn cross_site() -> Problem {
    Problem::new(
        ProblemKind::CrossSiteRequest,
        "A session is for pages of this installation: with `Sec-Fetch-Site: same-origin` or its own \
         `Origin`, and `X-Switchboard-Console: 1`. Programs send `Authorization: Bearer`.",
    )
}

/// 403: a session of the operator, on a route of an organisation.
pub(crate) fn organisation_required() -> Problem {
    Problem::new(
        ProblemKind::OrganisationRequired,
        "The operator belongs to no organisation. Sign in with an API key of the organisation.",
    )
}

fn unauthorized(kind: ProblemKind, detail: &str, challenge: &str) -> Problem {
    Problem::new(kind, detail).header(header::WWW_AUTHENTICATE, challenge)
}

const fn token_kind(error: &AccessError) -> ProblemKind {
    match error {
        AccessError::Malformed => ProblemKind::TokenMalformed,
        AccessError::UnknownKey => ProblemKind::TokenUnknownKey,
        AccessError::BadSignature => ProblemKind::TokenBadSignature,
        AccessError::Expired { .. } => ProblemKind::TokenExpired,
        AccessError::WrongAudience => ProblemKind::TokenWrongAudience,
        AccessError::WrongIssuer => ProblemKind::TokenWrongIssuer,
        AccessError::Revoked => ProblemKind::TokenRevoked,
        AccessError::BadKey => ProblemKind::TokenBadKey,
        AccessError::UnknownScope => ProblemKind::TokenUnknownScope,
        AccessError::BadSubject => ProblemKind::TokenBadSubject,
        AccessError::LifetimeTooLong => ProblemKind::TokenLifetimeTooLong,
        AccessError::IssuedInFuture { .. } => ProblemKind::TokenIssuedInFuture,
        AccessError::OrgSuspended => ProblemKind::OrgSuspended,
    }
}

/// Turns an error message into a sentence, as a problem's detail.
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
    fn token_errors_map_to_problems() {
        fn check(error: impl Into<TokenError>, status: u16, slug: &str) {
            let problem = token(&error.into());
            assert_eq!((problem.status().as_u16(), problem.slug()), (status, slug));
            assert!(slugs().any(|known| known == slug), "{slug} has a counter");
            assert!(problem.detail.ends_with('.'), "{}", problem.detail);
            let challenged = problem
                .headers
                .iter()
                .any(|(name, _)| name == header::WWW_AUTHENTICATE);
            assert_eq!(challenged, status == 401);
        }
        check(TokenError::NoKeys, 503, "credentials_unverifiable");
        check(AccessError::Expired { at: 1 }, 401, "token_expired");
        check(AccessError::Revoked, 401, "token_revoked");
        check(AccessError::Malformed, 401, "token_malformed");
        check(AccessError::OrgSuspended, 403, "org_suspended");
        check(AccessError::LifetimeTooLong, 401, "token_lifetime_too_long");
        check(
            AccessError::IssuedInFuture { at: 1 },
            401,
            "token_issued_in_future",
        );
    }
}
