//! `/v1/usage`: the calls, conversations and stored resources of an organisation.

pub(crate) mod by;

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use switchboard_runtime::{
    problem::{Problem, Query},
    quota::{Quota, QuotaUse},
};
use switchboard_store::{CallUsage, ResourceCounts, TurnUsage};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Control,
    http::{auth::RequireRead, error::ControlError, response::JsonResponse},
};

/// The maximum period in hourly granularity.
const MAX_HOURLY_PERIOD: TimeDelta = TimeDelta::days(31);
/// The maximum period: usage is stored this long.
const MAX_PERIOD: TimeDelta = TimeDelta::days(400);

/// The length of the periods in which usage is summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "day")]
pub(crate) enum Granularity {
    /// Days in UTC.
    #[default]
    Day,
    /// Hours.
    Hour,
}

/// The requested period.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageParams {
    /// Start of the period (RFC 3339), inclusive; it counts whole hours. Default: 30 days before
    /// `to`, or 24 hours for hourly periods.
    #[param(value_type = Option<String>, format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: Option<DateTime<Utc>>,
    /// End of the period (RFC 3339), exclusive. Default: now.
    #[param(value_type = Option<String>, format = DateTime, example = "2026-02-01T00:00:00Z")]
    to: Option<DateTime<Utc>>,
    /// `day` (UTC, up to 400 days) or `hour` (up to 31 days). Default: `day`.
    #[serde(default)]
    #[param(inline, example = "hour")]
    granularity: Granularity,
}

/// The usage of an organisation.
#[derive(Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Start of the period (RFC 3339).
    #[schema(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: DateTime<Utc>,
    /// End of the period (RFC 3339).
    #[schema(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    to: DateTime<Utc>,
    /// The length of each period.
    granularity: Granularity,
    /// Calls and turns of each hour or day, oldest first. Hours and days without any are left out.
    #[schema(max_items = 744)]
    periods: Vec<Period>,
    /// The sum of all periods.
    total: Sums,
    /// The resources that the organisation has now.
    now: CurrentUsage,
    /// How much of each quota the organisation uses now.
    #[schema(max_items = 10)]
    quotas: Vec<QuotaStatus>,
}

/// Calls and turns of one hour or day.
#[derive(Serialize, ToSchema)]
#[schema(as = UsagePeriod)]
struct Period {
    /// Start of the hour or day (RFC 3339).
    #[schema(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    start: DateTime<Utc>,
    #[serde(flatten)]
    sums: Sums,
}

/// Completed calls, and answered turns of conversations.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = UsageSums)]
struct Sums {
    /// Number of calls.
    #[schema(minimum = 0, example = 12)]
    calls: i64,
    /// Total duration of the calls in milliseconds.
    #[schema(minimum = 0, example = 1834)]
    milliseconds: i64,
    /// Number of calls by outcome. Outcomes without calls are left out.
    #[schema(example = json!({"succeeded": 11, "offline": 1}))]
    by_outcome: BTreeMap<String, i64>,
    /// Number of turns.
    #[schema(minimum = 0, example = 3)]
    turns: i64,
    /// Tokens in the prompts of the turns.
    #[schema(minimum = 0, example = 2100)]
    prompt_tokens: i64,
    /// Tokens in the completions of the turns.
    #[schema(minimum = 0, example = 96)]
    completion_tokens: i64,
    /// Cost of the tokens, at the prices that the operator configured for each model;
    /// 0 without prices.
    #[schema(minimum = 0, example = 0.004)]
    cost: f64,
    /// Milliseconds of speech: utterances that were recognised, and answers that were spoken.
    #[schema(minimum = 0, example = 8400)]
    speech_milliseconds: i64,
}

