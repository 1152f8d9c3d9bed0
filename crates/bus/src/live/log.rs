//! The log of an organisation's live events: its positions, and how a reader learns what it missed.
//!
//! Invariant: positions of one log count without a gap, so a reader notices every entry that it missed.

use std::{fmt, str::FromStr, time::Duration};

use serde::Deserialize;
use switchboard_protocol::id::{DeviceId, OrgId};

use crate::backend::BackendFuture;

/// How long a log exists after it was last kept: for as long a client may resume where it left.
pub(crate) const LOG_TTL: Duration = Duration::from_secs(60);
/// The newest entries that a log has, and about 100 more. Protects Redis.
pub(crate) const MAX_LOG_ENTRIES: usize = 1000;
/// The most that an entry takes, in Redis or in memory; most of them take 200 bytes. The longest text in
/// it is the name of a service, which [`LiveEvent`](super::LiveEvent) limits.
pub(super) const MAX_ENTRY_BYTES: usize = 1024;
/// The greatest number in a position that Redis can be asked about, and more than there are entries.
const MAX_NUMBER: u64 = i64::MAX.unsigned_abs();
/// The name of an entry before which others are missing.
const GAP: &str = "gap";

/// Keeps the logs of organisations that are watched.
pub(crate) trait LiveLog: Send + Sync + 'static {
    /// Keeps the log of an organisation for [`LOG_TTL`] from now on. Begins one if there is none.
    fn keep_log(&self, org: OrgId) -> BackendFuture<'_, KeptLog>;

    /// Appends to the log of an organisation, if there is one.
    fn append_log<'a>(&'a self, org: OrgId, events: &'a [StoredEvent]) -> BackendFuture<'a, ()>;

    /// The next entries after a position, at most `max`.
    fn read_log(&self, org: OrgId, after: LivePosition, max: usize) -> BackendFuture<'_, LogPage>;
}

/// A log that was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptLog {
    pub(crate) end: LivePosition,
    /// It did not exist before.
    pub(crate) has_begun: bool,
}

/// A place in the log of an organisation: the log, by the time when it began, and the number of
/// entries so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LivePosition {
    pub(crate) log: u64,
    pub(crate) number: u64,
}

impl fmt::Display for LivePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.log, self.number)
    }
}

/// The text is not a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a position of a stream of events")]
pub struct InvalidPosition;

impl FromStr for LivePosition {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let (log, number) = text.split_once('-').ok_or(InvalidPosition)?;
        let parse = |text: &str| {
            let number = text.parse().ok().filter(|number| *number <= MAX_NUMBER);
            number.ok_or(InvalidPosition)
        };
        Ok(Self {
            log: parse(log)?,
            number: parse(number)?,
        })
    }
}

impl LivePosition {
    /// A position that no log has: whoever continues there has missed something.
    pub const UNKNOWN: Self = Self { log: 0, number: 0 };

    /// The position directly behind this one.
    pub(crate) const fn next(self) -> Self {
        let number = self.number.saturating_add(1);
        Self { number, ..self }
    }
}

/// An event as it is stored: its type, when it happened, and its members as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredEvent {
    pub(crate) name: Box<str>,
    pub(crate) at_ms: u64,
    pub(crate) data: Box<str>,
}

impl StoredEvent {
    /// Entries before this one are missing.
    pub(super) fn gap(at_ms: u64) -> Self {
        Self {
            name: GAP.into(),
            at_ms,
            data: "{}".into(),
        }
    }
}

/// What a read returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogPage {
    /// The last entry of the log; `None` if there is no log.
    pub(crate) end: Option<LivePosition>,
    pub(crate) entries: Vec<(LivePosition, StoredEvent)>,
}

impl LogPage {
    /// The entries that follow a position.
    ///
    /// # Errors
    /// If others were between, or may have been: where to continue.
    pub(super) fn after(self, position: LivePosition) -> Result<Vec<LiveEntry>, Skipped> {
        let next = match self.entries.first() {
            Some((first, _)) => Some(*first) == Some(position.next()),
            None => self.end == Some(position),
        };
        if !next {
            return Err(Skipped(self.end));
        }
        Ok(self.entries.into_iter().map(LiveEntry::from).collect())
    }
}

/// Entries are missing up to this position. Without one there is no log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skipped(pub(super) Option<LivePosition>);

/// An entry of the log of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEntry {
    /// Where it is.
    pub position: LivePosition,
    /// The type of the event, also one that only a newer release knows.
    pub name: Box<str>,
    /// When it happened, in Unix milliseconds.
    pub at_ms: u64,
    /// The device that it is about.
    pub device: Option<DeviceId>,
    /// The service that it is about.
    pub service: Option<Box<str>>,
    /// Its members, a JSON object.
    pub data: Box<str>,
}

impl LiveEntry {
    pub(super) fn is_gap(&self) -> bool {
        *self.name == *GAP
    }
}

impl From<(LivePosition, StoredEvent)> for LiveEntry {
    fn from((position, event): (LivePosition, StoredEvent)) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Subject {
            device_id: Option<DeviceId>,
            service: Option<Box<str>>,
        }
        let subject: Subject = serde_json::from_str(&event.data).unwrap_or_default();
        Self {
            position,
            name: event.name,
            at_ms: event.at_ms,
            device: subject.device_id,
            service: subject.service,
            data: event.data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(end: Option<(u64, u64)>, entries: &[(u64, u64)]) -> LogPage {
        let at = |(log, number)| LivePosition { log, number };
        let entry = |entry: &(u64, u64)| (at(*entry), StoredEvent::gap(1));
        LogPage {
            end: end.map(at),
            entries: entries.iter().map(entry).collect(),
        }
    }

    #[test]
    fn reader_notices_what_it_missed() {
        fn check(page: LogPage, expected: Result<usize, Option<(u64, u64)>>) {
            let position = LivePosition { log: 5, number: 2 };
            let read = page.after(position).map(|entries| entries.len());
            let expected = expected
                .map_err(|end| Skipped(end.map(|(log, number)| LivePosition { log, number })));
            assert_eq!(read, expected);
        }
        check(page(Some((5, 2)), &[]), Ok(0));
        check(page(Some((5, 4)), &[(5, 3), (5, 4)]), Ok(2));
        // The log is gone, another one, trimmed, or was lost in part.
        check(page(None, &[]), Err(None));
        check(page(Some((6, 0)), &[(6, 0)]), Err(Some((6, 0))));
        check(page(Some((4, 9)), &[]), Err(Some((4, 9))));
        check(page(Some((5, 9)), &[(5, 8), (5, 9)]), Err(Some((5, 9))));
        check(page(Some((5, 1)), &[]), Err(Some((5, 1))));
    }

    #[test]
    fn position_is_read_as_it_is_written() {
        let position = LivePosition { log: 5, number: 2 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in [
            "",
            "5",
            "5-",
            "-2",
            "5-2-1",
            "a-b",
            "99999999999999999999-1",
            "18446744073709551615-18446744073709551615",
            "5-9223372036854775808",
        ] {
            assert_eq!(
                wrong.parse::<LivePosition>(),
                Err(InvalidPosition),
                "{wrong}"
            );
        }
    }
}
