//! Providers that take their time: some think, some wake up, some are not there any more.
//! Never: one taken for dead that is alive, or another one kept from its turn.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::Semaphore,
    time::{Instant, interval},
};

use crate::{
    provider::{Act, end, event, head, piece, saying, says},
    stage::{LONG, Outcome, Stage},
};

const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
const THINKS: &str = r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#;
/// Between two signs of life, and how many of them there are: together longer than a pause may be, which is far longer than one step.
const STEP: Duration = Duration::from_millis(250);
const STEPS: usize = 15;
const PAUSE: Duration = Duration::from_secs(3);

/// The outcome when this gate is opened step by step, for so many steps.
async fn step_by_step(stage: &Stage, gate: &Semaphore, within: Duration, steps: usize) -> Outcome {
    let opens = async {
        let mut steady = interval(STEP);
        for _ in 0..steps {
            steady.tick().await;
            gate.add_permits(1);
        }
    };
    let (outcome, ()) = tokio::join!(stage.ask_within(within), opens);
    outcome
}

/// The outcome when the gate is opened once, and so late.
async fn opened_after(
    stage: &Stage,
    gate: &Semaphore,
    within: Duration,
    after: Duration,
) -> Outcome {
    let opens = async {
        tokio::time::sleep_until(Instant::now() + after).await;
        gate.add_permits(1);
    };
    let (outcome, ()) = tokio::join!(stage.ask_within(within), opens);
    outcome
}

/// A provider that goes on like this for longer than a pause may be, and then speaks.
async fn is_waited_for(begins: Vec<Act>, sign: Act) {
    let gate = Arc::new(Semaphore::new(0));
    let steps = std::iter::repeat_n([Act::Await(Arc::clone(&gate)), sign.clone()], STEPS);
    let acts = [head()].into_iter().chain(begins).chain(steps.flatten());
    let last = [piece(b"\n\n"), event(&says("b")), event("[DONE]"), end()];
    let scripts = vec![vec![acts.chain(last).collect()], Vec::new()];
    let stage = Stage::hurried(PAUSE, scripts).await;
    let outcome = step_by_step(&stage, &gate, LONG, STEPS).await;
    assert_eq!(outcome.heard.last().unwrap(), "b", "{sign:?}");
    assert_eq!(stage.times_asked(), [1, 0], "{sign:?}");
}

#[tokio::test]
async fn any_event_or_comment_is_a_sign_of_life() {
    // Before the first word, and between words.
    for begins in [Vec::new(), vec![event(&says("a"))]] {
        let signs = [event(ROLE), event("{}"), piece(b": wait\n\n"), piece(b":")];
        let each = stream::iter(signs);
        each.for_each_concurrent(None, |sign| is_waited_for(begins.clone(), sign))
            .await;
    }
}

#[tokio::test]
async fn the_only_one_may_be_slow_with_its_first_word() {
    let begins = [
        vec![],
        vec![head()],
        vec![head(), event(ROLE)],
        vec![head(), event(THINKS)],
    ];
    stream::iter(begins)
        .for_each_concurrent(None, async |begins| {
            let gate = Arc::new(Semaphore::new(0));
            let rest = if begins.is_empty() {
                saying("a")
            } else {
                vec![event(&says("a")), event("[DONE]"), end()]
            };
            let acts = [begins.clone(), vec![Act::Await(Arc::clone(&gate))], rest].concat();
            let stage = Stage::hurried(PAUSE, vec![vec![acts]]).await;
            let outcome = opened_after(&stage, &gate, 2 * LONG, 2 * PAUSE).await;
            assert_eq!(outcome.heard, ["a"], "{begins:?}");
            assert_eq!(stage.times_asked(), [1]);
        })
        .await;
}

#[tokio::test]
async fn another_is_asked_when_one_says_nothing() {
    let silent = [(vec![Act::Hold], [1, 2]), (vec![head(), Act::Hold], [2, 2])];
    stream::iter(silent)
        .for_each_concurrent(None, async |(silent, times)| {
            let scripts = vec![
                vec![silent.clone(), silent.clone()],
                vec![saying("b"), saying("b")],
            ];
            let stage = Stage::hurried(PAUSE, scripts).await;
            for _ in 0..2 {
                assert_eq!(stage.ask().await.reply().provider, "b");
            }
            // Of whom there is no sign at all is left alone for a while.
            assert_eq!(stage.times_asked(), times, "{silent:?}");
        })
        .await;
}

#[tokio::test]
async fn half_of_the_time_is_for_another_and_who_was_alive_does_not_rest() {
    let slow = [vec![Act::Hold], vec![head(), event(ROLE), Act::Hold]];
    stream::iter(slow)
        .for_each_concurrent(None, async |slow| {
            let is_alive = slow.len() > 1;
            let stage = Stage::set(vec![
                vec![slow, saying("a")],
                vec![saying("b"), saying("b")],
            ])
            .await;
            let outcome = stage.ask_within(3 * PAUSE).await;
            assert_eq!(outcome.reply().provider, "b");
            let next = stage.ask().await.reply().provider;
            assert_eq!(next, if is_alive { "a" } else { "b" });
        })
        .await;
}

#[tokio::test]
async fn a_provider_that_thinks_for_long_is_not_silent() {
    let gate = Arc::new(Semaphore::new(0));
    let acts = vec![
        head(),
        event(THINKS),
        Act::Await(Arc::clone(&gate)),
        event(&says("a")),
        event("[DONE]"),
        end(),
    ];
    let stage = Stage::set(vec![vec![acts], Vec::new()]).await;
    // More than half of the time is over when it speaks.
    let outcome = opened_after(&stage, &gate, 4 * PAUSE, 2 * PAUSE + STEP).await;
    assert_eq!(outcome.heard, ["a"]);
    assert_eq!(stage.times_asked(), [1, 0]);
}
