//! The lease of this node, and the clock that its renewals read.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{backend::LEASE, clock::unix_time};

/// The longest round trip whose reading of the shared clock replaces another. The error is at most half
/// of it.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(200);
/// The same while the clock is unknown. A connection with a longer one is not verified.
const MAX_FIRST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// The offset of a clock that is not known.
const UNKNOWN: i64 = i64::MIN;
/// The end of a lease that was never renewed.
const NEVER: u64 = u64::MAX;
const NO_PROBE: u64 = 0;

/// The lease of this node, and the shared clock: the one of the backend, by which leases end.
///
/// The clocks of nodes differ. A deadline that travels between nodes is a time of the shared clock,
/// so that the time that a message waits, in a socket or in a stopped process, counts. Each node
/// learns its offset from the answer to a renewal:
///
/// ```text
///   renewal sent ─────────► backend reads its clock ─────────► answer received
///        └──── the reading belongs to the middle, ± half of the round trip ────┘
/// ```
///
/// After a reconnect the clock is unknown until the next renewal: another server may answer. While it
/// is unknown, this node executes no call with a deadline on it, because the call may have waited, and
/// sends none without such a deadline ([`Self::clock_known`]).
///
/// A process that was suspended may hold messages that are older than its lease: other nodes have lost
/// their calls, and its devices may be elsewhere ([`Self::is_over`]). The renewal may overtake them, on
/// another socket, so the lease counts again when a probe of this node has come through its inbox after
/// the renewal:
///
/// ```text
///   counts ─── end passed ───► over ─── renewed ───► over, awaits a probe ─── probe received ───► counts
///                                ▲                              │
///                                └────────── end passed ────────┘
/// ```
///
/// Invariant: the end that a node assumes for its own lease is not later than the backend's.
pub(crate) struct OwnLease {
    /// The times below are microseconds since then.
    origin: Instant,
    /// The shared clock in Unix microseconds, minus this node's time.
    offset_us: AtomicI64,
    end_us: AtomicU64,
    /// The probe that has to come through the inbox; [`NO_PROBE`] while none has to.
    awaited_probe: AtomicU64,
    clock_learnt: Notify,
}

