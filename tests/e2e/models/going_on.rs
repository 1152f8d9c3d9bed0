//! Conversations that go on, and what is kept of those that have ended.
//! Never: a memory of what nobody said, twice the same one, or one that its NPC does not want.

use serde_json::{Value, json};

use crate::{
    provider::Asked,
    site::Stage,
    turns::{task, time_service},
};

/// A conversation ends a second after its last word.
const SHORT_REST: (&str, &str) = ("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1");

/// Whether it is asked what is worth keeping, not to answer somebody.
fn is_about_keeping(asked: &Asked) -> bool {
    asked.system().starts_with("Below is a conversation")
}

fn roles(asked: &Asked) -> Vec<&str> {
    let messages = asked.messages().iter();
    messages
        .map(|message| message["role"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_turn_knows_the_one_before_also_at_another_replica() {
    let mut stage = Stage::set(2, &[]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    toy.says(task(1), "I am Anna. What time is it?").await;
    let call = ("call_1", "get_current_time", r#"{"format": "simple"}"#);
    stage.provider.asked().await.calls(&[call]).await;
    let (id, ..) = toy.is_called().await;
    toy.gives(&id, json!("14:30")).await;
    let asked = stage.provider.asked().await;
    asked.replies("It is 14:30, Anna.").await;
    assert_eq!(toy.hears(task(1)).await, "It is 14:30, Anna.");

    stage.chat.kill();
    let _other = stage.another_chat();
    // On another connection, at another edge.
    drop(toy);
    let mut toy = stage.site.device(1, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    toy.says(task(2), "And who am I?").await;
    let asked = stage.provider.asked().await;
    let expected = ["system", "user", "assistant", "tool", "assistant", "user"];
    assert_eq!(roles(&asked), expected);
    let [_, said, calling, result, answered, question] = asked.messages() else {
        panic!("{}", asked.body);
    };
    assert_eq!(said["content"], "I am Anna. What time is it?");
    let call = &calling["tool_calls"][0];
    assert_eq!(call["function"]["name"], "get_current_time");
    assert_eq!(call["function"]["arguments"], r#"{"format":"simple"}"#);
    assert_eq!(call["id"], result["tool_call_id"]);
    assert!(result["content"].as_str().unwrap().contains("14:30"));
    assert_eq!(answered["content"], "It is 14:30, Anna.");
    assert_eq!(question["content"], "And who am I?");
    asked.replies("Anna.").await;
    assert_eq!(toy.hears(task(2)).await, "Anna.");
    // Another device has a conversation of its own.
    let mut other = stage.site.device(1, "toy-2").await;
    other.says(task(3), "Who am I?").await;
    let asked = stage.provider.asked().await;
    assert_eq!(roles(&asked), ["system", "user"]);
    asked.replies("Nobody I know.").await;
    other.hears(task(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_worth_keeping_becomes_a_memory_once() {
    let mut stage = Stage::set(1, &[SHORT_REST]).await;
    let _other = stage.another_chat();
    let npc = stage
        .site
        .npc(&json!({"name": "Bello"}), &["toy-1", "toy-2"])
        .await;
    let notes = [("toy-1", "Anna likes tea."), ("toy-2", "Ben likes cake.")];
    for (number, (device, note)) in notes.into_iter().enumerate() {
        let mut toy = stage.site.device(0, device).await;
        toy.says(task(number), "You know what I like.").await;
        stage.provider.asked().await.replies("I do.").await;
        assert_eq!(toy.hears(task(number)).await, "I do.");
        // The conversation has ended.
        let asked = stage.provider.asked().await;
        assert!(is_about_keeping(&asked), "{}", asked.body);
        assert!(
            asked
                .question()
                .contains("User: You know what I like.\nCharacter: I do.")
        );
        assert_eq!(asked.body.get("tools"), None);
        let kept = json!([{"text": note, "importance": 0.8}]);
        asked.replies(&format!("```json\n{kept}\n```")).await;
        let memories = stage.site.memories_when(&npc, number + 1).await;
        let subject = json!(format!("device:{device}"));
        let about = memories
            .iter()
            .filter(|memory| memory["subject"] == subject);
        let about: Vec<_> = about.collect();
        assert_eq!(about.len(), 1, "{memories:?}");
        assert_eq!(
            (
                &about[0]["text"],
                &about[0]["kind"],
                &about[0]["importance"]
            ),
            (&json!(note), &json!("conversation"), &json!(0.8))
        );
    }
    // While the second one ended and was learned from, both replicas looked for more.
    assert_eq!(stage.site.memories(&npc).await.len(), 2);
    assert!(stage.provider.is_at_rest());
    // The next conversation begins with the memory, and without the words.
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.says(task(9), "Do you know whether Anna likes tea?")
        .await;
    let asked = stage.provider.asked().await;
    assert_eq!(roles(&asked), ["system", "user"]);
    let known = super::marked_off(asked.system(), "memories");
    assert!(
        known.contains("Anna likes tea.") && !known.contains("Ben"),
        "{known}"
    );
    asked.replies("She does.").await;
    toy.hears(task(9)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_npc_that_keeps_nothing_of_conversations_keeps_nothing() {
    let mut stage = Stage::set(1, &[SHORT_REST]).await;
    let site = &stage.site;
    let forgetful = json!({"name": "Dory", "memory": {"from_conversations": false}});
    let forgetful = site.npc(&forgetful, &["toy-1"]).await;
    let other = site
        .npc(&json!({"name": "Bello"}), &["toy-2", "toy-3"])
        .await;
    let mut toys = Vec::new();
    for number in 1..=3 {
        toys.push(site.device(0, &format!("toy-{number}")).await);
    }
    let provider = &mut stage.provider;
    for (number, toy) in toys.iter_mut().enumerate() {
        toy.says(task(number), "I like tea.").await;
        provider.asked().await.replies("I see.").await;
        toy.hears(task(number)).await;
        // Only of the others the model is asked what to keep. Those that have ended are looked at together, and the next ones when
        // that is done: what ended before the second of them is done with when the third one is learned from.
        if number > 0 {
            let asked = provider.asked().await;
            assert!(is_about_keeping(&asked), "{}", asked.body);
            asked.replies(r#"["The user likes tea."]"#).await;
            let kept = site.memories_when(&other, number).await;
            assert_eq!(kept.len(), number, "{kept:?}");
        }
    }
    let kept = site.memories(&other).await;
    let subjects: Vec<_> = kept.iter().map(|memory| &memory["subject"]).collect();
    assert!(!subjects.contains(&&json!("device:toy-1")), "{kept:?}");
    assert_eq!(stage.site.memories(&forgetful).await, Vec::<Value>::new());
    toys[0].says(task(9), "Hello").await;
    let asked = stage.provider.asked().await;
    assert_eq!(
        roles(&asked),
        ["system", "user"],
        "it has ended all the same"
    );
    asked.replies("Hello!").await;
    toys[0].hears(task(9)).await;
}
