//! The order of providers, without requests and with a paused clock.

use super::*;
use crate::settings::{LimitField, ModelSettings, Prices, Settings};
use http::Uri;
use switchboard_runtime::outbound;

const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Providers `0`, `1` and so on, each with the models `own` and `other`.
fn endpoints(count: usize) -> Vec<Endpoint> {
    let model = |name: &str| ModelSettings {
        name: name.to_owned(),
        prices: Prices::default(),
        sees_pictures: false,
    };
    let client = outbound::client(true).unwrap();
    let settings = (0..count).map(|number| Settings {
        name: number.to_string(),
        endpoint: Uri::from_static("http://a/v1"),
        model: model("own"),
        models: vec![model("other")],
        key: None,
        limit_field: LimitField::MaxTokens,
    });
    settings
        .map(|settings| Endpoint::new(settings, client.clone()).unwrap())
        .collect()
}

fn queue(endpoints: &[Endpoint]) -> ProviderQueue<'_> {
    ProviderQueue::new(endpoints, None, Instant::now() + REPLY_TIMEOUT)
}

fn rejected(cause: RejectCause) -> Failure {
    Failure::Rejected {
        reason: "no".to_owned(),
        cause,
    }
}

#[track_caller]
fn assert_sends(queue: &ProviderQueue<'_>, index: usize) {
    let next = queue.next();
    assert!(
        matches!(next, NextStep::Send(found) if found == index),
        "{next:?}"
    );
}

/// The wait before the next request, in milliseconds.
#[track_caller]
fn wait_ms(queue: &ProviderQueue<'_>) -> u128 {
    match queue.next() {
        NextStep::Wait(until) => (until - Instant::now()).as_millis(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_fails(queue: &ProviderQueue<'_>, kind: &str) {
    let next = queue.next();
    assert!(
        matches!(&next, NextStep::Fail(error) if error.kind() == kind),
        "{next:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_provider_is_retried_after_growing_pauses() {
    let endpoints = endpoints(1);
    let mut queue = queue(&endpoints);
    for (min_ms, max_ms) in [(187, 313), (750, 1_251), (1_500, 2_501)] {
        assert_sends_after_wait(&mut queue);
        queue.record_failure(0, &Failure::unavailable("502"));
        let wait = wait_ms(&queue);
        assert!((min_ms..max_ms).contains(&wait), "{wait}");
    }
    assert_sends_after_wait(&mut queue);
    queue.record_failure(0, &Failure::unavailable("502"));
    assert_fails(&queue, "unavailable");
}

/// Ends the wait, and expects a request.
fn assert_sends_after_wait(queue: &mut ProviderQueue<'_>) {
    for candidate in &mut queue.candidates {
        if let State::RetryAt(at) = &mut candidate.state {
            *at = Instant::now();
        }
    }
    assert_sends(queue, 0);
}

#[tokio::test(start_paused = true)]
async fn providers_are_retried_after_all_others() {
    let endpoints = endpoints(3);
    let mut queue = queue(&endpoints);
    queue.record_failure(0, &Failure::unavailable("502"));
    assert_sends(&queue, 1);
    queue.record_failure(1, &Failure::interrupted("reset"));
    assert_sends(&queue, 2);
    queue.record_failure(2, &rejected(RejectCause::Request));
    assert!(wait_ms(&queue) < 400);
    // There is no retry after the deadline.
    queue.deadline = Instant::now() + Duration::from_millis(100);
    assert_fails(&queue, "unavailable");
}

#[tokio::test(start_paused = true)]
async fn requested_pause_delays_the_retry() {
    let endpoints = endpoints(1);
    let mut queue = queue(&endpoints);
    let failure = Failure::Unavailable {
        reason: "503".to_owned(),
        recovery: Recovery::RetryAfter(Duration::from_secs(9)),
    };
    queue.record_failure(0, &failure);
    assert!(wait_ms(&queue) > 8_000);
}

#[tokio::test(start_paused = true)]
async fn provider_in_cooldown_goes_last_and_is_reported_once() {
    let failures = [
        Failure::unavailable("502"),
        rejected(RejectCause::Caller),
        rejected(RejectCause::Model),
    ];
    for failure in failures {
        let endpoints = endpoints(2);
        let mut first = queue(&endpoints);
        assert!(first.record_failure(0, &failure), "{failure:?}");
        let mut second = queue(&endpoints);
        assert_sends(&second, 1);
        second.record_failure(1, &rejected(RejectCause::Request));
        // No other candidate is left.
        assert_sends(&second, 0);
        assert!(!second.record_failure(0, &failure), "{failure:?}");
        let third = queue(&endpoints);
        third.candidates[0].record_success();
        assert_sends(&third, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_model_does_not_affect_other_models() {
    let endpoints = endpoints(2);
    let preference = ModelPreference {
        provider: "0".to_owned(),
        model: "other".to_owned(),
    };
    let deadline = Instant::now() + REPLY_TIMEOUT;
    let mut other_model = ProviderQueue::new(&endpoints, Some(&preference), deadline);
    other_model.record_failure(0, &rejected(RejectCause::Model));
    assert_sends(
        &ProviderQueue::new(&endpoints, Some(&preference), deadline),
        1,
    );
    assert_sends(&queue(&endpoints), 0);
    other_model.record_failure(0, &rejected(RejectCause::Caller));
    assert_sends(&queue(&endpoints), 1);
}

#[tokio::test(start_paused = true)]
async fn interrupted_or_rejected_request_starts_no_cooldown() {
    let failures = [
        Failure::interrupted("slow"),
        Failure::Invalid("no JSON".to_owned()),
        rejected(RejectCause::Request),
        rejected(RejectCause::Temperature),
    ];
    for failure in failures {
        let endpoints = endpoints(2);
        assert!(queue(&endpoints).record_failure(0, &failure));
        assert_sends(&queue(&endpoints), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn time_is_left_only_for_a_usable_fallback() {
    #[track_caller]
    fn check(failure: &Failure, same_reply: bool, expected: bool) {
        let endpoints = endpoints(2);
        let mut other = queue(&endpoints);
        other.record_failure(1, failure);
        let found = if same_reply { other } else { queue(&endpoints) };
        let deadlines = found.deadlines_for(0, REPLY_TIMEOUT);
        assert_eq!(deadlines.failover_at.is_some(), expected, "{failure:?}");
    }
    let busy = |after| Failure::Busy { after };
    check(&Failure::unavailable("502"), false, true);
    check(&Failure::unavailable("502"), true, false);
    check(&rejected(RejectCause::Caller), false, false);
    check(&rejected(RejectCause::Request), false, true);
    check(&busy(Duration::from_secs(9)), true, true);
    check(&busy(2 * REPLY_TIMEOUT), false, false);
    let endpoints = endpoints(1);
    assert_eq!(
        queue(&endpoints)
            .deadlines_for(0, REPLY_TIMEOUT)
            .failover_at,
        None
    );
}
