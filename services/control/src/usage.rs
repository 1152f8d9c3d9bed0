//! `/v1/usage`: what an organisation's calls and conversations come to, and what it has.
//! Never: figures of another organisation, or of what is public.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use switchboard_runtime::problem::{Problem, Query};
use switchboard_store::{Holdings, UsedCalls, UsedTurns};
use utoipa::{IntoParams, ToSchema};

use crate::{Control, access::Member, error::ControlError};

/// The longest time that is shown by hours.
const LONGEST_BY_HOUR: TimeDelta = TimeDelta::days(31);
/// The longest time that is shown at all: as long as usage is kept.
const LONGEST: TimeDelta = TimeDelta::days(400);

/// By what calls and turns are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "day")]
pub(crate) enum Granularity {
    /// Days of UTC.
    #[default]
    Day,
    /// Hours.
    Hour,
}

/// Which time is asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Calls and turns of hours that begin at this time or later; 30 days before `to`, or 24 hours by hours, when not given.
    #[param(value_type = Option<String>, format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: Option<DateTime<Utc>>,
    /// Calls and turns of hours that begin before this time; now when not given.
    #[param(value_type = Option<String>, format = DateTime, example = "2026-02-01T00:00:00Z")]
    to: Option<DateTime<Utc>>,
    /// `day` (of UTC; when not given), at most 400 of them, or `hour`, at most 31 days of them.
    #[serde(default)]
    #[param(inline, example = "hour")]
    granularity: Granularity,
}

/// What an organisation uses.
#[derive(Serialize, ToSchema)]
pub(crate) struct Usage {
    /// The beginning that was asked for.
    #[schema(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: DateTime<Utc>,
    /// The end that was asked for.
    #[schema(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    to: DateTime<Utc>,
    /// By what calls and turns are added up.
    granularity: Granularity,
    /// Calls and turns of each hour or day that has some, in the order of time.
    #[schema(max_items = 744)]
    periods: Vec<Period>,
    /// All of them together.
    total: Sums,
    /// What the organisation has at the moment.
    now: Now,
}

/// Calls and turns of an hour or a day.
#[derive(Serialize, ToSchema)]
#[schema(as = UsagePeriod)]
struct Period {
    /// When it begins.
    #[schema(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    start: DateTime<Utc>,
    #[serde(flatten)]
    sums: Sums,
}

/// Calls that have ended, and turns of conversations that were answered.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = UsageSums)]
struct Sums {
    /// How many calls.
    #[schema(minimum = 0, example = 12)]
    calls: i64,
    /// How many milliseconds they took together.
    #[schema(minimum = 0, example = 1834)]
    milliseconds: i64,
    /// How many ended in which way; ways in which none did are left out.
    #[schema(example = json!({"succeeded": 11, "offline": 1}))]
    by_outcome: BTreeMap<String, i64>,
    /// How many turns.
    #[schema(minimum = 0, example = 3)]
    turns: i64,
    /// How many tokens models read for them.
    #[schema(minimum = 0, example = 2100)]
    prompt_tokens: i64,
    /// How many tokens models wrote for them.
    #[schema(minimum = 0, example = 96)]
    completion_tokens: i64,
    /// What models cost for them: their tokens, at the prices that the operator set for each model; 0 where none are set.
    #[schema(minimum = 0, example = 0.004)]
    cost: f64,
}

/// What the organisation has at the moment, without what is public.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageNow)]
struct Now {
    /// Devices that were ever there.
    #[schema(minimum = 0, example = 3)]
    devices: i64,
    /// Those of them that have been there since `from`.
    #[schema(minimum = 0, example = 3)]
    devices_seen: i64,
    /// Devices that have said what they can do.
    #[schema(minimum = 0, example = 3)]
    registrations: i64,
    /// Templates.
    #[schema(minimum = 0, example = 3)]
    templates: i64,
    /// NPCs.
    #[schema(minimum = 0, example = 3)]
    npcs: i64,
    /// Memories, also those that have ended and are not removed yet.
    #[schema(minimum = 0, example = 3)]
    memories: i64,
    /// Pictures.
    #[schema(minimum = 0, example = 3)]
    pictures: i64,
    /// Bytes of pictures; the same ones count once.
    #[schema(minimum = 0, example = 3)]
    picture_bytes: i64,
    /// Skills books, in whatever state.
    #[schema(minimum = 0, example = 3)]
    skills_books: i64,
    /// Bytes of skills books as they were sent.
    #[schema(minimum = 0, example = 3)]
    skills_book_bytes: i64,
    /// Voices, in whatever state.
    #[schema(minimum = 0, example = 3)]
    voices: i64,
    /// Bytes of the samples of voices.
    #[schema(minimum = 0, example = 3)]
    voice_bytes: i64,
}

