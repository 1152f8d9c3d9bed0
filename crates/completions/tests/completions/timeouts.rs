//! Slow providers and timeouts.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::Semaphore,
    time::{Instant, interval},
};

use crate::{
    fake_provider::{Step, end, event, head, piece, reply_with, text_chunk},
    fixture::{Fixture, Outcome, REPLY_TIMEOUT},
};

const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
const REASONING: &str = r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#;
/// Interval and number of events: together longer than the idle timeout, which is far longer than
/// one interval.
const STEP_INTERVAL: Duration = Duration::from_millis(250);
const STEPS: usize = 15;
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// A completion while the gate is opened in intervals.
async fn step_by_step(
    fixture: &Fixture,
    gate: &Semaphore,
    within: Duration,
    steps: usize,
) -> Outcome {
    let open = async {
        let mut steady = interval(STEP_INTERVAL);
        for _ in 0..steps {
            steady.tick().await;
            gate.add_permits(1);
        }
    };
    let (outcome, ()) = tokio::join!(fixture.complete_within(within), open);
    outcome
}

/// A completion while the gate is opened once, after a delay.
async fn opened_after(
    fixture: &Fixture,
    gate: &Semaphore,
    within: Duration,
    after: Duration,
) -> Outcome {
    let open = async {
        tokio::time::sleep_until(Instant::now() + after).await;
        gate.add_permits(1);
    };
    let (outcome, ()) = tokio::join!(fixture.complete_within(within), open);
    outcome
}

/// Expects a reply from a provider that sends `sign` for longer than the idle timeout, and then
/// text.
async fn assert_stays_active(start: Vec<Step>, sign: Step) {
    let gate = Arc::new(Semaphore::new(0));
    let steps = std::iter::repeat_n([Step::Wait(Arc::clone(&gate)), sign.clone()], STEPS);
    let steps = [head()].into_iter().chain(start).chain(steps.flatten());
    let last = [
        piece(b"\n\n"),
        event(&text_chunk("b")),
        event("[DONE]"),
        end(),
    ];
    let scripts = vec![vec![steps.chain(last).collect()], Vec::new()];
    let fixture = Fixture::with_idle_timeout(IDLE_TIMEOUT, scripts).await;
    let outcome = step_by_step(&fixture, &gate, REPLY_TIMEOUT, STEPS).await;
    assert_eq!(outcome.texts.last().unwrap(), "b", "{sign:?}");
    assert_eq!(fixture.request_counts(), [1, 0], "{sign:?}");
}

#[tokio::test]
async fn events_and_comments_count_as_activity() {
    // Before the first text, and between texts.
    for start in [Vec::new(), vec![event(&text_chunk("a"))]] {
        let signs = [event(ROLE), event("{}"), piece(b": wait\n\n"), piece(b":")];
        let fakes = stream::iter(signs);
        fakes
            .for_each_concurrent(None, |sign| assert_stays_active(start.clone(), sign))
            .await;
    }
}

#[tokio::test]
async fn only_provider_may_be_slow() {
    let start = [
        vec![],
        vec![head()],
        vec![head(), event(ROLE)],
        vec![head(), event(REASONING)],
    ];
    stream::iter(start)
        .for_each_concurrent(None, async |start| {
            let gate = Arc::new(Semaphore::new(0));
            let rest = if start.is_empty() {
                reply_with("a")
            } else {
                vec![event(&text_chunk("a")), event("[DONE]"), end()]
            };
            let steps = [start.clone(), vec![Step::Wait(Arc::clone(&gate))], rest].concat();
            let fixture = Fixture::with_idle_timeout(IDLE_TIMEOUT, vec![vec![steps]]).await;
            let outcome = opened_after(&fixture, &gate, 2 * REPLY_TIMEOUT, 2 * IDLE_TIMEOUT).await;
            assert_eq!(outcome.texts, ["a"], "{start:?}");
            assert_eq!(fixture.request_counts(), [1]);
        })
        .await;
}

#[tokio::test]
async fn silent_provider_fails_over() {
    let silent = [
        (vec![Step::Hold], [1, 2]),
        (vec![head(), Step::Hold], [2, 2]),
    ];
    stream::iter(silent)
        .for_each_concurrent(None, async |(silent, times)| {
            let scripts = vec![
                vec![silent.clone(), silent.clone()],
                vec![reply_with("b"), reply_with("b")],
            ];
            let fixture = Fixture::with_idle_timeout(IDLE_TIMEOUT, scripts).await;
            for _ in 0..2 {
                assert_eq!(fixture.complete().await.reply().provider, "b");
            }
            // A provider without any response has a cooldown.
            assert_eq!(fixture.request_counts(), times, "{silent:?}");
        })
        .await;
}

#[tokio::test]
async fn fallback_gets_half_of_the_time() {
    let slow = [vec![Step::Hold], vec![head(), event(ROLE), Step::Hold]];
    stream::iter(slow)
        .for_each_concurrent(None, async |slow| {
            let is_alive = slow.len() > 1;
            let fixture = Fixture::start(vec![
                vec![slow, reply_with("a")],
                vec![reply_with("b"), reply_with("b")],
            ])
            .await;
            let outcome = fixture.complete_within(3 * IDLE_TIMEOUT).await;
            assert_eq!(outcome.reply().provider, "b");
            let next = fixture.complete().await.reply().provider;
            assert_eq!(next, if is_alive { "a" } else { "b" });
        })
        .await;
}

#[tokio::test]
async fn reasoning_provider_is_not_silent() {
    let gate = Arc::new(Semaphore::new(0));
    let steps = vec![
        head(),
        event(REASONING),
        Step::Wait(Arc::clone(&gate)),
        event(&text_chunk("a")),
        event("[DONE]"),
        end(),
    ];
    let fixture = Fixture::start(vec![vec![steps], Vec::new()]).await;
    // The text arrives after more than half of the time.
    let outcome = opened_after(
        &fixture,
        &gate,
        4 * IDLE_TIMEOUT,
        2 * IDLE_TIMEOUT + STEP_INTERVAL,
    )
    .await;
    assert_eq!(outcome.texts, ["a"]);
    assert_eq!(fixture.request_counts(), [1, 0]);
}
