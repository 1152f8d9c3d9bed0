//! A conversation that is too long for a prompt.
//! Never: a request that grows with each turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use switchboard_protocol::frame::TaskId;
use tokio::sync::{Mutex, Semaphore};

use super::marked_off;
use crate::{
    eventually::eventually,
    plant::Plant,
    provider::{Asked, Provider},
    site::Stage,
    turns::task,
};

const SUMMARY: &str = "The user counts, and has come to the canary-17.";
/// The older half of what is too long for a prompt, in turns.
const HALF: usize = 13;
/// More than a prompt takes.
const TURNS: usize = 30;

/// Counts with the user, and tells the conversation in short when it may.
async fn counts(asked: Asked, may_tell: Arc<Semaphore>) {
    if asked.system().starts_with("Summarise the conversation") {
        may_tell.acquire().await.unwrap().forget();
        asked.replies(SUMMARY).await;
    } else {
        let words = format!("After {}.", asked.question());
        asked.replies(&words).await;
    }
}

/// The turn as it was asked for.
fn request(seen: &[Value], question: &str) -> Value {
    let mut turns = seen.iter().rev();
    let found = turns.find(|body| {
        let last = body["messages"].as_array().and_then(|all| all.last());
        last.is_some_and(|last| last["content"] == question)
    });
    found.expect("it was asked").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_is_told_in_short() {
    let may_tell = Arc::new(Semaphore::new(0));
    let at_hand = Arc::clone(&may_tell);
    let provider = Provider::scripted(move |asked| counts(asked, Arc::clone(&at_hand)));
    let talkative = Plant::start_with(1, &[("SWITCHBOARD_DEVICE_TURN_BURST", "100")]);
    let stage = Stage::on(talkative.await, provider.await, &[]);
    let toy = Mutex::new(stage.site.device(0, "toy-1").await);
    let turn = async |number: usize| {
        let task: TaskId = task(number);
        let question = format!("number {number}");
        let words = toy.lock().await.talks(task, &question).await;
        assert_eq!(words, format!("After {question}."));
        request(&stage.provider.seen(), &question)
    };
    for number in 0..TURNS {
        turn(number).await;
    }
    // The summary is made beside the turns, and once, though each of the last ones wanted it.
    may_tell.add_permits(1);
    let next = AtomicUsize::new(TURNS);
    let asked = async || turn(next.fetch_add(1, Ordering::Relaxed)).await;
    let is_short = |asked: &Value| {
        let system = asked["messages"][0]["content"].as_str().unwrap();
        system.contains("What was said before, in short")
    };
    let asked = eventually(Duration::from_secs(30), asked, is_short).await;
    let messages = asked["messages"].as_array().unwrap();
    let system = messages[0]["content"].as_str().unwrap();
    assert_eq!(marked_off(system, "this conversation"), SUMMARY);
    // However many turns there were meanwhile: half of what was too long is there no more.
    let whole = 2 * next.load(Ordering::Relaxed);
    let length = messages.len();
    assert!(length + 2 * HALF <= whole, "{length} of {whole}");
    // What was told in short is not told again, and what comes after it is still there.
    let told: Vec<_> = messages
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert!(
        !told.contains(&"number 0") && told.contains(&"number 20"),
        "{told:?}"
    );
    let summaries = stage.provider.seen();
    let summaries = summaries.iter().filter(|body| {
        let system = body["messages"][0]["content"].as_str().unwrap();
        system.starts_with("Summarise the conversation")
    });
    assert_eq!(summaries.count(), 1, "it was told in short more than once");
}