impl Asked {
    /// The time that is meant.
    fn period(&self, now: DateTime<Utc>) -> Result<(DateTime<Utc>, DateTime<Utc>), Problem> {
        let (usual, longest) = match self.granularity {
            Granularity::Day => (TimeDelta::days(30), LONGEST),
            Granularity::Hour => (TimeDelta::hours(24), LONGEST_BY_HOUR),
        };
        let to = self.to.unwrap_or(now);
        let from = self
            .from
            .or_else(|| to.checked_sub_signed(usual))
            .unwrap_or(to);
        if from >= to {
            return Err(Problem::invalid_query("`from` must be before `to`."));
        }
        if to - from > longest {
            let days = longest.num_days();
            let reason =
                format!("`from` and `to` are at most {days} days apart with this `granularity`.");
            return Err(Problem::invalid_query(reason));
        }
        // The database's own years end elsewhere.
        let known = |at: DateTime<Utc>| (0..253_402_300_800).contains(&at.timestamp());
        if !known(from) || !known(to) {
            return Err(Problem::invalid_query(
                "`from` and `to` must be in the years 1970 to 9999.",
            ));
        }
        Ok((from, to))
    }
}

impl Sums {
    fn add_calls(&mut self, used: &UsedCalls) {
        self.calls = self.calls.saturating_add(used.calls);
        self.milliseconds = self.milliseconds.saturating_add(used.milliseconds);
        let known = self.by_outcome.entry(used.outcome.clone()).or_default();
        *known = known.saturating_add(used.calls);
    }

    fn add_turns(&mut self, used: &UsedTurns) {
        self.turns = self.turns.saturating_add(used.turns);
        self.prompt_tokens = self.prompt_tokens.saturating_add(used.prompt_tokens);
        let completion_tokens = self.completion_tokens;
        self.completion_tokens = completion_tokens.saturating_add(used.completion_tokens);
        self.cost += used.cost;
    }
}

/// What each hour or day comes to, and all of them together.
fn added_up(calls: &[UsedCalls], turns: &[UsedTurns]) -> (Vec<Period>, Sums) {
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

impl From<Holdings> for Now {
    fn from(has: Holdings) -> Self {
        Self {
            devices: has.devices,
            devices_seen: has.devices_seen,
            registrations: has.registrations,
            templates: has.templates,
            npcs: has.npcs,
            memories: has.memories,
            pictures: has.pictures,
            picture_bytes: has.picture_bytes,
            skills_books: has.skills_books,
            skills_book_bytes: has.skills_book_bytes,
            voices: has.voices,
            voice_bytes: has.voice_bytes,
        }
    }
}

/// Shows what the organisation's calls and conversations come to in some time, and what it has now.
#[utoipa::path(
    get, path = "/v1/usage", tag = "Organisations", operation_id = "getUsage",
    params(Asked),
    responses((status = 200, body = Usage, description = "What it uses")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Member(reader): Member,
    Query(asked): Query<Asked>,
) -> Result<axum::Json<Usage>, ControlError> {
    let (from, to) = asked.period(Utc::now())?;
    let by_days = asked.granularity == Granularity::Day;
    let store = &control.store;
    let calls = store.usage(reader.org, from, to, by_days).await?;
    let turns = store.turn_usage(reader.org, from, to, by_days).await?;
    let now = store.holdings(reader.org, from).await?.into();
    let (periods, total) = added_up(&calls, &turns);
    Ok(axum::Json(Usage {
        from,
        to,
        granularity: asked.granularity,
        periods,
        total,
        now,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_cannot_be_shown_is_refused() {
        fn check(
            from: Option<&str>,
            to: Option<&str>,
            granularity: Granularity,
            days: Option<i64>,
        ) {
            let read = |text: &str| text.parse().unwrap();
            let asked = Asked {
                from: from.map(read),
                to: to.map(read),
                granularity,
            };
            let period = asked.period("2026-03-01T00:00:00Z".parse().unwrap()).ok();
            assert_eq!(
                period.map(|(from, to)| (to - from).num_days()),
                days,
                "{asked:?}"
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
