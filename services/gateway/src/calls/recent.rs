//! `GET /v1/calls/recent`: the journal of synchronous calls.
//!
//! Invariant: a restricted credential sees only calls that it could have made.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, de};
use switchboard_protocol::{
    id::{ApiKeyId, CallId, DeviceId, JournalEntryId, NpcId, TokenId},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::{
    paging::{self, Cursor, JsonElements, Limit, List},
    problem::{Problem, Query},
};
use switchboard_store::{
    CallCaller, CallVia, CallerKind, MAX_JOURNALED_BYTES, RecentCall, RecentCallFilter,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{milliseconds, request::MAX_SERVICE_BYTES};
use crate::{Gateway, admission::RequireRead, page_response, store_unavailable};

/// The outcome of a call that the bus, or the database, did not accept.
const UNAVAILABLE: &str = "unavailable";

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecentQuery {
    /// Only calls of this device.
    device: Option<DeviceId>,
    /// Only calls of this service.
    #[param(min_length = 1, max_length = 256, example = "get_current_time")]
    service: Option<String>,
    /// Only calls with this outcome.
    #[param(value_type = Option<RecentOutcome>)]
    #[serde(default, deserialize_with = "outcome")]
    outcome: Option<String>,
    /// Only calls of the API key, access token or NPC with this id.
    #[param(
        value_type = Option<String>,
        pattern = "^(key|tok|npc)_[0-9a-f]{32}$",
        example = "key_01a1fdc1e83670f68020c071fd533605"
    )]
    #[serde(default, deserialize_with = "caller")]
    caller: Option<Uuid>,
    /// Maximum number of calls on the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
}

/// How a synchronous call ended.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case", example = "succeeded")]
#[expect(dead_code, reason = "describes a text in the API document")]
pub(crate) enum RecentOutcome {
    Succeeded,
    Failed,
    Invalid,
    UnknownDevice,
    UnknownService,
    Offline,
    Overloaded,
    Cancelled,
    TimedOut,
    Lost,
    /// Nothing was sent: the devices could not be reached, or the Idempotency-Key not be stored.
    Unavailable,
}

/// Who made a call.
#[derive(Serialize, ToSchema)]
#[schema(as = CallCaller)]
struct CallerView {
    #[schema(value_type = CallerKind)]
    kind: &'static str,
    /// The id of the API key, access token or NPC; absent for `assistant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, max_length = 64, example = "key_01a1fdc1e83670f68020c071fd533605")]
    id: Option<String>,
    /// The name of the API key, or the subject of the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, max_length = 255, example = "first key")]
    name: Option<String>,
}

/// A synchronous call that has ended.
#[derive(Serialize, ToSchema)]
#[schema(as = RecentCall)]
pub(crate) struct RecentCallView {
    /// The id of the entry.
    id: JournalEntryId,
    /// The id of the call.
    call_id: CallId,
    /// When it ended (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    ended_at: DateTime<Utc>,
    /// The device that was called.
    device_id: DeviceId,
    /// The service that was called.
    #[schema(max_length = 128, example = "get_current_time")]
    service: String,
    /// How it ended.
    #[schema(value_type = RecentOutcome)]
    outcome: String,
    /// Whether the device may have executed the call.
    #[schema(value_type = Delivered)]
    delivered: String,
    /// Time from the request to the outcome, in milliseconds.
    #[schema(minimum = 0, maximum = 301_000, example = 12.345)]
    elapsed_ms: f64,
    /// What it came through.
    #[schema(value_type = CallVia)]
    via: String,
    caller: CallerView,
    /// Length of the params.
    #[schema(minimum = 0, example = 2)]
    params_bytes: i32,
    /// Length of the result; 0 if the device sent none.
    #[schema(minimum = 0, example = 16)]
    result_bytes: i32,
    /// The params, as JSON text, at most 4 KiB; only while `journal_params` of the organisation is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, max_length = 4096, example = "{}")]
    params: Option<String>,
    /// Whether `params` is only their beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false, example = false)]
    params_cut: Option<bool>,
    /// The device's result, as JSON text, at most 4 KiB; as `params`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, max_length = 4096, example = r#"{"success":true}"#)]
    result: Option<String>,
    /// Whether `result` is only its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false, example = false)]
    result_cut: Option<bool>,
}

