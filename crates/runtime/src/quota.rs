//! Quotas: what an organisation has in all, in the whole installation.
//!
//! The operator sets a default for each quota and may override it for an organisation. Amounts are
//! integers; a cost is counted in millionths, speech in milliseconds.

use std::{collections::BTreeMap, fmt};

use axum::http::header;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;

use crate::{
    clock::unix_time,
    problem::{Problem, ProblemKind},
};

/// The largest limit: JSON numbers are exact up to here.
pub const MAX_LIMIT: u64 = 1_000_000_000_000_000;
/// An organisation is warned of a quota when it uses this percentage.
pub const WARNING_PERCENT: u64 = 80;
/// A warning is repeated only after the use was below this percentage.
const REARM_PERCENT: u64 = 70;
const DAY_S: u64 = 24 * 3_600;

/// What an organisation has a limited amount of.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
#[schema(as = QuotaName, example = "api_keys")]
pub enum Quota {
    /// Devices that are connected.
    DevicesConnected,
    /// Devices that have ever connected.
    DevicesKnown,
    /// Bytes of pictures, voice samples, skills books and recordings.
    ObjectBytes,
    /// Templates, NPCs, memories, pictures, skills books, voices and webhooks.
    Settings,
    /// API keys that are neither revoked nor expired.
    ApiKeys,
    /// Access tokens that have not expired, revoked ones included.
    LiveTokens,
    /// Bytes of stored results of calls, and of stored responses to requests with an idempotency key.
    StoredResultBytes,
    /// Turns of conversations since midnight UTC.
    TurnsPerDay,
    /// Cost of language models since midnight UTC, at the configured prices.
    ModelCostPerDay,
    /// Minutes of speech since midnight UTC: recognised utterances, and answers that were spoken.
    SpeechMinutesPerDay,
}

crate::label!(Quota {
    DevicesConnected => "devices_connected",
    DevicesKnown => "devices_known",
    ObjectBytes => "object_bytes",
    Settings => "settings",
    ApiKeys => "api_keys",
    LiveTokens => "live_tokens",
    StoredResultBytes => "stored_result_bytes",
    TurnsPerDay => "turns_per_day",
    ModelCostPerDay => "model_cost_per_day",
    SpeechMinutesPerDay => "speech_minutes_per_day",
});

impl Quota {
    /// All quotas.
    pub const ALL: [Self; 10] = [
        Self::DevicesConnected,
        Self::DevicesKnown,
        Self::ObjectBytes,
        Self::Settings,
        Self::ApiKeys,
        Self::LiveTokens,
        Self::StoredResultBytes,
        Self::TurnsPerDay,
        Self::ModelCostPerDay,
        Self::SpeechMinutesPerDay,
    ];

    /// Whether it begins at 0 each day.
    const fn is_daily(self) -> bool {
        matches!(
            self,
            Self::TurnsPerDay | Self::ModelCostPerDay | Self::SpeechMinutesPerDay
        )
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::DevicesConnected => "connected devices",
            Self::DevicesKnown => "known devices",
            Self::ObjectBytes => "bytes of pictures, voices and skills books",
            Self::Settings => {
                "templates, NPCs, memories, pictures, skills books, voices and webhooks"
            }
            Self::ApiKeys => "API keys",
            Self::LiveTokens => "access tokens that have not expired",
            Self::StoredResultBytes => "bytes of stored results and responses",
            Self::TurnsPerDay => "turns today",
            Self::ModelCostPerDay => "cost of language models today",
            Self::SpeechMinutesPerDay => "minutes of speech today",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::DevicesConnected => "Disconnect others.",
            Self::DevicesKnown => "Devices that are known can still connect.",
            Self::ObjectBytes | Self::Settings => "Delete what is not used.",
            Self::ApiKeys => "Revoke those that are not used.",
            Self::LiveTokens => "Issue tokens with a shorter lifetime, and wait until some expire.",
            Self::StoredResultBytes => "They are deleted after a day.",
            Self::TurnsPerDay | Self::ModelCostPerDay | Self::SpeechMinutesPerDay => {
                "Try again after midnight UTC."
            }
        }
    }

    /// The amount as users read it.
    #[must_use]
    pub fn to_number(self, amount: u64) -> Number {
        let unit = self.unit();
        let fraction = (!amount.is_multiple_of(unit)).then(|| amount as f64 / unit as f64);
        let fraction = fraction.and_then(Number::from_f64);
        fraction.unwrap_or_else(|| (amount / unit).into())
    }

    /// The amount that users write as this number.
    ///
    /// # Errors
    /// What would be right, if it is negative, too large, or a fraction of something countable.
    pub fn from_number(self, number: f64) -> Result<u64, String> {
        let amount = number * self.unit() as f64;
        let is_whole = self.unit() > 1 || amount.fract() == 0.0;
        if is_whole && (0.0..=MAX_LIMIT as f64).contains(&amount) {
            return Ok(amount.round() as u64);
        }
        let max = MAX_LIMIT / self.unit();
        let kind = match self.unit() {
            1 => "an integer",
            _ => "a number",
        };
        Err(format!("must be {kind} from 0 to {max}; 0 is unlimited"))
    }

    /// How many of the counted amounts are one for users.
    #[must_use]
    pub const fn unit(self) -> u64 {
        match self {
            Self::ModelCostPerDay => MILLION,
            Self::SpeechMinutesPerDay => MINUTE_MS,
            _ => 1,
        }
    }

    /// A cost as an amount.
    #[must_use]
    pub fn cost(cost: f64) -> u64 {
        (cost * MILLION as f64).round() as u64
    }
}

