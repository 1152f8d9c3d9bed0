//! Many conversations at once, each with a secret of its own.
//! Never: a word of one in another.

use std::sync::Arc;

use serde_json::json;
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    provider::{Asked, Provider},
    site::Stage,
    turns::{task, time_service},
};

const CONVERSATIONS: usize = 200;
/// Of each of two processes.
const TURNS: (&str, &str) = ("SWITCHBOARD_CHAT_TURNS", "100");

/// Calls the only tool there is once everybody has asked, then says what came of it.
async fn tells(asked: Asked, all_ask: Arc<Barrier>) {
    let last = asked.messages().last().unwrap();
    if last["role"] == "tool" {
        let content = last["content"].as_str().unwrap();
        let (_, canary) = content.split_once("\"data\":\"").unwrap();
        let (canary, _) = canary.split_once('"').unwrap();
        let words = format!("{} It is {canary}.", asked.question());
        asked.replies(&words).await;
    } else {
        all_ask.wait().await;
        asked.calls(&[("call_1", "get_current_time", "{}")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_conversations_at_once_are_not_mixed_up() {
    let all_ask = Arc::new(Barrier::new(CONVERSATIONS));
    let provider = Provider::scripted(move |asked| tells(asked, Arc::clone(&all_ask)));
    let stage = Stage::set_with(provider.await, 2, &[TURNS]).await;
    let _other = stage.another_chat();
    let mut toys = Vec::new();
    for n in 0..CONVERSATIONS {
        let mut toy = stage.site.device(n % 2, &format!("toy-{n}")).await;
        toy.register(&time_service("Get current time")).await;
        toys.push(toy);
    }
    let mut conversations = JoinSet::new();
    for (n, mut toy) in toys.into_iter().enumerate() {
        conversations.spawn(async move {
            let question = format!("question-{n:03}: what time is it?");
            toy.says(task(n), &question).await;
            let (id, ..) = toy.is_called().await;
            toy.gives(&id, json!(format!("canary-{n:03}"))).await;
            let words = toy.hears(task(n)).await;
            assert_eq!(words, format!("{question} It is canary-{n:03}."));
        });
    }
    assert_eq!(conversations.join_all().await.len(), CONVERSATIONS);
    // Nobody was asked twice, and no request had words of two.
    let seen = stage.provider.seen();
    assert_eq!(seen.len(), 2 * CONVERSATIONS);
    for body in seen {
        let text = body.to_string();
        assert_eq!(text.matches("question-").count(), 1, "{text}");
        assert!(text.matches("canary-").count() <= 1, "{text}");
    }
}