/// A page of synchronous calls.
#[derive(Serialize, ToSchema)]
#[schema(as = RecentCalls)]
pub(crate) struct RecentCallPage {
    /// The calls, newest first.
    #[schema(max_items = 200, value_type = Vec<RecentCallView>)]
    items: JsonElements,
    /// `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
    /// Calls of the organisation in the last 24 hours that are not in the list, because there were
    /// too many at the same time.
    #[schema(minimum = 0, example = 0)]
    left_out: i64,
}

/// Lists the latest synchronous calls, newest first: those over REST and MCP, and those of
/// conversations.
///
/// A call appears within seconds after its end, and stays for 24 hours, unless 10,000 newer ones end.
#[utoipa::path(
    get, path = "/v1/calls/recent", tag = "Calls", operation_id = "listRecentCalls",
    params(RecentQuery),
    responses((status = 200, body = RecentCallPage, description = "A page of calls")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Query(query): Query<RecentQuery>,
) -> Result<Response, Problem> {
    let limit = Limit::new(query.limit)?;
    if let Some(service) = &query.service
        && !(1..=MAX_SERVICE_BYTES).contains(&service.len())
    {
        let detail = format!("`service` must be 1 to {MAX_SERVICE_BYTES} bytes long.");
        return Err(Problem::invalid_query(detail));
    }
    let org = caller.org;
    let list = List::new("/v1/calls/recent", org);
    let after = list.position(query.cursor)?;
    let filter = RecentCallFilter {
        device: query.device.as_ref(),
        service: query.service.as_deref(),
        outcome: query.outcome.as_deref(),
        caller: query.caller,
        restrictions: caller.restrictions.as_deref(),
    };
    let store = &gateway.store;
    let read = async {
        let calls = store.recent_calls(org, filter, after, limit.fetch_count());
        Ok((calls.await?, store.left_out_calls(org).await?))
    };
    let (calls, left_out) = read.await.map_err(|error| {
        let detail = "The calls cannot be read at the moment. Try again in a moment.";
        store_unavailable(&error, "the journal of calls cannot be read", detail)
    })?;
    let (items, next_cursor) =
        limit.json_page(calls, |call| list.cursor(call.id), RecentCallView::from);
    let bytes = items.bytes();
    let page = RecentCallPage {
        items,
        next_cursor,
        left_out,
    };
    page_response(&gateway, org, bytes, page).await
}

impl From<RecentCall> for RecentCallView {
    fn from(call: RecentCall) -> Self {
        let is_cut = |bytes: i32, text: Option<&String>| {
            text.map(|_| usize::try_from(bytes).unwrap_or_default() > MAX_JOURNALED_BYTES)
        };
        Self {
            id: call.id,
            call_id: call.call,
            ended_at: call.ended_at,
            device_id: call.device,
            service: call.service,
            outcome: call.outcome,
            delivered: call.delivered,
            elapsed_ms: milliseconds(call.elapsed),
            via: call.via,
            caller: CallerView::new(&call.caller, call.key_name),
            params_cut: is_cut(call.params_bytes, call.params.as_ref()),
            result_cut: is_cut(call.result_bytes, call.result.as_ref()),
            params_bytes: call.params_bytes,
            result_bytes: call.result_bytes,
            params: call.params,
            result: call.result,
        }
    }
}

impl CallerView {
    fn new(caller: &CallCaller, key_name: Option<String>) -> Self {
        let (id, name) = match caller {
            CallCaller::Key(id) => (Some(id.to_string()), key_name),
            CallCaller::Token { id, subject } => (Some(id.to_string()), Some(subject.to_string())),
            CallCaller::Npc(id) => (Some(id.to_string()), None),
            CallCaller::Assistant => (None, None),
        };
        Self {
            kind: caller.kind().as_str(),
            id,
            name,
        }
    }
}

fn outcome<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(source)?;
    let ends = Outcome::ALL
        .into_iter()
        .filter(|one| *one != Outcome::Expired);
    let mut names = ends.map(Outcome::as_str).chain([UNAVAILABLE]);
    if names.any(|one| one == name) {
        return Ok(Some(name));
    }
    Err(de::Error::custom(
        "`outcome` is no outcome of a synchronous call",
    ))
}

fn caller<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Uuid>, D::Error> {
    let id = String::deserialize(source)?;
    let key = id.parse().map(ApiKeyId::uuid);
    let found = key
        .or_else(|_| id.parse().map(TokenId::uuid))
        .or_else(|_| id.parse().map(NpcId::uuid));
    let invalid = |_| de::Error::custom("`caller` is the id of an API key, access token or NPC");
    found.map(Some).map_err(invalid)
}
