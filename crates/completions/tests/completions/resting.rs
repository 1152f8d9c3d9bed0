//! Providers that are left alone for a while.
//! Never: one that is asked meanwhile.

use std::time::Duration;

use chrono::Utc;
use switchboard_completions::CompletionError;

use crate::{
    provider::{Act, plain, saying},
    stage::Stage,
};

fn busy(after: &str) -> Vec<Act> {
    let body = r#"{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}"#;
    plain(429, &format!("retry-after: {after}\r\n"), body)
}

/// A date so many seconds from now, as HTTP writes it.
fn date(seconds: u64) -> String {
    let date = Utc::now() + Duration::from_secs(seconds);
    date.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[tokio::test]
async fn one_that_has_too_much_to_do_is_left_alone_and_another_is_asked_at_once() {
    for after in ["60".to_owned(), date(60)] {
        let others = vec![saying("1"), saying("2")];
        let stage = Stage::set(vec![vec![busy(&after)], others]).await;
        for expected in ["1", "2"] {
            assert_eq!(stage.ask().await.heard, [expected]);
        }
        assert_eq!(stage.times_asked(), [1, 2]);
    }
}

#[tokio::test]
async fn one_that_is_not_well_is_left_alone() {
    let others = vec![saying("1"), saying("2")];
    let stage = Stage::set(vec![vec![plain(500, "", "")], others]).await;
    for _ in 0..2 {
        stage.ask().await.reply();
    }
    assert_eq!(stage.times_asked(), [1, 2]);
}

#[tokio::test]
async fn the_only_one_is_waited_for_when_there_is_time() {
    for after in ["1".to_owned(), "0.3".to_owned(), date(2)] {
        let stage = Stage::set(vec![vec![busy(&after), saying("a")]]).await;
        assert_eq!(stage.ask().await.heard, ["a"]);
        assert_eq!(stage.times_asked(), [2]);
    }
}

#[tokio::test]
async fn the_first_that_is_ready_again_is_asked() {
    let stage = Stage::set(vec![
        vec![busy("60"), saying("a")],
        vec![busy("1"), saying("b")],
    ])
    .await;
    assert_eq!(stage.ask().await.heard, ["b"]);
    assert_eq!(stage.times_asked(), [1, 2]);
}

#[tokio::test]
async fn nobody_is_waited_for_beyond_the_deadline() {
    let stage = Stage::set(vec![vec![busy("60")]]).await;
    for _ in 0..2 {
        let outcome = stage.ask_within(Duration::from_secs(10)).await;
        let Err(CompletionError::Busy { after }) = outcome.reply else {
            panic!("{:?}", outcome.reply);
        };
        assert!(after > Duration::from_secs(10) && after <= Duration::from_secs(60));
    }
    assert_eq!(stage.times_asked(), [1]);
}

#[tokio::test]
async fn one_that_always_has_too_much_to_do_is_not_asked_for_ever() {
    let stage = Stage::set(vec![vec![busy("0"); 5]]).await;
    let error = stage.ask().await.reply.unwrap_err();
    assert_eq!(error.kind(), "busy");
    assert_eq!(stage.times_asked(), [3]);
}
