//! The mode of a call: whether its caller waits for it, and how long it may be queued.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use switchboard_runtime::problem::Problem;
use switchboard_store::Expiry;
use utoipa::ToSchema;

use super::request::invalid;

/// How long a call is queued if its caller sets no limit.
const DEFAULT_QUEUE_TTL: Duration = Duration::from_secs(24 * 3_600);
/// How long a call may be queued at most.
pub(crate) const MAX_QUEUE_TTL: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The mode of a call, with the expiry of a queued one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Sync,
    Async,
    Queued(Expiry),
}

/// Whether the caller waits for the call, and whether the call waits for its device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = CallMode, example = "sync")]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModeName {
    /// The call is sent at once, and the response is its outcome.
    #[default]
    Sync,
    /// The call is sent at once, and its outcome is stored.
    Async,
    /// The call is sent when its device is connected, and its outcome is stored.
    Queued,
}

impl Mode {
    /// Checks the three fields against each other. An error names the invalid field.
    pub(super) fn new(
        name: ModeName,
        expires_at: Option<&str>,
        expires_in_ms: Option<u64>,
    ) -> Result<Self, Problem> {
        let mode = match name {
            ModeName::Sync => Self::Sync,
            ModeName::Async => Self::Async,
            ModeName::Queued => {
                return Ok(Self::Queued(expiry(expires_at, expires_in_ms, Utc::now())?));
            }
        };
        let given = [
            ("expires_at", expires_at.is_some()),
            ("expires_in_ms", expires_in_ms.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => {
                let detail = format!("`{field}` is for queued calls only.");
                Err(invalid(field, detail))
            }
            None => Ok(mode),
        }
    }
}

fn expiry(at: Option<&str>, in_ms: Option<u64>, now: DateTime<Utc>) -> Result<Expiry, Problem> {
    match (at, in_ms) {
        (None, None) => Ok(Expiry::In(DEFAULT_QUEUE_TTL)),
        (Some(_), Some(_)) => {
            let detail = "`expires_at` and `expires_in_ms` exclude each other; send one of them.";
            Err(invalid("expires_in_ms", detail.to_owned()))
        }
        (None, Some(in_ms)) => {
            let wait = Duration::from_millis(in_ms);
            if wait.is_zero() || wait > MAX_QUEUE_TTL {
                let max = MAX_QUEUE_TTL.as_millis();
                let detail = format!("`expires_in_ms` must be from 1 to {max}, 30 days.");
                return Err(invalid("expires_in_ms", detail));
            }
            Ok(Expiry::In(wait))
        }
        (Some(text), None) => {
            let malformed = |_| {
                let detail = "`expires_at` must be an RFC 3339 time: `2030-01-31T12:00:00Z`.";
                invalid("expires_at", detail.to_owned())
            };
            let at = DateTime::parse_from_rfc3339(text).map_err(malformed)?;
            let at = at.with_timezone(&Utc);
            let wait = (at - now).to_std().unwrap_or_default();
            if wait.is_zero() || wait > MAX_QUEUE_TTL {
                let detail = "`expires_at` must be in the future and at most 30 days from now.";
                return Err(invalid("expires_at", detail.to_owned()));
            }
            Ok(Expiry::At(at))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_within_its_limits() {
        fn check(at: Option<&str>, in_ms: Option<u64>, expected: Result<Expiry, &str>) {
            let now = DateTime::parse_from_rfc3339("2030-01-01T00:00:00Z").unwrap();
            match (expiry(at, in_ms, now.to_utc()), expected) {
                (Ok(seen), Ok(expected)) => assert_eq!(seen, expected, "{at:?} {in_ms:?}"),
                (Err(problem), Err(member)) => {
                    let pointer = problem.pointer().unwrap();
                    assert_eq!(pointer, format!("/{member}"), "{at:?} {in_ms:?}")
                }
                (seen, _) => panic!("{at:?} {in_ms:?}: {seen:?}"),
            }
        }
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().to_utc();
        check(None, None, Ok(Expiry::In(DEFAULT_QUEUE_TTL)));
        check(None, Some(1), Ok(Expiry::In(Duration::from_millis(1))));
        check(None, Some(2_592_000_000), Ok(Expiry::In(MAX_QUEUE_TTL)));
        check(None, Some(0), Err("expires_in_ms"));
        check(None, Some(2_592_000_001), Err("expires_in_ms"));
        check(None, Some(u64::MAX), Err("expires_in_ms"));
        let next = "2030-01-01T09:00:01+08:00";
        check(Some(next), None, Ok(Expiry::At(at("2030-01-01T01:00:01Z"))));
        check(Some("2030-01-01T00:00:00Z"), None, Err("expires_at"));
        check(Some("2030-01-31T00:00:01Z"), None, Err("expires_at"));
        check(Some("1999-01-01T00:00:00Z"), None, Err("expires_at"));
        check(Some("+262142-12-31T23:59:59Z"), None, Err("expires_at"));
        check(Some("tomorrow"), None, Err("expires_at"));
        check(Some(next), Some(1), Err("expires_in_ms"));
    }
}
