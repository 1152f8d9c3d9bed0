//! `/v1/calls`: lists, reads and cancels asynchronous and queued calls.
//!
//! Invariant: a call of another organisation looks like a call that does not exist.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Deserializer, Serialize, de};
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::{CallId, DeviceId, OrgId},
    outcome::Delivered,
};
use switchboard_runtime::{
    paging::{self, Cursor, JsonElements, Limit, List, Order},
    problem::{Path, Problem, ProblemKind, Query},
};
use switchboard_store::{CallCancellation, CallFilter, CallState, Overdue, StoreError, StoredCall};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::{
    queue::{calls_unavailable, completion},
    view::CallView,
};
use crate::{Gateway, admission::RequireCall, page_response};

/// The limit of `wait_ms`.
pub(crate) const MAX_WAIT_MS: u64 = 60_000;
/// Delay before an overdue call is read again that another request or gateway is ending.
const OVERDUE_RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long the response may wait for the end of the call, in milliseconds.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[schema(value_type = u64, example = 9000)]
#[serde(try_from = "u64")]
pub(crate) struct WaitMs(u64);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetQuery {
    /// How many milliseconds to wait for the end of the call. By default the response is
    /// immediate.
    #[param(required = false)]
    #[serde(default)]
    wait_ms: WaitMs,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only calls of this device.
    device_id: Option<DeviceId>,
    /// Only calls in this state.
    #[serde(default, deserialize_with = "state")]
    state: Option<CallState>,
    /// `desc`: newest first.
    #[param(inline, required = false, example = "desc")]
    #[serde(default)]
    order: Order,
    /// Maximum number of calls on the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
}

/// A page of calls.
#[derive(Serialize, ToSchema)]
#[schema(as = Calls)]
pub(crate) struct CallPage {
    /// The calls in order of creation or, with `order=desc`, newest first; without their results.
    #[schema(max_items = 200, value_type = Vec<CallView<'static>>)]
    calls: JsonElements,
    /// `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

impl TryFrom<u64> for WaitMs {
    type Error = String;

    fn try_from(wait_ms: u64) -> Result<Self, String> {
        if wait_ms <= MAX_WAIT_MS {
            return Ok(Self(wait_ms));
        }
        Err(format!("`wait_ms` must be from 0 to {MAX_WAIT_MS}"))
    }
}

/// Gets an asynchronous or queued call, at once or when it has ended.
#[utoipa::path(
    get, path = "/v1/calls/{id}", tag = "Calls", operation_id = "getCall",
    params(("id" = CallId, Path, description = "ID of the call"), GetQuery),
    responses((status = 200, body = CallView<'static>, description = "The call")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_call", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    RequireCall(caller): RequireCall,
    Path(id): Path<CallId>,
    Query(GetQuery { wait_ms }): Query<GetQuery>,
) -> Result<Response, Problem> {
    let WaitMs(wait_ms) = wait_ms;
    require_reach(&gateway, &caller, id).await?;
    let call = if wait_ms == 0 {
        read(&gateway, caller.org, id).await?
    } else {
        let until = Instant::now() + Duration::from_millis(wait_ms);
        wait_for_end(&gateway, caller.org, id, until).await?
    };
    Ok(axum::Json(CallView::from(&call)).into_response())
}

/// Lists asynchronous and queued calls, without their results.
///
/// A page also ends at 4 MiB, with at least one call.
#[utoipa::path(
    get, path = "/v1/calls", tag = "Calls", operation_id = "listCalls",
    params(ListQuery),
    responses((status = 200, body = CallPage, description = "A page of calls")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RequireCall(caller): RequireCall,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let limit = Limit::new(query.limit)?;
    let list = List::new("/v1/calls", caller.org).ordered(query.order);
    let after = list.position(query.cursor)?;
    let filter = CallFilter {
        device: query.device_id.as_ref(),
        state: query.state,
        restrictions: caller.restrictions.as_deref(),
    };
    let calls = async {
        end_overdue(&gateway, Overdue::Of(caller.org)).await?;
        let store = &gateway.store;
        store
            .stored_calls(
                caller.org,
                filter,
                (query.order, after),
                limit.fetch_count(),
            )
            .await
    };
    let calls = calls.await.map_err(|error| calls_unavailable(&error))?;
    let (calls, next_cursor) = limit.json_page(
        calls.iter().collect(),
        |call| list.cursor(call.id),
        CallView::from,
    );
    let bytes = calls.bytes();
    let page = CallPage { calls, next_cursor };
    page_response(&gateway, caller.org, bytes, page).await
}

/// Cancels a call that is queued for its device.
#[utoipa::path(
    delete, path = "/v1/calls/{id}", tag = "Calls", operation_id = "cancelCall",
    params(("id" = CallId, Path, description = "ID of the call")),
    responses((status = 204, description = "The call is cancelled and will not be sent")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_call", "call_sent", "call_ended", "store_unavailable"]))),
)]
pub(crate) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    RequireCall(caller): RequireCall,
    Path(id): Path<CallId>,
) -> Result<StatusCode, Problem> {
    require_reach(&gateway, &caller, id).await?;
    let end = completion::cancelled();
    let cancelled = gateway.store.cancel_call(caller.org, id, &end).await;
    let (cancellation, closed) = cancelled.map_err(|error| calls_unavailable(&error))?;
    if let Some(closed) = closed {
        completion::record_closed(&gateway, &closed, &end);
    }
    match cancellation {
        CallCancellation::Cancelled => Ok(StatusCode::NO_CONTENT),
        CallCancellation::Sent => {
            let detail = "The call is being sent or has been sent; it can no longer be cancelled.";
            let problem = Problem::new(ProblemKind::CallSent, detail);
            let problem = problem.with("call_id", id);
            Err(problem.with("delivered", Delivered::Unknown))
        }
        CallCancellation::Ended => {
            let detail = "The call has ended and cannot be cancelled.";
            Err(Problem::new(ProblemKind::CallEnded, detail).with("call_id", id))
        }
        CallCancellation::Unknown => Err(unknown(id)),
    }
}

