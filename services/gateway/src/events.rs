//! `GET /v1/events`: what happens in an organisation, as a stream of events.
//!
//! Invariant: a client receives only what its credential reaches, until the credential ends.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    response::{
        IntoResponse as _, Response,
        sse::{Event, Sse},
    },
};
use chrono::{DateTime, SecondsFormat};
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchboard_bus::{Bus, LiveEntry, LiveEvent, LivePosition, LiveWatch, Seen};
use switchboard_identity::{Authenticator, Caller};
use switchboard_protocol::id::DeviceId;
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind, Owner, Permit},
    problem::{Problem, Query},
    shutdown::Shutdown,
};
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use crate::{
    Gateway,
    admission::RequireRead,
    bus_unavailable,
    calls::stream::{KEEP_ALIVE_INTERVAL, streamed},
    mcp::{self, ListenerGuard},
};

/// The header in which a client that connects again sends the `id` of the last event.
const LAST_EVENT_ID: &str = "last-event-id";
/// The most characters of a list of types; it has room for all of them.
const MAX_TYPES_LENGTH: usize = 256;
/// The longest position.
const MAX_POSITION_LENGTH: usize = 41;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Only events of these types, separated by commas.
    #[param(
        max_length = 256,
        pattern = r"^(device\.(online|offline|registered|changed)|call\.ended|(book|voice|webhook|setting)\.changed)(,(device\.(online|offline|registered|changed)|call\.ended|(book|voice|webhook|setting)\.changed))*$",
        example = "device.online,device.offline"
    )]
    types: Option<String>,
    /// Only events of this device.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-1")]
    device: Option<DeviceId>,
    /// Like the header `Last-Event-ID`, for clients that cannot set it.
    #[param(
        max_length = 41,
        pattern = "^[0-9]{1,19}-[0-9]{1,19}$",
        example = "1789000000000000-7"
    )]
    last_event_id: Option<String>,
}

/// The slots of streams.
pub(crate) fn budget(streams: usize, budgets: &Budgets) -> Budget {
    const NAME: &str = "event_streams";
    budgets.reserve(NAME, streams * Bus::LIVE_WATCH_BYTES);
    budgets.slots(NAME, streams, Kind::quarter_of(streams))
}

/// Streams what happens in the organisation: devices that connect, calls that end, settings that change.
///
/// The response does not end. The first event is `ready`, with the `position` from which on nothing is
/// missing: read lists after it. Each event has an `id`. A client that connects again sends the last one
/// as `Last-Event-ID` and receives what it missed; after more than a minute, or 1,000 events, the first
/// event is `gap`: read the lists again. A client that reads too slowly receives `gap` as well.
#[utoipa::path(
    get, path = "/v1/events", tag = "Events", operation_id = "streamEvents",
    params(
        EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, max_length = 41, example = "1789000000000000-7", description = "The `id` of the last event that the client received"),
    ),
    responses((status = 200, body = String, content_type = "text/event-stream", description = "The stream of events")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["outside_key", "too_many_listeners", "overloaded", "bus_unavailable"]))),
)]
pub(crate) async fn stream(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Query(query): Query<EventsQuery>,
    head: Parts,
) -> Result<Response, Problem> {
    let after = after(&head, query.last_event_id.as_deref())?;
    let filter = Filter::new(caller, query)?;
    let org = filter.caller.org;
    let permit = gateway
        .event_streams
        .try_acquire(Owner::Org(org.uuid()), 1)?;
    let listener = mcp::admit_listener(&gateway, &filter.caller, &head)?;
    let watch = gateway.bus.watch_live(org, after).await;
    let watch = watch.map_err(|error| bus_unavailable(&error))?;
    let first = begin(&watch, after.is_some());
    let events = EventStream {
        sent: watch.position(),
        watch,
        filter,
        keep_alive: Instant::now() + KEEP_ALIVE_INTERVAL,
        shutdown: gateway.async_calls.shutdown.clone(),
        authenticator: gateway.authenticator.clone(),
        listener,
        _permit: permit,
    };
    let events = stream::unfold(events, EventStream::next);
    let events = stream::iter(first).chain(events);
    let response = Sse::new(events.map(Ok::<_, Infallible>));
    Ok(streamed(response.into_response()))
}

/// Where the client continues. A position that no release has written is one that is not held any more,
/// because a browser repeats what it was given.
fn after(head: &Parts, parameter: Option<&str>) -> Result<Option<LivePosition>, Problem> {
    if let Some(text) = parameter {
        let position = text
            .parse()
            .ok()
            .filter(|_| text.len() <= MAX_POSITION_LENGTH);
        return match position {
            Some(position) => Ok(Some(position)),
            None => Err(Problem::invalid_query(
                "`last_event_id` must be the `id` of an event of this stream.",
            )),
        };
    }
    let header = head.headers.get(LAST_EVENT_ID);
    Ok(header.map(|header| {
        let position = header.to_str().ok().and_then(|text| text.parse().ok());
        position.unwrap_or(LivePosition::UNKNOWN)
    }))
}

