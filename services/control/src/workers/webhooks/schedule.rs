//! The delays between the attempts of a delivery: they grow to about a day in total, with jitter,
//! so that attempts do not synchronise.

use std::time::Duration;

/// The delay after the first attempt, after the second, …. After the last one, the delivery fails.
const RETRY_DELAYS_S: [u32; 8] = [5, 30, 120, 600, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600];
/// The maximum deviation, as a fraction of the delay.
const JITTER: f64 = 0.2;

/// The delay after an attempt, counted from 1. `None` after the last one.
pub(super) fn retry_delay(attempt: i32) -> Option<Duration> {
    let index = usize::try_from(attempt.saturating_sub(1)).ok()?;
    let delay = RETRY_DELAYS_S.get(index).copied()?;
    let factor = 1.0 + JITTER * (2.0 * rand::random::<f64>() - 1.0);
    Some(Duration::from_secs(delay.into()).mul_f64(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_grow_to_a_day_in_total() {
        let delays: Vec<_> = (1..).map_while(retry_delay).collect();
        assert_eq!(delays.len(), 8);
        assert!(delays.is_sorted(), "{delays:?}");
        let total: Duration = delays.iter().sum();
        let hours = total.as_secs() / 3_600;
        assert!((17..=27).contains(&hours), "{hours}");
        assert!((4..=6).contains(&delays[0].as_secs()), "{delays:?}");
        assert_eq!((retry_delay(0), retry_delay(i32::MAX)), (None, None));
    }
}