const MILLION: u64 = 1_000_000;
const MINUTE_MS: u64 = 60_000;

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Limits of some quotas; 0 is unlimited. Names of a newer version are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, u64>")]
pub struct Limits(pub BTreeMap<Quota, u64>);

impl From<BTreeMap<String, u64>> for Limits {
    fn from(named: BTreeMap<String, u64>) -> Self {
        let find = |quota: Quota| Some((quota, *named.get(quota.as_str())?));
        Self(Quota::ALL.into_iter().filter_map(find).collect())
    }
}

/// How much of a quota an organisation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaUse {
    /// The quota.
    pub quota: Quota,
    /// The amount that it has.
    pub used: u64,
    /// The amount that it may have; `None` is unlimited.
    pub limit: Option<u64>,
}

impl QuotaUse {
    /// Whether the organisation is warned of this use, or stays warned.
    #[must_use]
    pub fn is_warned(&self, was_warned: bool) -> bool {
        let percent = if was_warned {
            REARM_PERCENT
        } else {
            WARNING_PERCENT
        };
        self.limit.is_some_and(|limit| {
            u128::from(self.used) * 100 >= u128::from(limit) * u128::from(percent)
        })
    }
}

/// An organisation has as much as its quota allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the organisation has {used} {}; its quota `{quota}` is {limit}", .quota.noun())]
pub struct QuotaExceeded {
    /// The quota.
    pub quota: Quota,
    /// The amount that the organisation has.
    pub used: u64,
    /// The amount that it may have.
    pub limit: u64,
}

impl From<QuotaExceeded> for Problem {
    /// 409; 429 with `Retry-After` until midnight UTC for a quota of a day.
    fn from(QuotaExceeded { quota, used, limit }: QuotaExceeded) -> Self {
        let (used, limit) = (quota.to_number(used), quota.to_number(limit));
        let noun = quota.noun();
        let kind = match quota.is_daily() {
            true => ProblemKind::DailyQuotaExceeded,
            false => ProblemKind::QuotaExceeded,
        };
        let remedy = quota.remedy();
        let detail = format!(
            "The organisation is at its quota of {limit} {noun}. {remedy} The operator of this \
             installation can raise the quota `{quota}`."
        );
        let problem = Self::new(kind, detail)
            .with("quota", quota)
            .with("limit", limit)
            .with("used", used);
        match quota.is_daily() {
            true => problem.header(header::RETRY_AFTER, seconds_to_midnight()),
            false => problem,
        }
    }
}

fn seconds_to_midnight() -> u64 {
    DAY_S - unix_time().as_secs() % DAY_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_read_and_written_as_a_number() {
        fn check(quota: Quota, number: f64, expected: Option<(u64, &str)>) {
            let amount = quota.from_number(number).ok();
            assert_eq!(amount, expected.map(|(amount, _)| amount), "{number}");
            let written = amount.map(|amount| quota.to_number(amount).to_string());
            assert_eq!(written.as_deref(), expected.map(|(_, text)| text));
        }
        let (keys, cost) = (Quota::ApiKeys, Quota::ModelCostPerDay);
        let speech = Quota::SpeechMinutesPerDay;
        check(keys, 0.0, Some((0, "0")));
        check(keys, 100.0, Some((100, "100")));
        check(keys, 0.5, None);
        check(keys, -1.0, None);
        check(keys, 1e15, Some((MAX_LIMIT, "1000000000000000")));
        check(keys, 1.1e15, None);
        check(keys, f64::NAN, None);
        check(cost, 0.25, Some((250_000, "0.25")));
        check(cost, 12.0, Some((12_000_000, "12")));
        check(cost, 1e10, None);
        check(speech, 10_000.0, Some((600_000_000, "10000")));
        check(speech, 0.25, Some((15_000, "0.25")));
        check(speech, 1.7e10, None);
    }

    #[test]
    fn warning_is_repeated_below_70_percent() {
        fn check(used: u64, limit: Option<u64>, was_warned: bool, expected: bool) {
            let use_of_it = QuotaUse {
                quota: Quota::Settings,
                used,
                limit,
            };
            assert_eq!(use_of_it.is_warned(was_warned), expected, "{use_of_it:?}");
        }
        check(79, Some(100), false, false);
        check(80, Some(100), false, true);
        check(70, Some(100), true, true);
        check(69, Some(100), true, false);
        check(u64::MAX, Some(u64::MAX), false, true);
        check(u64::MAX, None, true, false);
    }

    #[test]
    fn quota_of_a_newer_version_is_ignored() {
        let limits: Limits = serde_json::from_str(r#"{"api_keys": 3, "moons": 1}"#).unwrap();
        assert_eq!(limits.0, BTreeMap::from([(Quota::ApiKeys, 3)]));
        assert_eq!(serde_json::to_string(&limits).unwrap(), r#"{"api_keys":3}"#);
    }

    #[test]
    fn daily_quota_names_the_end_of_the_day() {
        let exceeded = |quota| QuotaExceeded {
            quota,
            used: 5,
            limit: 5,
        };
        let keys = Problem::from(exceeded(Quota::ApiKeys));
        assert_eq!((keys.status().as_u16(), keys.headers.len()), (409, 0));
        let turns = Problem::from(exceeded(Quota::TurnsPerDay));
        assert_eq!(turns.status().as_u16(), 429);
        let wait_s: u64 = turns.headers[0].1.to_str().unwrap().parse().unwrap();
        assert!((1..=DAY_S).contains(&wait_s), "{wait_s}");
    }
}
