//! The supplement's example with a model: what it is asked, what the device is called for, and the answer word for word.
//! Never: a word that the device hears only when the model has ended.

use serde_json::{Value, json};
use switchboard_protocol::frame::TaskId;

use super::marked_off;
use crate::{
    plant::Plant,
    provider::{Asked, Provider},
    site::{MODEL, Site, Stage, UpStage},
    turns::time_service,
};

const TASK: TaskId = TaskId(*b"task1234");

/// The example in one language.
struct Example {
    language: &'static str,
    question: &'static str,
    description: &'static str,
    memory: &'static str,
    book: &'static str,
    answer: [&'static str; 3],
}

const EXAMPLES: [Example; 2] = [
    Example {
        language: "en",
        question: "What time is it?",
        description: "Get current time",
        memory: "The time matters to Anna, who has tea at five.",
        book: "The time is told politely, with the hour first.",
        answer: ["It is ", "14:30:25", "."],
    },
    Example {
        language: "zh",
        question: "现在几点了?",
        description: "获取当前时间",
        memory: "安娜常问现在几点了，她五点喝茶。",
        book: "有人问现在几点了，就先说小时。",
        answer: ["现在是", "14点30分25秒", "。"],
    },
];

impl Example {
    /// A character of its own for this device, with a memory and a book that fit the question.
    async fn prepare(&self, site: &Site, toy: &str) {
        let book = site.book("Manual", self.book).await;
        let settings = json!({
            "name": "Bello", "locale": self.language, "persona": {"role": "a polite clock"}, "skills_book_ids": [book],
            "model": {"provider": "default", "model": MODEL, "temperature": 0.5, "max_tokens": 99},
        });
        let npc = site.npc(&settings, &[toy]).await;
        site.remind(&npc, &format!("device:{toy}"), self.memory)
            .await;
        let of_another = format!("{} Nobody's business.", self.question);
        site.remind(&npc, "device:another", &of_another).await;
    }

    /// What the model is asked first.
    fn must_ask(&self, asked: &Asked) {
        assert_eq!(
            (asked.question(), asked.messages().len()),
            (self.question, 2)
        );
        let system = asked.system();
        assert!(
            system.contains("Bello") && system.contains("a polite clock"),
            "{system}"
        );
        let memories = marked_off(system, "memories");
        assert!(memories.contains(self.memory), "{memories}");
        assert!(!system.contains("Nobody's business"), "{system}");
        assert_eq!(marked_off(system, "Manual"), self.book);
        let tool = json!({"type": "function", "function": {
            "name": "get_current_time", "description": self.description,
            "parameters": {"type": "object", "properties": {"format": {"type": "string", "enum": ["simple", "detailed"]}}},
        }});
        assert_eq!(asked.body["tools"], json!([tool]));
        assert_eq!(asked.body.get("tool_choice"), None);
        let choices = ["model", "temperature", "max_tokens", "stream"];
        assert_eq!(
            choices.map(|name| &asked.body[name]),
            [&json!(MODEL), &json!(0.5), &json!(99), &json!(true)]
        );
    }
}

/// What the model is asked when its call has ended.
fn must_tell(asked: &Asked, result: &Value) {
    let (calls, results) = asked.last_round();
    assert_eq!((calls.len(), results.len()), (1, 1), "{}", asked.body);
    let call = &calls[0];
    assert_eq!(
        (&call["id"], &call["function"]["name"]),
        (&json!("call_7"), &json!("get_current_time"))
    );
    assert_eq!(call["function"]["arguments"], r#"{"format":"simple"}"#);
    assert_eq!(
        (&results[0]["role"], &results[0]["tool_call_id"]),
        (&json!("tool"), &json!("call_7"))
    );
    let told = marked_off(results[0]["content"].as_str().unwrap(), "get_current_time");
    assert_eq!(serde_json::from_str::<Value>(told).unwrap(), *result);
}

/// Goes through the example frame for frame, on one of the devices' addresses.
async fn goes(site: &Site, provider: &mut Provider, example: &Example, address: usize) {
    let toy = format!("toy-{}", example.language);
    example.prepare(site, &toy).await;
    let mut toy = site.device(address, &toy).await;
    toy.register(&time_service(example.description)).await;
    // Byte for byte what the supplement shows.
    let question = example.question;
    let said = format!("##START\u{4}task12340000{question}##END##START\u{3}task12340001##END");
    toy.send_bytes(said.as_bytes()).await;

    let asked = provider.asked().await;
    example.must_ask(&asked);
    let call = ("call_7", "get_current_time", r#"{"format": "simple"}"#);
    asked.calls(&[call]).await;

    let (id, service, params) = toy.is_called().await;
    assert_eq!(
        (service.as_str(), params),
        ("get_current_time", json!({"format": "simple"}))
    );
    toy.gives(&id, json!("2025-01-22 14:30:25")).await;

    let mut asked = provider.asked().await;
    let result = json!({"success": true, "data": "2025-01-22 14:30:25"});
    must_tell(&asked, &result);
    // Each word is there before the next one is said.
    for (seq, words) in (0..).zip(example.answer) {
        asked.says(words).await;
        assert_eq!(toy.hears_piece(TASK, seq).await, words);
    }
    asked.ends("stop").await;
    toy.hears_end(TASK).await;
    assert!(provider.is_at_rest());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_supplements_example_goes_word_by_word_on_two_edges() {
    let objects = tempfile::tempdir().unwrap();
    let url = format!("file://{}", objects.path().display());
    let plant = Plant::start_with(2, &[("SWITCHBOARD_OBJECTS", &url)]).await;
    let mut stage = Stage::on(plant, Provider::start().await, &[]);
    for (edge, example) in EXAMPLES.iter().enumerate() {
        goes(&stage.site, &mut stage.provider, example, edge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_supplements_example_goes_word_by_word_under_up() {
    let mut stage = UpStage::set().await;
    for example in &EXAMPLES {
        goes(&stage.site, &mut stage.provider, example, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_without_an_npc_is_answered_by_nobody_in_particular() {
    let mut stage = Stage::set(1, &[]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.says(TASK, "Hello").await;
    let asked = stage.provider.asked().await;
    assert_eq!(asked.body["model"], MODEL);
    assert_eq!(asked.body.get("tools"), None);
    assert!(asked.system().contains("toy-1"), "{}", asked.system());
    asked.replies("Hello!").await;
    assert_eq!(toy.hears(TASK).await, "Hello!");
}