/// How much of a quota an organisation uses.
#[derive(Serialize, ToSchema)]
struct QuotaStatus {
    /// The name of the quota.
    quota: Quota,
    /// The amount that the organisation has: a count, bytes, minutes or a cost.
    #[schema(value_type = f64, minimum = 0, example = 3)]
    used: Number,
    /// The amount that it may have; null is unlimited.
    #[schema(value_type = Option<f64>, minimum = 0, example = 100)]
    limit: Option<Number>,
}

/// The resources that the organisation has now, without public ones.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageNow)]
struct CurrentUsage {
    /// Devices that have ever connected.
    #[schema(minimum = 0, example = 3)]
    devices: i64,
    /// Devices that were connected since `from`.
    #[schema(minimum = 0, example = 3)]
    devices_seen: i64,
    /// Devices with registered services.
    #[schema(minimum = 0, example = 3)]
    registrations: i64,
    /// Templates.
    #[schema(minimum = 0, example = 3)]
    templates: i64,
    /// NPCs.
    #[schema(minimum = 0, example = 3)]
    npcs: i64,
    /// Memories, including expired ones that are not deleted yet.
    #[schema(minimum = 0, example = 3)]
    memories: i64,
    /// Pictures.
    #[schema(minimum = 0, example = 3)]
    pictures: i64,
    /// Bytes of pictures; identical pictures count once.
    #[schema(minimum = 0, example = 3)]
    picture_bytes: i64,
    /// Skills books in any state.
    #[schema(minimum = 0, example = 3)]
    skills_books: i64,
    /// Bytes of skills books as uploaded.
    #[schema(minimum = 0, example = 3)]
    skills_book_bytes: i64,
    /// Voices in any state.
    #[schema(minimum = 0, example = 3)]
    voices: i64,
    /// Bytes of voice samples.
    #[schema(minimum = 0, example = 3)]
    voice_bytes: i64,
}

impl UsageParams {
    /// Start and end of the period.
    fn period(&self, now: DateTime<Utc>) -> Result<(DateTime<Utc>, DateTime<Utc>), Problem> {
        let (default, max) = match self.granularity {
            Granularity::Day => (TimeDelta::days(30), MAX_PERIOD),
            Granularity::Hour => (TimeDelta::hours(24), MAX_HOURLY_PERIOD),
        };
        let to = self.to.unwrap_or(now);
        let from = self
            .from
            .or_else(|| to.checked_sub_signed(default))
            .unwrap_or(to);
        if from >= to {
            return Err(Problem::invalid_query("`from` must be before `to`."));
        }
        if to - from > max {
            let days = max.num_days();
            let reason = format!(
                "`from` and `to` must be at most {days} days apart with this `granularity`."
            );
            return Err(Problem::invalid_query(reason));
        }
        // PostgreSQL accepts other years than chrono.
        let is_supported = |at: DateTime<Utc>| (0..253_402_300_800).contains(&at.timestamp());
        if !is_supported(from) || !is_supported(to) {
            return Err(Problem::invalid_query(
                "`from` and `to` must be in the years 1970 to 9999.",
            ));
        }
        Ok((from, to))
    }
}

impl Sums {
    fn add_calls(&mut self, used: &CallUsage) {
        self.calls = self.calls.saturating_add(used.calls);
        self.milliseconds = self.milliseconds.saturating_add(used.milliseconds);
        let count = self.by_outcome.entry(used.outcome.clone()).or_default();
        *count = count.saturating_add(used.calls);
    }

    fn add_turns(&mut self, used: &TurnUsage) {
        self.turns = self.turns.saturating_add(used.turns);
        self.prompt_tokens = self.prompt_tokens.saturating_add(used.prompt_tokens);
        let completion_tokens = self.completion_tokens;
        self.completion_tokens = completion_tokens.saturating_add(used.completion_tokens);
        self.cost += used.cost;
        self.speech_milliseconds = self.speech_milliseconds.saturating_add(used.speech_ms);
    }
}

