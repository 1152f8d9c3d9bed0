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
    paging::{self, Limit},
    problem::{Path, Problem, Query},
};
use switchboard_store::{CallFilter, CallState, KeptCall, StoreError, Withdrawal};
use tokio::time::Instant;

use super::{ending, kept::unreadable, shown::ShownCall};
use crate::{Gateway, access::MayCall};

const LONGEST_WAIT_MS: u64 = 60_000;
/// A call that is due to end is looked at again after this, while somebody else is ending it.
const DUE_PAUSE: Duration = Duration::from_millis(50);

/// How long the answer may wait for the call's end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waiting {
    #[serde(default)]
    wait_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    device_id: Option<DeviceId>,
    #[serde(default, deserialize_with = "state")]
    state: Option<CallState>,
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// The last call of the page before.
    cursor: Option<CallId>,
}

#[derive(Serialize)]
struct Calls<'a> {
    calls: Vec<ShownCall<'a>>,
    next_cursor: Option<CallId>,
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    MayCall(caller): MayCall,
    Path(id): Path<CallId>,
    Query(Waiting { wait_ms }): Query<Waiting>,
) -> Result<Response, Problem> {
    if wait_ms > LONGEST_WAIT_MS {
        let detail = format!("`wait_ms` must be from 0 to {LONGEST_WAIT_MS}.");
        return Err(Problem::invalid_query(detail));
    }
    let call = if wait_ms == 0 {
        read(&gateway, caller.org, id).await?
    } else {
        let until = Instant::now() + Duration::from_millis(wait_ms);
        read_when_ended(&gateway, caller.org, id, until).await?
    };
    Ok(axum::Json(ShownCall::from(&call)).into_response())
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    MayCall(caller): MayCall,
    Query(listing): Query<Listing>,
) -> Result<Response, Problem> {
    let limit = Limit::new(listing.limit)?;
    let filter = CallFilter {
        device: listing.device_id.as_ref(),
        state: listing.state,
    };
    let calls = async {
        settle(&gateway, None).await?;
        let store = &gateway.store;
        store
            .kept_calls(caller.org, filter, listing.cursor, limit.probe())
            .await
    };
    let calls = calls.await.map_err(|error| unreadable(&error))?;
    let (calls, next_cursor) = limit.cut(calls, |call| call.id);
    let page = Calls {
        calls: calls.iter().map(ShownCall::from).collect(),
        next_cursor,
    };
    Ok(axum::Json(page).into_response())
}

pub(crate) async fn withdraw(
    State(gateway): State<Arc<Gateway>>,
    MayCall(caller): MayCall,
    Path(id): Path<CallId>,
) -> Result<StatusCode, Problem> {
    let refused = |slug, title, detail| {
        Problem::new(StatusCode::CONFLICT, slug, title, detail).with("call_id", id)
    };
    let end = ending::withdrawn();
    let withdrawal = gateway.store.withdraw_call(caller.org, id, &end).await;
    match withdrawal.map_err(|error| unreadable(&error))? {
        Withdrawal::Withdrawn => Ok(StatusCode::NO_CONTENT),
        Withdrawal::Sent => Err(refused(
            "call_sent",
            "Call sent",
            "The call is being sent, or has been; it cannot be taken back.",
        )
        .with("delivered", Delivered::Unknown)),
        Withdrawal::Ended => Err(refused(
            "call_ended",
            "Call ended",
            "The call is over; there is nothing to take back.",
        )),
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
    gateway.store.settle_calls(only, &expired, &lost).await?;
    Ok(())
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
