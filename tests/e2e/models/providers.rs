//! Several providers: the next one is tried when one does not reply.

use std::io::Write as _;

use serde_json::json;
use switchboard_test_support::switchboard::Program;
use tempfile::NamedTempFile;

use crate::{
    cluster::TestCluster,
    provider::{Provider, ProviderRequest},
    system::{TestSystem, start_chat},
    turns::{task, time_service},
};

/// A file that lists them in this order, each with its default model and an alternative.
fn listed(providers: [&str; 2]) -> NamedTempFile {
    let entries = ["first", "second"].into_iter().zip(providers);
    let entries = entries.map(|(name, url)| {
        json!({"name": name, "endpoint": url, "model": format!("{name}-1"), "models": [{"name": "chosen-1"}]})
    });
    let list: serde_json::Value = entries.collect();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(list.to_string().as_bytes()).unwrap();
    file
}

/// Starts a chat process with the providers of a file.
fn start_chat_with(cluster: &TestCluster, file: &NamedTempFile) -> Program {
    let path = file.path().to_str().unwrap().to_owned();
    start_chat(cluster, &[("SWITCHBOARD_COMPLETIONS_FILE", path)])
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_provider_is_replaced_by_next() {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.device(0, "toy-1").await;
    for (number, (status, retry_after)) in
        [(429, Some(60)), (500, Some(60))].into_iter().enumerate()
    {
        let (mut first, mut second) = (Provider::start().await, Provider::start().await);
        let file = listed([&first.url, &second.url]);
        let _chat = start_chat_with(&cluster, &file);
        let turn = task(2 * number);
        device.send_text(turn, "Hello").await;
        let request = first.next_request().await;
        assert_eq!(request.body["model"], "first-1");
        request.reject(status, retry_after);
        let request = second.next_request().await;
        assert_eq!(request.body["model"], "second-1");
        request.reply("Hello!").await;
        assert_eq!(device.receive_answer(turn).await, "Hello!", "{status}");
        // The first provider is in cooldown.
        let turn = task(2 * number + 1);
        device.send_text(turn, "Are you there?").await;
        second.next_request().await.reply("Yes.").await;
        assert_eq!(device.receive_answer(turn).await, "Yes.", "{status}");
        assert_eq!(first.seen().len(), 1, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_all_providers_causes_apology() {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.device(0, "toy-1").await;
    let first =
        Provider::scripted(async |request: ProviderRequest| request.reject(503, None)).await;
    let second = Provider::start().await.url;
    // The second provider is down too.
    let file = listed([&first.url, &second]);
    let _chat = start_chat_with(&cluster, &file);
    let text = device.ask(task(1), "你好").await;
    assert_eq!(text, "抱歉，我现在无法回答。请稍后再问。");
    assert!(!first.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn template_model_is_requested() {
    let cluster = TestCluster::start(1).await;
    let (mut first, mut second) = (Provider::start().await, Provider::start().await);
    let file = listed([&first.url, &second.url]);
    let chat = start_chat_with(&cluster, &file);
    let system = TestSystem::new(&cluster, &chat);
    // A model that is not listed is not requested, whatever the template specifies.
    for (model, asked_for) in [("chosen-1", "chosen-1"), ("dear-1", "second-1")] {
        let settings = json!({"name": "Bello", "model": {"provider": "second", "model": model}});
        system.npc(&settings, &[model]).await;
        let mut device = system.device(0, model).await;
        device.send_text(task(1), "Hello").await;
        let request = second.next_request().await;
        assert_eq!(request.body["model"], asked_for);
        request.reply("Hello!").await;
        assert_eq!(device.receive_answer(task(1)).await, "Hello!");
    }
    let mut device = system.device(0, "chosen-1").await;
    device.send_text(task(2), "Hello").await;
    second.next_request().await.reject(500, None);
    let request = first.next_request().await;
    assert_eq!(request.body["model"], "first-1");
    request.reply("Hello again!").await;
    assert_eq!(device.receive_answer(task(2)).await, "Hello again!");
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_keys_are_sent_to_their_provider() {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.device(0, "toy-1").await;
    let mut provider = Provider::start().await;
    let mut file = NamedTempFile::new().unwrap();
    let list = json!([{"name": "only", "endpoint": provider.url, "model": "m", "key_env": "KEY_OF_THIS_TEST"}]);
    file.write_all(list.to_string().as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let settings = [
        ("SWITCHBOARD_COMPLETIONS_FILE", path),
        ("KEY_OF_THIS_TEST", "sk-of-this-test".to_owned()),
    ];
    let chat = start_chat(&cluster, &settings);
    device.send_text(task(1), "Hello").await;
    let request = provider.next_request().await;
    assert_eq!(request.headers["authorization"], "Bearer sk-of-this-test");
    request.reply("Hello!").await;
    assert_eq!(device.receive_answer(task(1)).await, "Hello!");
    assert!(!chat.logged().contains("sk-of-this-test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_after_calls_sends_portable_call_ids() {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    let (mut first, mut second) = (Provider::start().await, Provider::start().await);
    let file = listed([&first.url, &second.url]);
    let _chat = start_chat_with(&cluster, &file);
    device.send_text(task(1), "What time is it?").await;
    let call = [("functions.get_current_time:0", "get_current_time", "{}")];
    first.next_request().await.calls(&call).await;
    let (id, ..) = device.receive_call().await;
    device.send_result(&id, json!("14:30")).await;
    let request = first.next_request().await;
    let (calls, _) = request.last_round();
    assert_eq!(calls[0]["id"], "functions.get_current_time:0");
    request.reject(500, Some(60));
    let request = second.next_request().await;
    let (calls, results) = request.last_round();
    assert_eq!(calls[0]["id"], "call00001");
    assert_eq!(results[0]["tool_call_id"], "call00001");
    request.reply("It is 14:30.").await;
    assert_eq!(device.receive_answer(task(1)).await, "It is 14:30.");
}
