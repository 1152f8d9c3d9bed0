//! For how long somebody is left alone, and for what reason.
//! Never: a rest made shorter by a later one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Why one is left alone, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rest {
    /// It wants to be: nobody asks it before.
    Wanted(Instant),
    /// It refuses whatever it is asked: others come first, and nobody counts on it.
    Refuses(Instant),
    /// It was not well: others come first.
    Unwell(Instant),
}

/// The reason alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Wanted,
    Refuses,
    Unwell,
}

/// The rests of one provider, or of one of its models.
#[derive(Debug, Default)]
pub(crate) struct Rests(Mutex<Ends>);

#[derive(Debug, Default)]
struct Ends {
    wanted: Option<Instant>,
    refuses: Option<Instant>,
    unwell: Option<Instant>,
}

impl Rests {
    /// The rest that counts most, if there is one now.
    pub(crate) fn now(&self) -> Option<Rest> {
        let now = Instant::now();
        let ends = self.0.lock();
        let rests = [
            ends.wanted.map(Rest::Wanted),
            ends.refuses.map(Rest::Refuses),
            ends.unwell.map(Rest::Unwell),
        ];
        rests.into_iter().flatten().find(|rest| rest.end() > now)
    }

    /// Begins a rest, or makes it longer. Whether there was none for this reason.
    pub(crate) fn begin(&self, reason: Reason, length: Duration) -> bool {
        let now = Instant::now();
        let mut ends = self.0.lock();
        let end = match reason {
            Reason::Wanted => &mut ends.wanted,
            Reason::Refuses => &mut ends.refuses,
            Reason::Unwell => &mut ends.unwell,
        };
        let is_new = end.is_none_or(|end| end <= now);
        *end = (*end).max(now.checked_add(length));
        is_new
    }

    /// It replied: whatever was the matter is over. What it wanted stays.
    pub(crate) fn end(&self) {
        let mut ends = self.0.lock();
        (ends.refuses, ends.unwell) = (None, None);
    }
}

impl Rest {
    pub(crate) const fn end(self) -> Instant {
        match self {
            Self::Wanted(end) | Self::Refuses(end) | Self::Unwell(end) => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_never_made_shorter() {
        let rests = Rests::default();
        assert_eq!(rests.now(), None);
        assert!(rests.begin(Reason::Wanted, LONG));
        let rest = rests.now();
        assert!(!rests.begin(Reason::Wanted, SHORT));
        assert_eq!(rests.now(), rest);
        rests.end();
        assert_eq!(rests.now(), rest);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_counts_most_and_a_reply_ends_the_rest() {
        let rests = Rests::default();
        assert!(rests.begin(Reason::Unwell, LONG));
        assert!(matches!(rests.now(), Some(Rest::Unwell(_))));
        assert!(rests.begin(Reason::Refuses, SHORT));
        assert!(matches!(rests.now(), Some(Rest::Refuses(_))));
        assert!(rests.begin(Reason::Wanted, SHORT));
        assert!(matches!(rests.now(), Some(Rest::Wanted(_))));
        rests.begin(Reason::Unwell, LONG);
        let others = Rests::default();
        others.begin(Reason::Unwell, LONG);
        others.begin(Reason::Refuses, LONG);
        others.end();
        assert_eq!(others.now(), None);
        assert!(others.begin(Reason::Refuses, Duration::ZERO));
        assert_eq!(others.now(), None);
        assert!(others.begin(Reason::Refuses, LONG));
    }
}
