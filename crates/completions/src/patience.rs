//! How long a provider is waited for, and what counts as a sign of life.
//! Never: a wait without an end.

use std::time::Duration;

use tokio::time::Instant;

/// How far a reply has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// There may be signs of life, and no more.
    #[default]
    Nothing,
    /// The model thinks aloud.
    Thoughts,
    /// Words, or a part of a call.
    Words,
}

/// How long a provider is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The end of everything.
    pub deadline: Instant,
    /// The longest pause between signs of life.
    pub pause: Duration,
    /// When it is asked.
    pub asked: Instant,
    /// When another one wants its turn; nobody else is left without.
    pub turn: Option<Instant>,
}

impl Patience {
    /// Until when a first sign of life is waited for.
    pub(crate) fn for_a_sign(&self) -> Instant {
        self.turn
            .map_or(self.deadline, |turn| turn.min(self.after(self.asked)))
    }

    /// Until when a whole reply in one piece is waited for that has begun.
    pub(crate) fn for_the_whole(&self) -> Instant {
        self.turn.unwrap_or(self.deadline)
    }

    /// Until when the next event is waited for. Who has said no word may be slow where nobody else is left to say one.
    pub(crate) fn for_more(&self, last_sign: Instant, progress: Progress) -> Instant {
        let pause = self.after(last_sign);
        match (progress, self.turn) {
            (Progress::Words, _) | (Progress::Thoughts, Some(_)) => pause,
            (Progress::Nothing, Some(turn)) => turn.min(pause),
            (Progress::Nothing | Progress::Thoughts, None) => self.deadline,
        }
    }

    fn after(&self, sign: Instant) -> Instant {
        let end = sign.checked_add(self.pause);
        end.unwrap_or(self.deadline).min(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn patience(asked: Instant, pause: u64, another: bool) -> Patience {
        Patience {
            deadline: asked + seconds(90),
            pause: seconds(pause),
            asked,
            turn: another.then(|| asked + seconds(45)),
        }
    }

    #[test]
    fn a_first_sign_is_waited_for_briefly_only_where_another_follows() {
        let asked = Instant::now();
        let check = |pause: u64, another: bool, expected: u64| {
            let until = patience(asked, pause, another).for_a_sign();
            assert_eq!(until, asked + seconds(expected), "{pause} {another}");
        };
        check(20, true, 20);
        check(60, true, 45);
        check(20, false, 90);
    }

    #[test]
    fn who_is_alive_may_be_slow() {
        use Progress::{Nothing, Thoughts, Words};
        let asked = Instant::now();
        let check = |sign: u64, progress: Progress, another: bool, expected: u64| {
            let until = patience(asked, 20, another).for_more(asked + seconds(sign), progress);
            let expected = asked + seconds(expected);
            assert_eq!(until, expected, "{sign} {progress:?} {another}");
        };
        check(1, Nothing, true, 21);
        check(24, Nothing, true, 44);
        check(40, Nothing, true, 45);
        check(1, Nothing, false, 90);
        check(40, Thoughts, true, 60);
        check(1, Thoughts, false, 90);
        check(40, Words, true, 60);
        check(40, Words, false, 60);
        check(80, Words, false, 90);
    }
}
