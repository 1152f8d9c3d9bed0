//! Who is asked next, without anybody who is asked.
//! Never: a clock that is waited for.

use super::*;
use crate::settings::{LimitField, Listed, Prices, Settings};
use http::Uri;
use switchboard_runtime::outbound;

const MINUTE: Duration = Duration::from_secs(60);

/// Providers `0`, `1` and so on, each with the models `own` and `other`.
fn endpoints(count: usize) -> Vec<Endpoint> {
    let listed = |name: &str| Listed {
        name: name.to_owned(),
        prices: Prices::default(),
    };
    let client = outbound::client(true).unwrap();
    let settings = (0..count).map(|number| Settings {
        name: number.to_string(),
        endpoint: Uri::from_static("http://a/v1"),
        model: listed("own"),
        models: vec![listed("other")],
        key: None,
        limit_field: LimitField::MaxTokens,
    });
    settings
        .map(|settings| Endpoint::new(settings, client.clone()).unwrap())
        .collect()
}

fn round(endpoints: &[Endpoint]) -> Round<'_> {
    Round::new(endpoints, None, Instant::now() + MINUTE)
}

fn refused(about: About) -> Failure {
    Failure::Refused {
        reason: "no".to_owned(),
        about,
    }
}

#[track_caller]
fn asks(round: &Round<'_>, place: usize) {
    let next = round.next();
    assert!(
        matches!(next, Next::Ask(found) if found == place),
        "{next:?}"
    );
}

/// How long is waited, in milliseconds.
#[track_caller]
fn waits(round: &Round<'_>) -> u128 {
    match round.next() {
        Next::Wait(until) => (until - Instant::now()).as_millis(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn ends(round: &Round<'_>, kind: &str) {
    let next = round.next();
    assert!(
        matches!(&next, Next::End(error) if error.kind() == kind),
        "{next:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_only_one_is_asked_again_after_ever_longer_pauses() {
    let endpoints = endpoints(1);
    let mut round = round(&endpoints);
    for (least, most) in [(187, 313), (750, 1_251), (1_500, 2_501)] {
        asks_at_last(&mut round);
        round.failed(0, &Failure::unavailable("502"));
        let pause = waits(&round);
        assert!((least..most).contains(&pause), "{pause}");
    }
    asks_at_last(&mut round);
    round.failed(0, &Failure::unavailable("502"));
    ends(&round, "unavailable");
}

/// The one that is waited for is ready.
fn asks_at_last(round: &mut Round<'_>) {
    for seat in &mut round.seats {
        if let State::Again(from) = &mut seat.state {
            *from = Instant::now();
        }
    }
    asks(round, 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_again_while_another_is_left() {
    let endpoints = endpoints(3);
    let mut round = round(&endpoints);
    round.failed(0, &Failure::unavailable("502"));
    asks(&round, 1);
    round.failed(1, &Failure::interrupted("reset"));
    asks(&round, 2);
    round.failed(2, &refused(About::Request));
    assert!(waits(&round) < 400);
    // Nor beyond the deadline.
    round.deadline = Instant::now() + Duration::from_millis(100);
    ends(&round, "unavailable");
}

#[tokio::test(start_paused = true)]
async fn one_that_wants_to_be_left_alone_is_not_asked_again_before() {
    let endpoints = endpoints(1);
    let mut round = round(&endpoints);
    let failure = Failure::Unavailable {
        reason: "503".to_owned(),
        rest: Recovery::Wanted(Duration::from_secs(9)),
    };
    round.failed(0, &failure);
    assert!(waits(&round) > 8_000);
}

#[tokio::test(start_paused = true)]
async fn one_that_rests_comes_last_and_is_news_once() {
    let failures = [
        Failure::unavailable("502"),
        refused(About::Caller),
        refused(About::Model),
    ];
    for failure in failures {
        let endpoints = endpoints(2);
        let mut first = round(&endpoints);
        assert!(first.failed(0, &failure), "{failure:?}");
        let mut second = round(&endpoints);
        asks(&second, 1);
        second.failed(1, &refused(About::Request));
        // Nobody else is left: better one that is not well than none.
        asks(&second, 0);
        assert!(!second.failed(0, &failure), "{failure:?}");
        let third = round(&endpoints);
        third.seats[0].replied();
        asks(&third, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_refused_leaves_the_others_alone() {
    let endpoints = endpoints(2);
    let preferred = Preferred {
        provider: "0".to_owned(),
        model: "other".to_owned(),
    };
    let deadline = Instant::now() + MINUTE;
    let mut wished = Round::new(&endpoints, Some(&preferred), deadline);
    wished.failed(0, &refused(About::Model));
    asks(&Round::new(&endpoints, Some(&preferred), deadline), 1);
    asks(&round(&endpoints), 0);
    wished.failed(0, &refused(About::Caller));
    asks(&round(&endpoints), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_alive_or_refused_one_request_does_not_rest() {
    let failures = [
        Failure::interrupted("slow"),
        Failure::Broken("no JSON".to_owned()),
        refused(About::Request),
        refused(About::Temperature),
    ];
    for failure in failures {
        let endpoints = endpoints(2);
        assert!(round(&endpoints).failed(0, &failure));
        asks(&round(&endpoints), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn another_wants_its_turn_only_when_there_is_hope_for_it() {
    #[track_caller]
    fn check(failure: &Failure, same_round: bool, expected: bool) {
        let endpoints = endpoints(2);
        let mut other = round(&endpoints);
        other.failed(1, failure);
        let found = if same_round { other } else { round(&endpoints) };
        let patience = found.patience_for(0, MINUTE);
        assert_eq!(patience.turn.is_some(), expected, "{failure:?}");
    }
    let busy = |after| Failure::Busy { after };
    check(&Failure::unavailable("502"), false, true);
    check(&Failure::unavailable("502"), true, false);
    check(&refused(About::Caller), false, false);
    check(&refused(About::Request), false, true);
    check(&busy(Duration::from_secs(9)), true, true);
    check(&busy(2 * MINUTE), false, false);
    let endpoints = endpoints(1);
    assert_eq!(round(&endpoints).patience_for(0, MINUTE).turn, None);
}
