//! A conversation that exceeds the prompt is summarised, so requests do not grow with each turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use switchboard_protocol::frame::TaskId;
use switchboard_test_support::eventually::eventually;
use tokio::sync::{Mutex, Semaphore};

use super::marked_off;
use crate::{
    cluster::TestCluster,
    provider::{Provider, ProviderRequest},
    system::ChatFixture,
    turns::task,
};

const SUMMARY: &str = "The user counts, and has come to the canary-17.";
/// Number of turns in the older half, which is summarised.
const HALF: usize = 13;
/// Number of turns that exceeds a prompt.
const TURNS: usize = 30;

/// Counts with the user, and sends the summary when permitted.
async fn count(received: ProviderRequest, may_summarise: Arc<Semaphore>) {
    if received.system().starts_with("Summarise the conversation") {
        may_summarise.acquire().await.unwrap().forget();
        received.reply(SUMMARY).await;
    } else {
        let text = format!("After {}.", received.user_message());
        received.reply(&text).await;
    }
}

/// The request of a turn.
fn request(seen: &[Value], question: &str) -> Value {
    let mut turns = seen.iter().rev();
    let found = turns.find(|body| {
        let last = body["messages"].as_array().and_then(|all| all.last());
        last.is_some_and(|last| last["content"] == question)
    });
    found.expect("it was asked").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn long_conversation_is_summarised() {
    let may_summarise = Arc::new(Semaphore::new(0));
    let at_hand = Arc::clone(&may_summarise);
    let provider = Provider::scripted(move |received| count(received, Arc::clone(&at_hand)));
    let talkative = TestCluster::start_with(1, &[("SWITCHBOARD_DEVICE_TURN_BURST", "100")]);
    let fixture = ChatFixture::with_cluster(talkative.await, provider.await, &[]);
    let device = Mutex::new(fixture.system.device(0, "toy-1").await);
    let turn = async |number: usize| {
        let task: TaskId = task(number);
        let question = format!("number {number}");
        let text = device.lock().await.ask(task, &question).await;
        assert_eq!(text, format!("After {question}."));
        request(&fixture.provider.seen(), &question)
    };
    for number in 0..TURNS {
        turn(number).await;
    }
    // The summary is created beside the turns, and once, although several turns required it.
    may_summarise.add_permits(1);
    let next = AtomicUsize::new(TURNS);
    let received = async || turn(next.fetch_add(1, Ordering::Relaxed)).await;
    let is_short = |received: &Value| {
        let system = received["messages"][0]["content"].as_str().unwrap();
        system.contains("What was said before, in short")
    };
    let received = eventually(Duration::from_secs(30), received, is_short).await;
    let messages = received["messages"].as_array().unwrap();
    let system = messages[0]["content"].as_str().unwrap();
    assert_eq!(marked_off(system, "this conversation"), SUMMARY);
    // The summarised half is gone, however many turns were added since.
    let whole = 2 * next.load(Ordering::Relaxed);
    let length = messages.len();
    assert!(length + 2 * HALF <= whole, "{length} of {whole}");
    // A summarised turn is not summarised again, and later turns are still in the prompt.
    let told: Vec<_> = messages
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert!(
        !told.contains(&"number 0") && told.contains(&"number 20"),
        "{told:?}"
    );
    let summaries = fixture.provider.seen();
    let summaries = summaries.iter().filter(|body| {
        let system = body["messages"][0]["content"].as_str().unwrap();
        system.starts_with("Summarise the conversation")
    });
    assert_eq!(summaries.count(), 1, "it was told in short more than once");
}
