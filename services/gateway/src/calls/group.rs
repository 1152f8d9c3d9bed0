//! `POST /v1/group-calls`: one service of many devices, each call with its own outcome.
//!
//! Each call is made as if its caller had made it alone: with its rates, its deadline and its metrics.
//!
//! Invariant: nothing is sent unless the caller reaches all devices of the group and they are within the limit.

mod item;
mod request;
mod stream;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _};
use http::HeaderMap;
use serde::Serialize;
use switchboard_identity::Caller;
use switchboard_protocol::{id::DeviceId, outcome::Delivered};
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind, Owner},
    problem::{Json, Problem, ProblemKind},
    response_budget::{PageCharge, hold_until_sent},
};
use utoipa::ToSchema;

use super::stream::Accepted;
use crate::{Gateway, admission::MakeCall};
use item::{GroupItem, Progresses};
use request::{GroupBody, GroupRequest};

/// Protects memory: the results and problems of one group.
const MAX_ITEMS_BYTES: usize = 4 * 1024 * 1024;
/// How long the calls of a group begin. Protects the slots of other groups.
const MAX_DURATION: Duration = Duration::from_secs(20 * 60);
/// Counts the calls without an outcome: nothing was sent.
const NOT_SENT: &str = "not_sent";

/// The slots of group calls in flight.
pub(crate) fn budget(groups: usize, budgets: &Budgets) -> Budget {
    budgets.slots("group_calls", groups, Kind::quarter_of(groups))
}

/// How the calls of a group ended.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = GroupSums)]
struct Sums {
    /// How many devices were called.
    #[schema(minimum = 0, maximum = 200, example = 2)]
    devices: usize,
    /// How many calls ended with each outcome; `not_sent` counts those without one.
    #[schema(value_type = BTreeMap<String, u64>, example = json!({"succeeded": 1, "offline": 1}))]
    outcomes: BTreeMap<&'static str, u64>,
}

/// The outcomes of a group call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GroupCall)]
pub(crate) struct GroupView {
    #[serde(flatten)]
    sums: Sums,
    /// One for each device: in the order of `devices`, or in byte order of the IDs.
    #[schema(max_items = 200)]
    items: Vec<GroupItem>,
}

/// Calls a service of all devices with a label, or of the devices of a list.
///
/// The response follows when all calls have ended; its status is 200 whatever their outcomes. With
/// `Accept: text/event-stream` it is a stream of events: `started`, `progress` as devices send it, `item` as
/// each call ends, and at last `ended`. Closing the connection cancels the calls.
#[utoipa::path(
    post, path = "/v1/group-calls", tag = "Calls", operation_id = "callGroup",
    request_body(content = GroupBody),
    responses((status = 200, content((GroupView = "application/json"), (String = "text/event-stream")), description = "The outcomes; or the stream of events")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["outside_key", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    MakeCall { caller, .. }: MakeCall,
    headers: HeaderMap,
    Json(body): Json<GroupBody>,
) -> Result<Response, Problem> {
    let not_sent = |problem: Problem| problem.with("delivered", Delivered::No);
    let request = body.parse().map_err(not_sent)?;
    if request.call.bytes() > gateway.params_limit_bytes {
        return Err(not_sent(too_large(&request, &gateway)));
    }
    let devices = request.devices(&gateway, &caller).await;
    let devices = devices.map_err(not_sent)?;
    let owner = Owner::Org(caller.org.uuid());
    let permit = gateway.group_calls.try_acquire(owner, 1);
    let permit = permit.map_err(|exhausted| not_sent(exhausted.into()))?;
    let group = Group {
        caller,
        request,
        devices,
        started: Instant::now(),
    };
    if Accepted::from_headers(&headers) != Accepted::Json {
        return Ok(stream::respond(&gateway, group, permit));
    }
    let (view, held) = group.collect(&gateway).await;
    let response = axum::Json(view).into_response();
    drop(permit);
    match held {
        Some(held) => hold_until_sent(response, held).await,
        None => Ok(response),
    }
}

fn too_large(request: &GroupRequest, gateway: &Gateway) -> Problem {
    let (sent, limit) = (request.call.bytes(), gateway.params_limit_bytes);
    let detail = format!("The params have {sent} bytes; the limit is {limit}.");
    Problem::new(ProblemKind::ParamsTooLarge, detail)
}

/// A group call that was admitted.
struct Group {
    caller: Caller,
    request: GroupRequest,
    devices: Vec<DeviceId>,
    started: Instant,
}

impl Group {
    /// Why no further call of the group is made.
    fn refusal(&self, gateway: &Gateway) -> Option<Problem> {
        let detail = if gateway.async_calls.shutdown.is_draining() {
            "The gateway stops; repeat the call of this device.".to_owned()
        } else if self.started.elapsed() > MAX_DURATION {
            let minutes = MAX_DURATION.as_secs() / 60;
            format!(
                "The group has been called for {minutes} minutes, which is the limit; repeat the call of this device."
            )
        } else {
            return None;
        };
        Some(Problem::new(ProblemKind::Overloaded, detail))
    }

    fn owner(&self) -> Owner {
        Owner::Org(self.caller.org.uuid())
    }

    /// Makes the calls, some at a time: each device's place in the list, and how its call ended. Dropping
    /// the stream cancels the calls in flight.
    fn items<'a>(
        &'a self,
        gateway: &'a Gateway,
        progresses: &'a Progresses,
    ) -> impl Stream<Item = (usize, GroupItem)> + 'a {
        let calls = self.devices.iter().enumerate();
        let calls = calls.map(move |(at, device)| async move {
            (at, self.call(gateway, at, device, progresses).await)
        });
        futures_util::stream::iter(calls).buffer_unordered(self.request.at_once)
    }

    /// Waits for all calls. What is returned beside the view is held until the view was sent.
    async fn collect(
        &self,
        gateway: &Gateway,
    ) -> (GroupView, Option<switchboard_runtime::budget::Permit>) {
        let mut tally = Tally::new(gateway, self.owner());
        let mut items = Vec::with_capacity(self.devices.len());
        let progresses = Progresses::none();
        let ended = self.items(gateway, &progresses);
        let mut ended = std::pin::pin!(ended);
        while let Some((at, item)) = ended.next().await {
            items.push((at, tally.add(item)));
        }
        items.sort_unstable_by_key(|(at, _)| *at);
        let items = items.into_iter().map(|(_, item)| item).collect();
        let Tally {
            sums,
            charge,
            bytes,
        } = tally;
        (GroupView { sums, items }, charge.into_permit(bytes))
    }
}

/// Sums of the calls that have ended, and the memory of their items.
struct Tally<'a> {
    sums: Sums,
    charge: PageCharge<'a>,
    bytes: usize,
}

impl<'a> Tally<'a> {
    fn new(gateway: &'a Gateway, owner: Owner) -> Self {
        Self {
            sums: Sums::default(),
            charge: PageCharge::new(&gateway.responses, owner),
            bytes: 0,
        }
    }

    /// Counts an item. Without room for its result or its problem, the item says so in place of it.
    fn add(&mut self, item: GroupItem) -> GroupItem {
        self.sums.devices += 1;
        *self.sums.outcomes.entry(item.outcome_name()).or_default() += 1;
        let bytes = self.bytes + item.bytes();
        if bytes <= MAX_ITEMS_BYTES && self.charge.hold(bytes).is_ok() {
            self.bytes = bytes;
            item
        } else {
            item.without_content()
        }
    }
}
