//! Cooldowns of providers.

use std::time::Duration;

use chrono::Utc;
use switchboard_completions::CompletionError;

use crate::{
    fake_provider::{Step, plain, reply_with},
    fixture::Fixture,
};

fn busy(after: &str) -> Vec<Step> {
    let body = r#"{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}"#;
    plain(429, &format!("retry-after: {after}\r\n"), body)
}

/// An HTTP date this many seconds from now.
fn date(seconds: u64) -> String {
    let date = Utc::now() + Duration::from_secs(seconds);
    date.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[tokio::test]
async fn busy_provider_is_skipped_immediately() {
    for after in ["60".to_owned(), date(60)] {
        let others = vec![reply_with("1"), reply_with("2")];
        let fixture = Fixture::start(vec![vec![busy(&after)], others]).await;
        for expected in ["1", "2"] {
            assert_eq!(fixture.complete().await.texts, [expected]);
        }
        assert_eq!(fixture.request_counts(), [1, 2]);
    }
}

#[tokio::test]
async fn failing_provider_is_skipped() {
    let others = vec![reply_with("1"), reply_with("2")];
    let fixture = Fixture::start(vec![vec![plain(500, "", "")], others]).await;
    for _ in 0..2 {
        fixture.complete().await.reply();
    }
    assert_eq!(fixture.request_counts(), [1, 2]);
}

#[tokio::test]
async fn only_provider_is_awaited_within_the_deadline() {
    for after in ["1".to_owned(), "0.3".to_owned(), date(2)] {
        let fixture = Fixture::start(vec![vec![busy(&after), reply_with("a")]]).await;
        assert_eq!(fixture.complete().await.texts, ["a"]);
        assert_eq!(fixture.request_counts(), [2]);
    }
}

#[tokio::test]
async fn first_available_provider_is_requested() {
    let fixture = Fixture::start(vec![
        vec![busy("60"), reply_with("a")],
        vec![busy("1"), reply_with("b")],
    ])
    .await;
    assert_eq!(fixture.complete().await.texts, ["b"]);
    assert_eq!(fixture.request_counts(), [1, 2]);
}

#[tokio::test]
async fn pause_beyond_the_deadline_fails_at_once() {
    let fixture = Fixture::start(vec![vec![busy("60")]]).await;
    for _ in 0..2 {
        let outcome = fixture.complete_within(Duration::from_secs(10)).await;
        let Err(CompletionError::Busy { after }) = outcome.reply else {
            panic!("{:?}", outcome.reply);
        };
        assert!(after > Duration::from_secs(10) && after <= Duration::from_secs(60));
    }
    assert_eq!(fixture.request_counts(), [1]);
}

#[tokio::test]
async fn busy_provider_is_retried_a_few_times() {
    let fixture = Fixture::start(vec![vec![busy("0"); 5]]).await;
    let error = fixture.complete().await.reply.unwrap_err();
    assert_eq!(error.kind(), "busy");
    assert_eq!(fixture.request_counts(), [3]);
}
