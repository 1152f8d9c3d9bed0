//! `/v1/calls`: what became of calls that nobody waited for.
//! Never: a call of another organisation, told from one that there is not.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Deserializer, Serialize, de};
use switchboard_protocol::{
    id::{CallId, DeviceId, OrgId},
    outcome::Delivered,
};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Path, Problem, Query},
};
use switchboard_store::{CallFilter, CallState, KeptCall, StoreError, Withdrawal};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::{ending, kept::unreadable, shown::ShownCall};
use crate::{Gateway, access::MayCall};

/// The longest that an answer may wait for a call's end.
pub(crate) const LONGEST_WAIT_MS: u64 = 60_000;
/// A call that is due to end is looked at again after this, while somebody else is ending it.
const DUE_PAUSE: Duration = Duration::from_millis(50);

/// How long an answer may wait for a call's end.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[schema(value_type = u64, example = 9000)]
#[serde(try_from = "u64")]
pub(crate) struct WaitMs(u64);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waiting {
    /// How many milliseconds the answer may wait for the call's end; none when not given.
    #[param(required = false)]
    #[serde(default)]
    wait_ms: WaitMs,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// Only those for this device.
    device_id: Option<DeviceId>,
    /// Only those that are this far.
    #[serde(default, deserialize_with = "state")]
    state: Option<CallState>,
    /// The most calls of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the page before.
    cursor: Option<Cursor>,
}

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Calls<'a> {
    /// In the order of their making, without results.
    #[schema(max_items = 200)]
    calls: Vec<ShownCall<'a>>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

impl TryFrom<u64> for WaitMs {
    type Error = String;

    fn try_from(wait_ms: u64) -> Result<Self, String> {
        if wait_ms <= LONGEST_WAIT_MS {
            return Ok(Self(wait_ms));
        }
        Err(format!("`wait_ms` must be from 0 to {LONGEST_WAIT_MS}"))
    }
}

/// Shows what became of a call that nobody waited for, at once or as soon as it has ended.
#[utoipa::path(
    get, path = "/v1/calls/{id}", tag = "Calls", operation_id = "getCall",
    params(("id" = CallId, Path, description = "The call"), Waiting),
    responses((status = 200, body = ShownCall<'static>, description = "The call")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["invalid_path", "unknown_call", "rate_limited", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    MayCall(caller): MayCall,
    Path(id): Path<CallId>,
    Query(Waiting { wait_ms }): Query<Waiting>,
) -> Result<Response, Problem> {
    let WaitMs(wait_ms) = wait_ms;
    let call = if wait_ms == 0 {
        read(&gateway, caller.org, id).await?
    } else {
        let until = Instant::now() + Duration::from_millis(wait_ms);
        read_when_ended(&gateway, caller.org, id, until).await?
    };
    Ok(axum::Json(ShownCall::from(&call)).into_response())
}

/// Lists calls that nobody waited for, without their results.
#[utoipa::path(
    get, path = "/v1/calls", tag = "Calls", operation_id = "listCalls",
    params(Listing),
    responses((status = 200, body = Calls<'static>, description = "A page of calls")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["rate_limited", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    MayCall(caller): MayCall,
    Query(listing): Query<Listing>,
) -> Result<Response, Problem> {
    let limit = Limit::new(listing.limit)?;
    let list = List::of("/v1/calls", caller.org);
    let after = list.after(listing.cursor)?;
    let filter = CallFilter {
        device: listing.device_id.as_ref(),
        state: listing.state,
    };
    let calls = async {
        settle(&gateway, None).await?;
        let store = &gateway.store;
        store
            .kept_calls(caller.org, filter, after, limit.probe())
            .await
    };
    let calls = calls.await.map_err(|error| unreadable(&error))?;
    let (calls, next_cursor) = limit.cut(calls, |call| list.behind(call.id));
    let page = Calls {
        calls: calls.iter().map(ShownCall::from).collect(),
        next_cursor,
    };
    Ok(axum::Json(page).into_response())
}

/// Takes back a call that still waits for its device.
#[utoipa::path(
    delete, path = "/v1/calls/{id}", tag = "Calls", operation_id = "withdrawCall",
    params(("id" = CallId, Path, description = "The call")),
    responses((status = 204, description = "It is never sent")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["invalid_path", "unknown_call", "call_sent", "call_ended", "rate_limited", "store_unavailable"]))),
)]
pub(crate) async fn withdraw(
    State(gateway): State<Arc<Gateway>>,
    MayCall(caller): MayCall,
    Path(id): Path<CallId>,
) -> Result<StatusCode, Problem> {
    let end = ending::withdrawn();
    let withdrawal = gateway.store.withdraw_call(caller.org, id, &end).await;
    match withdrawal.map_err(|error| unreadable(&error))? {
        Withdrawal::Withdrawn => Ok(StatusCode::NO_CONTENT),
        Withdrawal::Sent => Err(conflict(
            "call_sent",
            "Call sent",
            "The call is being sent, or has been; it cannot be taken back.",
        )
        .with("call_id", id)
        .with("delivered", Delivered::Unknown)),
        Withdrawal::Ended => Err(conflict(
            "call_ended",
            "Call ended",
            "The call is over; there is nothing to take back.",
        )
        .with("call_id", id)),
        Withdrawal::Unknown => Err(unknown(id)),
    }
}

