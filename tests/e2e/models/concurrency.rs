//! Many concurrent conversations, each with its own secret. No secret reaches another conversation.

use std::sync::Arc;

use serde_json::json;
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    provider::{Provider, ProviderRequest},
    system::ChatFixture,
    turns::{task, time_service},
};

const CONVERSATIONS: usize = 200;
/// Concurrent turns of each of the two chat processes, a quarter of them for one organisation.
const TURNS: (&str, &str) = ("SWITCHBOARD_CHAT_TURNS", "400");

/// Calls the only tool after all requests have arrived, then replies with its result.
async fn reply_with_result(request: ProviderRequest, all_ask: Arc<Barrier>) {
    let last = request.messages().last().unwrap();
    if last["role"] == "tool" {
        let content = last["content"].as_str().unwrap();
        let (_, canary) = content.split_once("\"data\":\"").unwrap();
        let (canary, _) = canary.split_once('"').unwrap();
        let text = format!("{} It is {canary}.", request.user_message());
        request.reply(&text).await;
    } else {
        all_ask.wait().await;
        request.calls(&[("call_1", "get_current_time", "{}")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_conversations_get_own_answers() {
    let all_ask = Arc::new(Barrier::new(CONVERSATIONS));
    let provider =
        Provider::scripted(move |request| reply_with_result(request, Arc::clone(&all_ask)));
    let fixture = ChatFixture::start_with(provider.await, 2, &[TURNS]).await;
    let _other = fixture.another_chat();
    let mut devices = Vec::new();
    for n in 0..CONVERSATIONS {
        let mut device = fixture.system.device(n % 2, &format!("toy-{n}")).await;
        device.register(&time_service("Get current time")).await;
        devices.push(device);
    }
    let mut conversations = JoinSet::new();
    for (n, mut device) in devices.into_iter().enumerate() {
        conversations.spawn(async move {
            let question = format!("question-{n:03}: what time is it?");
            device.send_text(task(n), &question).await;
            let (id, ..) = device.receive_call().await;
            device
                .send_result(&id, json!(format!("canary-{n:03}")))
                .await;
            let message = device.receive_answer(task(n)).await;
            assert_eq!(message, format!("{question} It is canary-{n:03}."));
        });
    }
    assert_eq!(conversations.join_all().await.len(), CONVERSATIONS);
    // Each user message was requested once, and no request contains text of two conversations.
    let seen = fixture.provider.seen();
    assert_eq!(seen.len(), 2 * CONVERSATIONS);
    for body in seen {
        let text = body.to_string();
        assert_eq!(text.matches("question-").count(), 1, "{text}");
        assert!(text.matches("canary-").count() <= 1, "{text}");
    }
}
