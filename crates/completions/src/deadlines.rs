//! Deadlines of one request to a provider.

use std::time::Duration;

use tokio::time::Instant;

/// How far a reply has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// No output; at most keep-alive comments.
    #[default]
    Nothing,
    /// Reasoning only.
    Reasoning,
    /// Text, or a part of a call.
    Content,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// Deadline of the whole completion.
    pub deadline: Instant,
    /// Maximum pause between two pieces of the response.
    pub idle_timeout: Duration,
    /// When the request is sent.
    pub sent_at: Instant,
    /// When another provider must get its chance; `None` when this is the last one.
    pub failover_at: Option<Instant>,
}

impl Deadlines {
    /// Deadline of the response headers.
    pub(crate) fn headers(&self) -> Instant {
        self.failover_at.map_or(self.deadline, |failover_at| {
            failover_at.min(self.idle_deadline(self.sent_at))
        })
    }

    /// Deadline of a body that is not streamed.
    pub(crate) fn whole_body(&self) -> Instant {
        self.failover_at.unwrap_or(self.deadline)
    }

    /// Deadline of the next event. The last provider may be slow until its first text.
    pub(crate) fn next_event(&self, last_activity: Instant, progress: Progress) -> Instant {
        let idle_deadline = self.idle_deadline(last_activity);
        match (progress, self.failover_at) {
            (Progress::Content, _) | (Progress::Reasoning, Some(_)) => idle_deadline,
            (Progress::Nothing, Some(failover_at)) => failover_at.min(idle_deadline),
            (Progress::Nothing | Progress::Reasoning, None) => self.deadline,
        }
    }

    fn idle_deadline(&self, last_activity: Instant) -> Instant {
        let end = last_activity.checked_add(self.idle_timeout);
        end.unwrap_or(self.deadline).min(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn deadlines(sent_at: Instant, idle_s: u64, has_fallback: bool) -> Deadlines {
        Deadlines {
            deadline: sent_at + seconds(90),
            idle_timeout: seconds(idle_s),
            sent_at,
            failover_at: has_fallback.then(|| sent_at + seconds(45)),
        }
    }

    #[test]
    fn headers_time_out_early_only_with_a_fallback() {
        let sent_at = Instant::now();
        let check = |idle_s: u64, has_fallback: bool, expected_s: u64| {
            let deadline = deadlines(sent_at, idle_s, has_fallback).headers();
            assert_eq!(
                deadline,
                sent_at + seconds(expected_s),
                "{idle_s} {has_fallback}"
            );
        };
        check(20, true, 20);
        check(60, true, 45);
        check(20, false, 90);
    }

    #[test]
    fn active_provider_gets_more_time() {
        use Progress::{Content, Nothing, Reasoning};
        let sent_at = Instant::now();
        let check = |activity_s: u64, progress: Progress, has_fallback: bool, expected_s: u64| {
            let deadlines = deadlines(sent_at, 20, has_fallback);
            let deadline = deadlines.next_event(sent_at + seconds(activity_s), progress);
            assert_eq!(
                deadline,
                sent_at + seconds(expected_s),
                "{activity_s} {progress:?} {has_fallback}"
            );
        };
        check(1, Nothing, true, 21);
        check(24, Nothing, true, 44);
        check(40, Nothing, true, 45);
        check(1, Nothing, false, 90);
        check(40, Reasoning, true, 60);
        check(1, Reasoning, false, 90);
        check(40, Content, true, 60);
        check(40, Content, false, 60);
        check(80, Content, false, 90);
    }
}