/// The call, once it has ended or at `until`.
async fn read_when_ended(
    gateway: &Gateway,
    org: OrgId,
    id: CallId,
    until: Instant,
) -> Result<KeptCall, Problem> {
    let waiter = gateway.kept.waiters.wait_for(id);
    loop {
        // First the ear, then the look: no end falls in between.
        let mut ended = std::pin::pin!(waiter.ended());
        ended.as_mut().enable();
        let call = read(gateway, org, id).await?;
        if call.end.is_some() || Instant::now() >= until {
            return Ok(call);
        }
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep_until(until.min(due_at(&call))) => {}
            () = gateway.kept.shutdown.draining() => return Ok(call),
        }
    }
}

/// When the call ends by itself at the latest; no end is told of that before somebody looks.
fn due_at(call: &KeptCall) -> Instant {
    let left = call.due_at().map(|due| due - call.read_at);
    let left = left.and_then(|left| left.to_std().ok()).unwrap_or_default();
    Instant::now() + left.max(DUE_PAUSE)
}

async fn read(gateway: &Gateway, org: OrgId, id: CallId) -> Result<KeptCall, Problem> {
    let found = async {
        let found = gateway.store.kept_call(org, id).await?;
        match &found {
            Some(call) if call.due_at().is_some_and(|due| due <= call.read_at) => {
                settle(gateway, Some(id)).await?;
                gateway.store.kept_call(org, id).await
            }
            _ => Ok(found),
        }
    };
    let found = found.await.map_err(|error| unreadable(&error))?;
    found.ok_or_else(|| unknown(id))
}

/// Ends what is over by itself.
async fn settle(gateway: &Gateway, only: Option<CallId>) -> Result<(), StoreError> {
    let (expired, lost) = (ending::expired(), ending::lost());
    let settled = gateway.store.settle_calls(only, &expired, &lost).await?;
    gateway.metrics.settled(settled);
    Ok(())
}

fn conflict(slug: &'static str, title: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, slug, title, detail)
}

fn unknown(id: CallId) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown_call",
        "Unknown call",
        format!("No call {id} is kept in this organisation."),
    )
}

fn state<'de, D: Deserializer<'de>>(source: D) -> Result<Option<CallState>, D::Error> {
    let name = String::deserialize(source)?;
    let known = CallState::ALL
        .into_iter()
        .find(|state| state.as_str() == name);
    let wrong = || de::Error::custom("`state` is queued, sent or ended");
    known.map(Some).ok_or_else(wrong)
}
