//! When a delivery that did not arrive is attempted again.
//! Never: two endpoints that come back in step, or an end that is further away than a day or so.

use std::time::Duration;

/// After the first attempt, after the second, …; after the last one it is given up.
const PAUSES_S: [u32; 8] = [5, 30, 120, 600, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600];
/// How much earlier or later it may be, as a part of the pause.
const JITTER: f64 = 0.2;

/// How long to wait after this attempt, counted from 1; nothing when it was the last one.
pub(super) fn pause_after(attempt: i32) -> Option<Duration> {
    let index = usize::try_from(attempt.saturating_sub(1)).ok()?;
    let pause = PAUSES_S.get(index).copied()?;
    let factor = 1.0 + JITTER * (2.0 * rand::random::<f64>() - 1.0);
    Some(Duration::from_secs(pause.into()).mul_f64(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_day_altogether() {
        let pauses: Vec<_> = (1..).map_while(pause_after).collect();
        assert_eq!(pauses.len(), 8);
        assert!(pauses.is_sorted(), "{pauses:?}");
        let whole: Duration = pauses.iter().sum();
        let hours = whole.as_secs() / 3_600;
        assert!((17..=27).contains(&hours), "{hours}");
        assert!((4..=6).contains(&pauses[0].as_secs()), "{pauses:?}");
        assert_eq!((pause_after(0), pause_after(i32::MAX)), (None, None));
    }
}
