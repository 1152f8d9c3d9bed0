//! The protocol's example with a model: the prompt, the device's call, and the streamed answer.

use serde_json::{Value, json};
use switchboard_protocol::frame::TaskId;

use super::marked_off;
use crate::{
    cluster::TestCluster,
    provider::{Provider, ProviderRequest},
    system::{ChatFixture, MODEL, TestSystem, UpFixture},
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
    /// Creates an NPC for this device, with a memory and a book that match the user message.
    async fn prepare(&self, system: &TestSystem, device: &str) {
        let book = system.book("Manual", self.book).await;
        let settings = json!({
            "name": "Bello", "locale": self.language, "persona": {"role": "a polite clock"}, "skills_book_ids": [book],
            "model": {"provider": "default", "model": MODEL, "temperature": 0.5, "max_tokens": 99},
        });
        let npc = system.npc(&settings, &[device]).await;
        system
            .remind(&npc, &format!("device:{device}"), self.memory)
            .await;
        let of_another = format!("{} Nobody's business.", self.question);
        system.remind(&npc, "device:another", &of_another).await;
    }

    /// Checks the first prompt.
    fn check_first_prompt(&self, request: &ProviderRequest) {
        assert_eq!(
            (request.user_message(), request.messages().len()),
            (self.question, 2)
        );
        let system = request.system();
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
        assert_eq!(request.body["tools"], json!([tool]));
        assert_eq!(request.body.get("tool_choice"), None);
        let choices = ["model", "temperature", "max_tokens", "stream"];
        assert_eq!(
            choices.map(|name| &request.body[name]),
            [&json!(MODEL), &json!(0.5), &json!(99), &json!(true)]
        );
    }
}

/// Checks the prompt after the tool call.
fn check_result_prompt(request: &ProviderRequest, result: &Value) {
    let (calls, results) = request.last_round();
    assert_eq!((calls.len(), results.len()), (1, 1), "{}", request.body);
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

/// Runs the example frame by frame on one of the device addresses.
async fn run_example(
    system: &TestSystem,
    provider: &mut Provider,
    example: &Example,
    address: usize,
) {
    let device = format!("toy-{}", example.language);
    example.prepare(system, &device).await;
    let mut device = system.device(address, &device).await;
    device.register(&time_service(example.description)).await;
    // Byte for byte as in the protocol supplement.
    let question = example.question;
    let said = format!("##START\u{4}task12340000{question}##END##START\u{3}task12340001##END");
    device.send_bytes(said.as_bytes()).await;

    let request = provider.next_request().await;
    example.check_first_prompt(&request);
    let call = ("call_7", "get_current_time", r#"{"format": "simple"}"#);
    request.calls(&[call]).await;

    let (id, service, params) = device.receive_call().await;
    assert_eq!(
        (service.as_str(), params),
        ("get_current_time", json!({"format": "simple"}))
    );
    device.send_result(&id, json!("2025-01-22 14:30:25")).await;

    let mut request = provider.next_request().await;
    let result = json!({"success": true, "data": "2025-01-22 14:30:25"});
    check_result_prompt(&request, &result);
    // The device receives each word before the model sends the next one.
    for (seq, text) in (0..).zip(example.answer) {
        request.send_text(text).await;
        assert_eq!(device.receive_chunk(TASK, seq).await, text);
    }
    request.finish("stop").await;
    device.receive_end(TASK).await;
    assert!(provider.is_idle());
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_example_is_streamed_on_two_edges() {
    let objects = tempfile::tempdir().unwrap();
    let url = format!("file://{}", objects.path().display());
    let cluster = TestCluster::start_with(2, &[("SWITCHBOARD_OBJECTS", &url)]).await;
    let mut fixture = ChatFixture::with_cluster(cluster, Provider::start().await, &[]);
    for (edge, example) in EXAMPLES.iter().enumerate() {
        run_example(&fixture.system, &mut fixture.provider, example, edge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_example_is_streamed_with_up() {
    let mut fixture = UpFixture::start().await;
    for example in &EXAMPLES {
        run_example(&fixture.system, &mut fixture.provider, example, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn device_without_npc_gets_generic_answer() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.send_text(TASK, "Hello").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(request.body["model"], MODEL);
    assert_eq!(request.body.get("tools"), None);
    assert!(request.system().contains("toy-1"), "{}", request.system());
    request.reply("Hello!").await;
    assert_eq!(device.receive_answer(TASK).await, "Hello!");
}
