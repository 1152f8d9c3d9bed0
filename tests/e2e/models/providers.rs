//! Several providers: the next one is asked when one does not reply.
//! Never: a user who hears nothing because a provider is away.

use std::io::Write as _;

use serde_json::json;
use tempfile::NamedTempFile;

use crate::{
    plant::Plant,
    program::Program,
    provider::{Asked, Provider},
    site::{Site, start_chat},
    turns::{task, time_service},
};

/// A file that lists them in this order, each with a model of its own and one to choose.
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

/// Answers by asking those that a file lists.
fn start_chat_with(plant: &Plant, file: &NamedTempFile) -> Program {
    let path = file.path().to_str().unwrap().to_owned();
    start_chat(plant, &[("SWITCHBOARD_COMPLETIONS_FILE", path)])
}

#[tokio::test(flavor = "multi_thread")]
async fn another_provider_replies_when_one_has_too_much_to_do_or_is_not_well() {
    let plant = Plant::start(1).await;
    let mut toy = plant.device(0, "toy-1").await;
    for (number, (status, retry_after)) in
        [(429, Some(60)), (500, Some(60))].into_iter().enumerate()
    {
        let (mut first, mut second) = (Provider::start().await, Provider::start().await);
        let file = listed([&first.url, &second.url]);
        let _chat = start_chat_with(&plant, &file);
        let turn = task(2 * number);
        toy.says(turn, "Hello").await;
        let asked = first.asked().await;
        assert_eq!(asked.body["model"], "first-1");
        asked.refuses(status, retry_after);
        let asked = second.asked().await;
        assert_eq!(asked.body["model"], "second-1");
        asked.replies("Hello!").await;
        assert_eq!(toy.hears(turn).await, "Hello!", "{status}");
        // The first one is left alone for a while.
        let turn = task(2 * number + 1);
        toy.says(turn, "Are you there?").await;
        second.asked().await.replies("Yes.").await;
        assert_eq!(toy.hears(turn).await, "Yes.", "{status}");
        assert_eq!(first.seen().len(), 1, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_providers_are_down_there_is_an_apology() {
    let plant = Plant::start(1).await;
    let mut toy = plant.device(0, "toy-1").await;
    let first = Provider::scripted(async |asked: Asked| asked.refuses(503, None)).await;
    let second = Provider::start().await.url;
    // Nobody listens at the second one any more.
    let file = listed([&first.url, &second]);
    let _chat = start_chat_with(&plant, &file);
    let words = toy.talks(task(1), "你好").await;
    assert_eq!(words, "抱歉，我现在无法回答。请稍后再问。");
    assert!(!first.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_character_is_answered_by_the_model_of_its_choice() {
    let plant = Plant::start(1).await;
    let (mut first, mut second) = (Provider::start().await, Provider::start().await);
    let file = listed([&first.url, &second.url]);
    let chat = start_chat_with(&plant, &file);
    let site = Site::of(&plant, &chat);
    // What nobody lists is not asked for, whatever a character wishes.
    for (model, asked_for) in [("chosen-1", "chosen-1"), ("dear-1", "second-1")] {
        let settings = json!({"name": "Bello", "model": {"provider": "second", "model": model}});
        site.npc(&settings, &[model]).await;
        let mut toy = site.device(0, model).await;
        toy.says(task(1), "Hello").await;
        let asked = second.asked().await;
        assert_eq!(asked.body["model"], asked_for);
        asked.replies("Hello!").await;
        assert_eq!(toy.hears(task(1)).await, "Hello!");
    }
    let mut toy = site.device(0, "chosen-1").await;
    toy.says(task(2), "Hello").await;
    second.asked().await.refuses(500, None);
    let asked = first.asked().await;
    assert_eq!(asked.body["model"], "first-1");
    asked.replies("Hello again!").await;
    assert_eq!(toy.hears(task(2)).await, "Hello again!");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_travel_to_their_provider() {
    let plant = Plant::start(1).await;
    let mut toy = plant.device(0, "toy-1").await;
    let mut provider = Provider::start().await;
    let mut file = NamedTempFile::new().unwrap();
    let list = json!([{"name": "only", "endpoint": provider.url, "model": "m", "key_env": "KEY_OF_THIS_TEST"}]);
    file.write_all(list.to_string().as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let settings = [
        ("SWITCHBOARD_COMPLETIONS_FILE", path),
        ("KEY_OF_THIS_TEST", "sk-of-this-test".to_owned()),
    ];
    let chat = start_chat(&plant, &settings);
    toy.says(task(1), "Hello").await;
    let asked = provider.asked().await;
    assert_eq!(asked.headers["authorization"], "Bearer sk-of-this-test");
    asked.replies("Hello!").await;
    assert_eq!(toy.hears(task(1)).await, "Hello!");
    assert!(!chat.logged().contains("sk-of-this-test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_over_in_the_middle_gets_ids_that_all_take() {
    let plant = Plant::start(1).await;
    let mut toy = plant.device(0, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    let (mut first, mut second) = (Provider::start().await, Provider::start().await);
    let file = listed([&first.url, &second.url]);
    let _chat = start_chat_with(&plant, &file);
    toy.says(task(1), "What time is it?").await;
    let call = [("functions.get_current_time:0", "get_current_time", "{}")];
    first.asked().await.calls(&call).await;
    let (id, ..) = toy.is_called().await;
    toy.gives(&id, json!("14:30")).await;
    let asked = first.asked().await;
    let (calls, _) = asked.last_round();
    assert_eq!(calls[0]["id"], "functions.get_current_time:0");
    asked.refuses(500, Some(60));
    let asked = second.asked().await;
    let (calls, results) = asked.last_round();
    assert_eq!(calls[0]["id"], "call00001");
    assert_eq!(results[0]["tool_call_id"], "call00001");
    asked.replies("It is 14:30.").await;
    assert_eq!(toy.hears(task(1)).await, "It is 14:30.");
}
