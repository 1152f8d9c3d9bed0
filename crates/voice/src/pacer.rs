//! Sends audio as fast as it is played, with a small lead.

use std::{collections::VecDeque, time::Duration};

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<T> {
    /// Send this now.
    Item(T),
    /// Nothing is due for this long.
    After(Duration),
    /// Nothing waits, or sending is on hold.
    Nothing,
}

/// A queue of audio and of marks between it.
///
/// ```text
///   sent ├───────────────── played by now ──────────────┤◄── lead ──►│◄─ waits ─
/// ```
///
/// An item is due when at most the lead of audio that was sent is still to be played. The device begins
/// to play at the first frame. When it has played everything, it begins anew at the next frame. A lead
/// bounds what an interruption has to drop, and hides the jitter of the network.
///
/// Instants are durations since any fixed point.
#[derive(Debug)]
pub struct Pacer<T> {
    lead: Duration,
    items: VecDeque<(T, Duration)>,
    /// When the device began to play what it has.
    started: Option<Duration>,
    /// Audio sent since then, and before.
    sent: Duration,
    sent_before: Duration,
    is_held: bool,
}

impl<T> Pacer<T> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new(lead: Duration) -> Self {
        Self {
            lead,
            items: VecDeque::new(),
            started: None,
            sent: Duration::ZERO,
            sent_before: Duration::ZERO,
            is_held: false,
        }
    }

    /// Appends an item that plays for this long; zero for a mark, which is due after the audio before it
    /// was sent.
    pub fn push(&mut self, item: T, plays: Duration) {
        self.items.push_back((item, plays));
    }

    /// Takes the next item if it is due.
    pub fn next(&mut self, now: Duration) -> Due<T> {
        if self.is_held {
            return Due::Nothing;
        }
        let Some((_, plays)) = self.items.front() else {
            return Due::Nothing;
        };
        if !plays.is_zero() {
            let ahead = self.sent.saturating_sub(self.elapsed(now));
            if ahead.is_zero() {
                // The device has played everything, or nothing yet.
                self.sent_before += self.sent;
                (self.started, self.sent) = (Some(now), Duration::ZERO);
            } else if ahead >= self.lead {
                return Due::After(ahead - self.lead + Duration::from_millis(1));
            }
            self.sent += *plays;
        }
        match self.items.pop_front() {
            Some((item, _)) => Due::Item(item),
            None => Due::Nothing,
        }
    }

    /// Sends nothing until [`Self::release`].
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Sends again.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Drops what waits, and returns it.
    pub fn clear(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.is_held = false;
        let items = std::mem::take(&mut self.items);
        items.into_iter().map(|(item, _)| item)
    }

    /// Returns how much audio the device has played by now.
    #[must_use]
    pub fn played(&self, now: Duration) -> Duration {
        self.sent_before + self.sent.min(self.elapsed(now))
    }

    /// Returns how long the device still plays what was sent.
    #[must_use]
    pub fn unplayed(&self, now: Duration) -> Duration {
        self.sent.saturating_sub(self.elapsed(now))
    }

    /// Returns how much audio waits.
    #[must_use]
    pub fn waiting(&self) -> Duration {
        self.items.iter().map(|(_, plays)| *plays).sum()
    }

    /// Returns whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn elapsed(&self, now: Duration) -> Duration {
        self.started
            .map_or(Duration::ZERO, |started| now.saturating_sub(started))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEAD: Duration = Duration::from_millis(300);
    const FRAME: Duration = Duration::from_millis(60);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn lead_is_sent_at_once_and_the_rest_as_it_is_played() {
        let mut pacer = Pacer::new(LEAD);
        (0..8).for_each(|n| pacer.push(n, FRAME));
        let now = ms(1_000);
        for n in 0..5 {
            assert_eq!(pacer.next(now), Due::Item(n));
        }
        assert_eq!(pacer.next(now), Due::After(ms(1)));
        assert_eq!(pacer.next(now + ms(1)), Due::Item(5));
        assert_eq!(pacer.next(now + ms(1)), Due::After(ms(60)));
        assert_eq!(pacer.played(now + ms(30)), ms(30));
        pacer.hold();
        assert_eq!(pacer.next(now + ms(200)), Due::Nothing);
        pacer.release();
        assert_eq!(pacer.next(now + ms(200)), Due::Item(6));
        assert_eq!(pacer.clear().collect::<Vec<_>>(), [7]);
        assert_eq!(pacer.next(now + ms(200)), Due::Nothing);
        assert_eq!(pacer.unplayed(now + ms(400)), ms(20));
        assert_eq!(pacer.played(now + ms(9_000)), ms(420));
    }

    #[test]
    fn device_that_has_played_everything_begins_anew() {
        let mut pacer = Pacer::new(LEAD);
        pacer.push('a', FRAME);
        assert_eq!(pacer.next(ms(0)), Due::Item('a'));
        // A mark is due at once; the audio behind it, too.
        pacer.push('m', Duration::ZERO);
        pacer.push('b', FRAME);
        assert_eq!(pacer.next(ms(500)), Due::Item('m'));
        assert_eq!(pacer.next(ms(500)), Due::Item('b'));
        assert_eq!(pacer.played(ms(530)), ms(90));
        assert_eq!(pacer.unplayed(ms(530)), ms(30));
    }

    proptest! {
        #[test]
        fn lead_is_exceeded_by_less_than_a_frame(
            plays in prop::collection::vec(0_u64..120, 1..60),
            waits in prop::collection::vec(0_u64..200, 1..200),
        ) {
            let mut pacer = Pacer::new(LEAD);
            plays.iter().for_each(|plays| pacer.push(*plays, ms(*plays)));
            let (mut now, mut taken) = (Duration::ZERO, 0);
            for wait in waits.iter().cycle().take(2_000) {
                while let Due::Item(_) = pacer.next(now) {
                    prop_assert!(pacer.unplayed(now) < LEAD + ms(120));
                    taken += 1;
                }
                now += ms(*wait + 1);
            }
            prop_assert_eq!(taken, plays.len());
        }
    }
}