/// The sums of each hour or day, and of all of them.
fn aggregate(calls: &[CallUsage], turns: &[TurnUsage]) -> (Vec<Period>, Sums) {
    let (mut periods, mut total) = (BTreeMap::<_, Sums>::new(), Sums::default());
    for used in calls {
        total.add_calls(used);
        periods.entry(used.start).or_default().add_calls(used);
    }
    for used in turns {
        total.add_turns(used);
        periods.entry(used.start).or_default().add_turns(used);
    }
    let periods = periods.into_iter();
    let periods = periods.map(|(start, sums)| Period { start, sums });
    (periods.collect(), total)
}

impl From<QuotaUse> for QuotaStatus {
    fn from(QuotaUse { quota, used, limit }: QuotaUse) -> Self {
        Self {
            quota,
            used: quota.to_number(used),
            limit: limit.map(|limit| quota.to_number(limit)),
        }
    }
}

impl From<ResourceCounts> for CurrentUsage {
    fn from(holdings: ResourceCounts) -> Self {
        Self {
            devices: holdings.devices,
            devices_seen: holdings.devices_seen,
            registrations: holdings.registrations,
            templates: holdings.templates,
            npcs: holdings.npcs,
            memories: holdings.memories,
            pictures: holdings.pictures,
            picture_bytes: holdings.picture_bytes,
            skills_books: holdings.skills_books,
            skills_book_bytes: holdings.skills_book_bytes,
            voices: holdings.voices,
            voice_bytes: holdings.voice_bytes,
        }
    }
}

/// Gets the calls and conversations of the organisation in a period, its current resources, and its
/// quotas.
#[utoipa::path(
    get, path = "/v1/usage", tag = "Organisations", operation_id = "getUsage",
    params(UsageParams),
    responses((status = 200, body = Usage, description = "The usage")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    RequireRead(caller): RequireRead,
    Query(params): Query<UsageParams>,
) -> Result<JsonResponse, ControlError> {
    let (from, to) = params.period(Utc::now())?;
    let by_days = params.granularity == Granularity::Day;
    let store = &control.store;
    let calls = store.usage(caller.org, from, to, by_days).await?;
    let turns = store.turn_usage(caller.org, from, to, by_days).await?;
    let now = store.resource_counts(caller.org, from).await?.into();
    let quotas = control.authenticator.quotas().measure(caller.org).await?;
    let (periods, total) = aggregate(&calls, &turns);
    Ok(JsonResponse::ok(&Usage {
        from,
        to,
        granularity: params.granularity,
        periods,
        total,
        now,
        quotas: quotas.into_iter().map(QuotaStatus::from).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_out_of_range_is_rejected() {
        fn check(
            from: Option<&str>,
            to: Option<&str>,
            granularity: Granularity,
            days: Option<i64>,
        ) {
            let parse = |text: &str| text.parse().unwrap();
            let params = UsageParams {
                from: from.map(parse),
                to: to.map(parse),
                granularity,
            };
            let period = params.period("2026-03-01T00:00:00Z".parse().unwrap()).ok();
            assert_eq!(
                period.map(|(from, to)| (to - from).num_days()),
                days,
                "{params:?}"
            );
        }
        let (day, hour) = (Granularity::Day, Granularity::Hour);
        check(None, None, day, Some(30));
        check(None, None, hour, Some(1));
        check(Some("2026-02-01T00:00:00Z"), None, hour, Some(28));
        check(Some("2026-01-01T00:00:00Z"), None, hour, None);
        check(Some("2025-02-01T00:00:00Z"), None, day, Some(393));
        check(Some("2024-02-01T00:00:00Z"), None, day, None);
        check(Some("2026-03-01T00:00:00Z"), None, day, None);
        check(None, Some("1969-01-01T00:00:00Z"), day, None);
        check(
            Some("+10000-01-01T00:00:00Z"),
            Some("+10000-01-02T00:00:00Z"),
            day,
            None,
        );
    }
}