impl OwnLease {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            offset_us: AtomicI64::new(UNKNOWN),
            end_us: AtomicU64::new(NEVER),
            awaited_probe: AtomicU64::new(NO_PROBE),
            clock_learnt: Notify::new(),
        }
    }

    /// Records a renewal that was sent at this time and has just been answered. `shared` is the
    /// backend's clock, since the Unix epoch. Returns whether the lease had ended: other nodes may have
    /// removed the entries of this one.
    pub(crate) fn renewed(&self, sent: Instant, shared: Duration) -> bool {
        let had_ended = self.has_ended(Instant::now());
        if had_ended {
            // Before the end is moved: the lease is over all the time.
            let probe = rand::random_range(1..=u64::MAX);
            self.awaited_probe.store(probe, Ordering::Release);
        }
        let end = self.micros(sent + LEASE);
        self.end_us.store(end.unsigned_abs(), Ordering::Release);
        let round_trip = sent.elapsed();
        let max = match self.offset() {
            Some(_) => MAX_ROUND_TRIP,
            None => MAX_FIRST_ROUND_TRIP,
        };
        if round_trip <= max {
            let shared = i64::try_from(shared.as_micros()).unwrap_or_default();
            let offset = shared - self.micros(sent + round_trip / 2);
            self.offset_us.store(offset, Ordering::Release);
            self.clock_learnt.notify_waiters();
        }
        had_ended
    }

    /// Whether the shared clock is known.
    pub(crate) fn knows_clock(&self) -> bool {
        self.offset().is_some()
    }

    /// Waits until the shared clock is known.
    pub(crate) async fn clock_known(&self) {
        loop {
            let learnt = self.clock_learnt.notified();
            if self.knows_clock() {
                return;
            }
            learnt.await;
        }
    }

    /// The backend may be another server from now on.
    pub(crate) fn forget_clock(&self) {
        self.offset_us.store(UNKNOWN, Ordering::Release);
    }

    /// The probe that this node sends to its own inbox, if it awaits one.
    pub(crate) fn awaited_probe(&self) -> Option<u64> {
        let probe = self.awaited_probe.load(Ordering::Acquire);
        (probe != NO_PROBE).then_some(probe)
    }

    /// A probe of this node came through its inbox.
    pub(crate) fn probe_received(&self, nonce: u64) {
        // Another one does not count, nor one that was sent before the latest renewal.
        let _ = self.awaited_probe.compare_exchange(
            nonce,
            NO_PROBE,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Whether calls that arrive may be older than a lease of this node that has ended.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.has_ended(now) || self.awaited_probe().is_some()
    }

    fn has_ended(&self, now: Instant) -> bool {
        let end = self.end_us.load(Ordering::Acquire);
        self.micros(now).unsigned_abs() > end
    }

    /// A time of this node on the shared clock, in Unix milliseconds; `None` while that is unknown.
    pub(crate) fn shared_ms(&self, at: Instant) -> Option<u64> {
        let offset = self.offset()?;
        u64::try_from((self.micros(at) + offset) / 1_000).ok()
    }

    /// How long it is from `now` until this time of the shared clock, in Unix milliseconds; zero when
    /// it has passed, `None` while the clock is unknown.
    pub(crate) fn until(&self, shared_ms: u64, now: Instant) -> Option<Duration> {
        let now_ms = self.shared_ms(now)?;
        Some(Duration::from_millis(shared_ms.saturating_sub(now_ms)))
    }

    /// How long ago this time of the shared clock was, in Unix milliseconds; zero if it is yet to come,
    /// `None` while the clock is unknown.
    pub(crate) fn elapsed_since(&self, shared_ms: u64) -> Option<Duration> {
        let now_ms = self.shared_ms(Instant::now())?;
        Some(Duration::from_millis(now_ms.saturating_sub(shared_ms)))
    }

    /// Seconds since the Unix epoch on the shared clock, or on this node's while that is unknown.
    pub(crate) fn unix_s(&self) -> u64 {
        let shared = self.shared_ms(Instant::now());
        shared.map_or_else(|| unix_time().as_secs(), |ms| ms / 1_000)
    }

    fn offset(&self) -> Option<i64> {
        let offset = self.offset_us.load(Ordering::Acquire);
        (offset != UNKNOWN).then_some(offset)
    }

    fn micros(&self, at: Instant) -> i64 {
        let micros = at.saturating_duration_since(self.origin).as_micros();
        i64::try_from(micros).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(1_800_000_000);

    #[tokio::test(start_paused = true)]
    async fn clock_is_read_in_the_middle_of_a_round_trip() {
        let lease = OwnLease::new();
        let sent = Instant::now();
        let until = |shared_ms| lease.until(shared_ms, Instant::now());
        assert_eq!(until(0), None);
        tokio::time::advance(Duration::from_millis(100)).await;
        lease.renewed(sent, NOON);
        let noon_ms = 1_800_000_000_000;
        assert_eq!(lease.shared_ms(Instant::now()), Some(noon_ms + 50));
        assert_eq!(until(noon_ms + 80), Some(Duration::from_millis(30)));
        assert_eq!(until(noon_ms), Some(Duration::ZERO));
        let elapsed = lease.elapsed_since(noon_ms);
        assert_eq!(elapsed, Some(Duration::from_millis(50)));
        assert_eq!(lease.elapsed_since(noon_ms + 80), Some(Duration::ZERO));
        lease.forget_clock();
        assert_eq!(lease.shared_ms(Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_renewal_extends_the_lease_and_replaces_no_clock() {
        let lease = OwnLease::new();
        let sent = Instant::now();
        lease.renewed(sent, NOON);
        let slow = MAX_ROUND_TRIP + Duration::from_millis(1);
        tokio::time::advance(slow).await;
        assert!(!lease.is_over(Instant::now()));
        lease.renewed(sent, 2 * NOON);
        let noon_ms = 1_800_000_000_000;
        assert_eq!(lease.shared_ms(sent), Some(noon_ms));
        // It is better than nothing.
        lease.forget_clock();
        lease.renewed(sent, NOON);
        assert_eq!(lease.shared_ms(sent + slow / 2), Some(noon_ms));
        tokio::time::advance(LEASE - MAX_ROUND_TRIP - Duration::from_millis(1)).await;
        assert!(!lease.is_over(Instant::now()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(lease.is_over(Instant::now()));
        assert!(lease.renewed(Instant::now(), NOON));
        assert!(!lease.renewed(Instant::now(), NOON));
    }
}