/// The first event: `ready` for a client that has nothing yet, `gap` for one that has missed something.
fn begin(watch: &LiveWatch, is_resumed: bool) -> Option<Event> {
    let position = watch.position();
    if watch.has_missed() {
        return Some(gap(position));
    }
    let data = json!({"position": position.to_string()}).to_string();
    let ready = || Event::default().event("ready").id(position.to_string());
    (!is_resumed).then(|| ready().data(data))
}

fn gap(position: LivePosition) -> Event {
    let event = Event::default().event("gap").id(position.to_string());
    event.data("{}")
}

/// What a client receives.
struct Filter {
    caller: Caller,
    types: Option<Vec<&'static str>>,
    device: Option<DeviceId>,
}

impl Filter {
    fn new(caller: Caller, query: EventsQuery) -> Result<Self, Problem> {
        let types = query.types.as_deref().map(parse_types).transpose()?;
        let device = query
            .device
            .map(|device| caller.device(device))
            .transpose()?;
        Ok(Self {
            caller,
            types,
            device: device.map(|key| key.device),
        })
    }

    fn permits(&self, entry: &LiveEntry) -> bool {
        let is_wanted = |types: &Vec<&str>| types.contains(&&*entry.name);
        let is_wanted = self.types.as_ref().is_none_or(is_wanted);
        is_wanted
            && self
                .device
                .as_ref()
                .is_none_or(|device| entry.device.as_ref() == Some(device))
            && self.reaches(entry)
    }

    fn reaches(&self, entry: &LiveEntry) -> bool {
        let Some(device) = &entry.device else {
            // Nothing that belongs to no device is within reach of a key of some devices.
            return self.caller.require_all_devices().is_ok();
        };
        match &entry.service {
            Some(service) => self.caller.check_call(device, service).is_ok(),
            None => self.caller.check_device(device).is_ok(),
        }
    }
}

fn parse_types(text: &str) -> Result<Vec<&'static str>, Problem> {
    let parse = |wanted: &str| {
        let known = LiveEvent::NAMES.into_iter().find(|name| *name == wanted);
        known.ok_or_else(|| {
            let known = LiveEvent::NAMES.join(", ");
            Problem::invalid_query(format!("`types` must be a list of {known}."))
        })
    };
    let text = Some(text).filter(|text| text.len() <= MAX_TYPES_LENGTH);
    text.unwrap_or_default()
        .split(',')
        .map(str::trim)
        .map(parse)
        .collect()
}

/// The events of one client.
struct EventStream {
    watch: LiveWatch,
    filter: Filter,
    /// The last position that the client knows.
    sent: LivePosition,
    /// When the client receives something, whatever happens.
    keep_alive: Instant,
    shutdown: Shutdown,
    authenticator: Authenticator,
    listener: ListenerGuard,
    _permit: Permit,
}

impl EventStream {
    /// The next event; `None` at the end of the stream.
    async fn next(mut self) -> Option<(Event, Self)> {
        let event = loop {
            tokio::select! {
                biased;
                () = self.listener.revoked() => return None,
                () = self.shutdown.draining() => return None,
                () = sleep_until(self.keep_alive) => break self.keep_alive(),
                seen = self.watch.next() => match seen {
                    Seen::Gap(position) => break gap(position),
                    Seen::Event(entry) => {
                        let caller = &mut self.filter.caller;
                        // Without the labels of devices, the client continues later where the stream ends.
                        self.authenticator.read_labelled(caller).await.ok()?;
                        if self.filter.permits(&entry) {
                            break event(&entry);
                        }
                    }
                }
            }
        };
        self.sent = self.watch.position();
        self.keep_alive = Instant::now() + KEEP_ALIVE_INTERVAL;
        Some((event, self))
    }

    /// The position, after events that were not for this client. It is no event for a browser.
    fn keep_alive(&self) -> Event {
        let position = self.watch.position();
        match position == self.sent {
            true => Event::default().comment(""),
            false => Event::default().id(position.to_string()),
        }
    }
}

fn event(entry: &LiveEntry) -> Event {
    let mut data: Map<String, Value> = serde_json::from_str(&entry.data).unwrap_or_default();
    let at = i64::try_from(entry.at_ms).ok();
    let at = at
        .and_then(DateTime::from_timestamp_millis)
        .unwrap_or_default();
    let at = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    data.insert("at".to_owned(), at.into());
    let event = Event::default().event(&entry.name);
    let event = event.id(entry.position.to_string());
    event.data(Value::Object(data).to_string())
}
