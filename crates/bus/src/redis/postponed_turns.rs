//! Turns that were delivered to a worker without room for their organisation, and wait for one
//! with room.
//!
//! Invariant: a postponed turn stays pending in the group of the workers, so that it is found
//! after the lease of a turn if no worker looks for postponed turns.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use redis::streams::{StreamClaimReply, StreamId};
use switchboard_protocol::id::OrgId;

use super::{client::RedisClient, scripts, turns::GROUP};
use crate::{error::BusError, turns::OrgRoom};

/// Consumers of postponed turns begin with this; the id of the organisation follows.
pub(super) const CONSUMER_PREFIX: &str = "postponed:";
/// Interval in which a worker looks for postponed turns while none are known.
const IDLE_INTERVAL: Duration = Duration::from_millis(2500);
/// Intervals while some are known: the first one after a turn was found, and the last one while
/// their organisations have no room.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
const MAX_INTERVAL: Duration = Duration::from_millis(100);

/// When a worker looks for postponed turns.
pub(super) struct PostponedSchedule(Mutex<Schedule>);

struct Schedule {
    due: Instant,
    /// Doubled after a look that found no turn with room.
    interval: Duration,
}

/// What a look for postponed turns found.
enum Found {
    Nothing,
    WithoutRoom,
    WithRoom,
}

impl Default for PostponedSchedule {
    fn default() -> Self {
        Self(Mutex::new(Schedule {
            due: Instant::now(),
            interval: MIN_INTERVAL,
        }))
    }
}

impl PostponedSchedule {
    /// The time until the next look.
    pub(super) fn wait(&self) -> Duration {
        let due = self.0.lock().due;
        due.saturating_duration_since(Instant::now())
    }

    /// Records that this worker has postponed turns.
    pub(super) fn postponed(&self) {
        let mut schedule = self.0.lock();
        schedule.due = schedule.due.min(Instant::now() + schedule.interval);
    }

    fn looked(&self, found: &Found) {
        let mut schedule = self.0.lock();
        schedule.interval = match found {
            Found::Nothing | Found::WithRoom => MIN_INTERVAL,
            Found::WithoutRoom => (schedule.interval * 2).min(MAX_INTERVAL),
        };
        let wait = match found {
            Found::Nothing => IDLE_INTERVAL,
            Found::WithoutRoom | Found::WithRoom => schedule.interval,
        };
        schedule.due = Instant::now() + wait;
    }
}

impl RedisClient {
    /// Claims postponed turns of organisations that have room, if a look for them is due.
    pub(super) async fn claim_postponed(
        &self,
        max: usize,
        room: &OrgRoom<'_>,
    ) -> Result<Vec<StreamId>, BusError> {
        if !self.postponed.wait().is_zero() {
            return Ok(Vec::new());
        }
        let names = [self.keys.turns()];
        let mut list = scripts::call(&self.scripts.list_postponed, &names);
        list.arg(GROUP);
        let orgs: Vec<String> = self.query(&names[0], &list).await?;
        let has_none = orgs.is_empty();
        let orgs = orgs.iter().filter_map(|org| org.parse::<OrgId>().ok());
        let mut rooms: Vec<_> = orgs.map(|org| (org, room(org).min(max))).collect();
        rooms.retain(|(_, room)| *room > 0);
        // Organisations with the fewest turns in progress come first.
        rooms.sort_by_key(|(_, room)| Reverse(*room));
        let mut entries = Vec::new();
        if !rooms.is_empty() {
            let mut claim = scripts::call(&self.scripts.claim_postponed, &names);
            claim.arg(GROUP).arg(self.node.as_str()).arg(max);
            for (org, room) in rooms {
                claim.arg(org.to_string()).arg(room);
            }
            let reply: StreamClaimReply = self.query(&names[0], &claim).await?;
            entries = reply.ids;
        }
        self.postponed.looked(match (has_none, entries.is_empty()) {
            (true, _) => &Found::Nothing,
            (false, true) => &Found::WithoutRoom,
            (false, false) => &Found::WithRoom,
        });
        Ok(entries)
    }
}
