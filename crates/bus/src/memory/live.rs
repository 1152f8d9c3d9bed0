//! The logs of live events in memory.

use std::collections::VecDeque;

use switchboard_protocol::id::OrgId;
use tokio::time::Instant;

use super::Member;
use crate::{
    backend::BackendFuture,
    live::{KeptLog, LOG_TTL, LiveLog, LivePosition, LogPage, MAX_LOG_ENTRIES, StoredEvent},
};

/// The log of an organisation, until `ends`.
pub(super) struct OrgLog {
    end: LivePosition,
    entries: VecDeque<(LivePosition, StoredEvent)>,
    ends: Instant,
}

impl OrgLog {
    fn is_kept(&self) -> bool {
        self.ends > Instant::now()
    }

    fn append(&mut self, event: StoredEvent) {
        self.end = self.end.next();
        self.entries.push_back((self.end, event));
        if self.entries.len() > MAX_LOG_ENTRIES {
            self.entries.pop_front();
        }
    }
}

impl LiveLog for Member {
    fn keep_log(&self, org: OrgId) -> BackendFuture<'_, KeptLog> {
        self.with_state(|state| {
            state.live_logs.retain(|_, log| log.is_kept());
            let has_begun = !state.live_logs.contains_key(&org);
            // An epoch is the time in microseconds, and no two are the same.
            let began = has_begun.then(|| state.next_epoch());
            let log = state.live_logs.entry(org).or_insert_with(|| OrgLog {
                end: LivePosition {
                    log: began.map_or(0, |epoch| epoch.0),
                    number: 0,
                },
                entries: VecDeque::new(),
                ends: Instant::now(),
            });
            log.ends = Instant::now() + LOG_TTL;
            KeptLog {
                end: log.end,
                has_begun,
            }
        })
    }

    fn append_log<'a>(&'a self, org: OrgId, events: &'a [StoredEvent]) -> BackendFuture<'a, ()> {
        self.with_state(|state| {
            let log = state.live_logs.get_mut(&org);
            if let Some(log) = log.filter(|log| log.is_kept()) {
                events.iter().cloned().for_each(|event| log.append(event));
            }
        })
    }

    fn read_log(&self, org: OrgId, after: LivePosition, max: usize) -> BackendFuture<'_, LogPage> {
        self.with_state(|state| {
            let log = state.live_logs.get(&org).filter(|log| log.is_kept());
            let later = log.into_iter().flat_map(|log| {
                let from = log.entries.partition_point(|(at, _)| *at <= after);
                log.entries.range(from..)
            });
            LogPage {
                end: log.map(|log| log.end),
                entries: later.take(max).cloned().collect(),
            }
        })
    }
}