/// Requires that a stored call is within reach of the credential.
async fn require_reach(gateway: &Gateway, caller: &Caller, id: CallId) -> Result<(), Problem> {
    if caller.restrictions.is_none() {
        return Ok(());
    }
    let call = read(gateway, caller.org, id).await?;
    caller.require_call(&call.device, &call.service)
}

/// The call when it has ended, or as it is at `until`.
async fn wait_for_end(
    gateway: &Gateway,
    org: OrgId,
    id: CallId,
    until: Instant,
) -> Result<StoredCall, Problem> {
    let waiter = gateway.async_calls.waiters.register(id);
    loop {
        // Subscribe before reading, so that an end in between is not missed.
        let mut ended = std::pin::pin!(waiter.ended());
        ended.as_mut().enable();
        let call = read(gateway, org, id).await?;
        if call.end.is_some() || Instant::now() >= until {
            return Ok(call);
        }
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep_until(until.min(overdue_at(&call))) => {}
            () = gateway.async_calls.shutdown.draining() => return Ok(call),
        }
    }
}

/// When the call becomes overdue. An overdue call ends only when it is read or swept, so its end
/// is not notified before.
fn overdue_at(call: &StoredCall) -> Instant {
    let left = call.due_at().map(|due| due - call.read_at);
    let left = left.and_then(|left| left.to_std().ok()).unwrap_or_default();
    Instant::now() + left.max(OVERDUE_RETRY_DELAY)
}

async fn read(gateway: &Gateway, org: OrgId, id: CallId) -> Result<StoredCall, Problem> {
    let found = async {
        let found = gateway.store.stored_call(org, id).await?;
        match &found {
            Some(call) if call.due_at().is_some_and(|due| due <= call.read_at) => {
                end_overdue(gateway, Overdue::Call(org, id)).await?;
                gateway.store.stored_call(org, id).await
            }
            _ => Ok(found),
        }
    };
    let found = found.await.map_err(|error| calls_unavailable(&error))?;
    found.ok_or_else(|| unknown(id))
}

/// Ends calls that have expired or are lost.
async fn end_overdue(gateway: &Gateway, which: Overdue) -> Result<(), StoreError> {
    let (expired, lost) = (completion::expired(), completion::lost());
    let ended = gateway
        .store
        .end_overdue_calls(which, &expired, &lost)
        .await?;
    completion::record_overdue(gateway, &ended);
    Ok(())
}

fn unknown(id: CallId) -> Problem {
    let detail = format!("There is no asynchronous or queued call {id} in this organisation.");
    Problem::new(ProblemKind::UnknownCall, detail)
}

fn state<'de, D: Deserializer<'de>>(source: D) -> Result<Option<CallState>, D::Error> {
    let name = String::deserialize(source)?;
    let known = CallState::ALL
        .into_iter()
        .find(|state| state.as_str() == name);
    let invalid = || de::Error::custom("`state` is queued, sent or ended");
    known.map(Some).ok_or_else(invalid)
}
