//! `/v1/usage/by`: the usage of an organisation by device, service or NPC.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_runtime::{
    paging::{self, Limit},
    problem::Query,
};
use switchboard_store::{UsageBy, UsageDimension};
use utoipa::{IntoParams, ToSchema};

use super::{Granularity, UsageParams};
use crate::{
    Control,
    http::{auth::RequireRead, error::ControlError, response::JsonResponse},
};

/// What usage is summed up by.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "device")]
pub(crate) enum Dimension {
    Device,
    Service,
    Npc,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ByParams {
    /// Sums for each device, service or NPC.
    #[param(inline, example = "device")]
    dimension: Dimension,
    /// Start of the period (RFC 3339); it counts the UTC days that begin in it. Default: 30 days before
    /// `to`.
    #[param(value_type = Option<String>, format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: Option<DateTime<Utc>>,
    /// End of the period (RFC 3339), exclusive; at most 400 days after `from`. Default: now.
    #[param(value_type = Option<String>, format = DateTime, example = "2026-02-01T00:00:00Z")]
    to: Option<DateTime<Utc>>,
    /// Maximum number of rows.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
}

/// The usage of an organisation by one dimension.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageBy)]
pub(crate) struct UsageByView {
    /// Start of the period (RFC 3339).
    #[schema(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: DateTime<Utc>,
    /// End of the period (RFC 3339).
    #[schema(value_type = String, format = DateTime, example = "2026-02-01T00:00:00Z")]
    to: DateTime<Utc>,
    /// Those with the most calls (NPCs: turns), most first.
    #[schema(max_items = 200)]
    rows: Vec<UsageRow>,
    /// All others together, with an empty `key`; null if there are none. Of each day, the first 500
    /// devices, services and NPCs have sums of their own.
    other: Option<UsageRow>,
}

/// The usage of one device, service or NPC.
#[derive(Debug, Default, Serialize, ToSchema)]
struct UsageRow {
    /// The id of the device or NPC, or the name of the service.
    #[schema(max_length = 256, example = "toy-1")]
    key: String,
    /// Number of calls: of a device or a service from any caller, of an NPC those that it made.
    #[schema(minimum = 0, example = 12)]
    calls: i64,
    /// Number of calls by outcome. Outcomes without calls are left out.
    #[schema(example = json!({"succeeded": 11, "offline": 1}))]
    by_outcome: BTreeMap<String, i64>,
    /// Total duration of the calls in milliseconds.
    #[schema(minimum = 0, example = 1834)]
    milliseconds: i64,
    /// Number of turns; of a device those of its user.
    #[schema(minimum = 0, example = 3)]
    turns: i64,
    /// Tokens in the prompts of the turns.
    #[schema(minimum = 0, example = 2100)]
    prompt_tokens: i64,
    /// Tokens in the completions of the turns.
    #[schema(minimum = 0, example = 96)]
    completion_tokens: i64,
    /// Cost of the tokens, at the prices that the operator configured for each model.
    #[schema(minimum = 0, example = 0.004)]
    cost: f64,
}

impl UsageRow {
    fn add(&mut self, used: UsageBy) {
        self.calls = self.calls.saturating_add(used.calls);
        self.milliseconds = self.milliseconds.saturating_add(used.milliseconds);
        self.turns = self.turns.saturating_add(used.turns);
        self.prompt_tokens = self.prompt_tokens.saturating_add(used.prompt_tokens);
        let completion_tokens = self.completion_tokens;
        self.completion_tokens = completion_tokens.saturating_add(used.completion_tokens);
        self.cost += used.cost;
        if used.calls > 0 {
            self.by_outcome.insert(used.outcome, used.calls);
        }
    }
}

/// One row for each key, in the order of the sums, and that of all others.
fn rows(sums: Vec<UsageBy>) -> (Vec<UsageRow>, Option<UsageRow>) {
    let (mut rows, mut other) = (Vec::<UsageRow>::new(), None::<UsageRow>);
    for mut used in sums {
        match used.key.take() {
            None => other.get_or_insert_default().add(used),
            Some(key) => {
                if rows.last().is_none_or(|last| last.key != key) {
                    rows.push(UsageRow {
                        key,
                        ..UsageRow::default()
                    });
                }
                if let Some(last) = rows.last_mut() {
                    last.add(used);
                }
            }
        }
    }
    (rows, other)
}

/// Gets the calls and turns of the organisation by device, service or NPC.
#[utoipa::path(
    get, path = "/v1/usage/by", tag = "Organisations", operation_id = "getUsageBy",
    params(ByParams),
    responses((status = 200, body = UsageByView, description = "The usage")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    RequireRead(caller): RequireRead,
    Query(params): Query<ByParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    let period = UsageParams {
        from: params.from,
        to: params.to,
        granularity: Granularity::Day,
    };
    let (from, to) = period.period(Utc::now())?;
    let dimension = match params.dimension {
        Dimension::Device => UsageDimension::Device,
        Dimension::Service => UsageDimension::Service,
        Dimension::Npc => UsageDimension::Npc,
    };
    let store = &control.store;
    let sums = store.usage_by(caller.org, dimension, (from, to), limit.count());
    let (rows, other) = rows(sums.await?);
    Ok(JsonResponse::ok(&UsageByView {
        from,
        to,
        rows,
        other,
    }))
}
