//! Users without a device talk with an NPC over HTTP and receive its answer as it is generated.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use super::quotas::npc_of;
use crate::{
    cluster::TestCluster,
    provider::Provider,
    system::{ChatFixture, TestSystem, UpFixture},
    turns::{task, time_service},
};

const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// The server-sent events of an answer.
pub struct Events {
    response: Response,
    heard: String,
}

impl TestSystem {
    async fn talk(&self, key: &str, npc: &str, body: &Value) -> Response {
        let url = format!("{}/v1/npcs/{npc}/chat", self.talk);
        let request = self.http.post(url).bearer_auth(key).json(body);
        request.send().await.unwrap()
    }

    /// Sends a message to an NPC, whose answer begins.
    pub async fn events(&self, npc: &str, body: &Value) -> Events {
        let response = self.talk(&self.key, npc, body).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events {
            response,
            heard: String::new(),
        }
    }

    /// Sends fifty messages at once, with each of the keys in turn. Returns how many exceed a rate,
    /// of which there must be some.
    async fn exceed_rate(&self, npc: &str, keys: &[impl AsRef<str>]) -> usize {
        let mut all = JoinSet::new();
        for key in keys.iter().cycle().take(50) {
            let url = format!("{}/v1/npcs/{npc}/chat", self.talk);
            let request = self.http.post(url).bearer_auth(key.as_ref());
            let request = request.json(&json!({"text": "Hello"}));
            all.spawn(async move {
                let answer = request.send().await.unwrap();
                match answer.status() {
                    StatusCode::OK => Value::Null,
                    _ => answer.json().await.unwrap(),
                }
            });
        }
        let answers = all.join_all().await;
        let is_limited = |problem: &&Value| problem["type"] == "/problems/rate_limited";
        let limited = answers.iter().filter(is_limited).count();
        assert!(limited > 0, "{answers:?}");
        limited
    }
}

impl Events {
    /// The next event: its name and its data.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.heard.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = event.lines();
                    lines.find_map(|line| {
                        line.strip_prefix(name).map(|value| value.trim().to_owned())
                    })
                };
                let found = field("event:").zip(field("data:"));
                self.heard = rest.to_owned();
                match found {
                    Some((name, data)) => {
                        return Some((name, serde_json::from_str(&data).unwrap()));
                    }
                    // A keep-alive comment.
                    None => continue,
                }
            }
            let chunk = timeout(EVENT_TIMEOUT, self.response.chunk()).await;
            let chunk = chunk.expect("an event in time").unwrap()?;
            self.heard.push_str(&String::from_utf8_lossy(&chunk));
        }
    }

    pub async fn expect_event(&mut self, name: &str) -> Value {
        let (found, data) = self.next().await.expect("an event before the end");
        assert_eq!(found, name, "{data}");
        data
    }
}

/// Two devices are an NPC's tools. Text and calls are streamed, and the conversation continues.
#[expect(clippy::too_many_lines, reason = "one conversation, step by step")]
async fn check_npc_chat(system: &TestSystem, provider: &mut Provider) {
    let bello = json!({"name": "Bello", "persona": {"role": "a clock with two faces"}});
    let npc = system.npc(&bello, &["hall", "kitchen"]).await;
    let mut hall = system.device(0, "hall").await;
    let mut kitchen = system.device(0, "kitchen").await;
    for device in [&mut hall, &mut kitchen] {
        device.register(&time_service("Get current time")).await;
    }
    let text = json!({"text": "What time is it in the kitchen?", "subject": "user:anna"});
    let mut events = system.events(&npc, &text).await;
    let mut completion = provider.next_request().await;
    assert!(completion.system().contains("a clock with two faces"));
    let tools = completion.body["tools"].as_array().unwrap().iter();
    let names: Vec<_> = tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["hall__get_current_time", "kitchen__get_current_time"]
    );
    completion.send_text("I look.").await;
    assert_eq!(
        events.expect_event("text").await,
        json!({"text": "I look."})
    );
    let call = (
        "call_1",
        "kitchen__get_current_time",
        r#"{"format": "simple"}"#,
    );
    completion.calls(&[call]).await;
    let (id, ..) = kitchen.receive_call().await;
    kitchen.send_result(&id, json!("14:30")).await;
    let called = events.expect_event("call").await;
    assert_eq!(
        (&called["device_id"], &called["tool"], &called["params"]),
        (
            &json!("kitchen"),
            &json!("kitchen__get_current_time"),
            &json!({"format": "simple"})
        )
    );
    let result: Value = serde_json::from_str(called["result"].as_str().unwrap()).unwrap();
    assert_eq!(result, json!({"success": true, "data": "14:30"}));
    provider.next_request().await.reply("It is 14:30.").await;
    assert_eq!(
        events.expect_event("text").await,
        json!({"text": "\nIt is 14:30."})
    );
    let end = events.expect_event("end").await;
    assert_eq!(events.next().await, None);

    let mut text = json!({"text": "And in the hall?", "conversation_id": end["conversation_id"], "subject": "user:anna"});
    let mut events = system.events(&npc, &text).await;
    let completion = provider.next_request().await;
    assert_eq!(
        completion.messages()[1]["content"],
        "What time is it in the kitchen?"
    );
    assert_eq!(completion.user_message(), "And in the hall?");
    completion.reply("The same.").await;
    assert_eq!(
        events.expect_event("text").await,
        json!({"text": "The same."})
    );
    assert_eq!(events.expect_event("end").await, end);
    // Without the conversation's id, or with another user, it is another conversation.
    let named = text.as_object_mut().unwrap();
    named.insert("subject".to_owned(), json!("user:ben"));
    for (text, is_same_id) in [(text, true), (json!({"text": "Hello"}), false)] {
        let mut events = system.events(&npc, &text).await;
        let completion = provider.next_request().await;
        assert_eq!(completion.messages().len(), 2, "{}", completion.body);
        completion.reply("Hello!").await;
        events.expect_event("text").await;
        assert_eq!(events.expect_event("end").await == end, is_same_id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn npc_answers_over_http() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    check_npc_chat(&fixture.system, &mut fixture.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn npc_answers_over_http_with_up() {
    let mut fixture = UpFixture::start().await;
    check_npc_chat(&fixture.system, &mut fixture.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_ends_with_its_sources() {
    let folder = tempfile::tempdir().unwrap();
    let objects = format!("file://{}", folder.path().display());
    let cluster = TestCluster::start_with(1, &[("SWITCHBOARD_OBJECTS", &objects)]).await;
    let mut fixture = ChatFixture::with_cluster(cluster, Provider::start().await, &[]);
    let system = &fixture.system;
    let text = "Replace the battery once a year.";
    let book = system.book("Manual", text).await;
    let bello = json!({"name": "Bello", "skills_book_ids": [book]});
    let npc = system.npc(&bello, &[]).await;
    let memory = "Anna replaces the battery in May.";
    system.remind(&npc, "user:anna", memory).await;
    let question = json!({"text": "When do I replace the battery?", "subject": "user:anna"});
    let mut events = system.events(&npc, &question).await;
    fixture.provider.next_request().await.reply("In May.").await;
    events.expect_event("text").await;
    let end = events.expect_event("end").await;
    let sources = end["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 2, "{end}");
    assert_eq!(
        (&sources[0]["kind"], &sources[0]["title"]),
        (&json!("memory"), &json!(memory))
    );
    assert_eq!(
        (&sources[1]["kind"], &sources[1]["id"]),
        (&json!("passage"), &json!(book))
    );
    for source in sources {
        let score = source["score"].as_f64().unwrap();
        assert!(score > 0.0 && score <= 1.0, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_disconnect_closes_provider_request() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let system = &fixture.system;
    let npc = system.npc(&json!({"name": "Bello"}), &["toy-1"]).await;
    let mut device = system.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    // Disconnects in the middle of the text.
    let mut events = system
        .events(&npc, &json!({"text": "Tell me a story"}))
        .await;
    let mut completion = fixture.provider.next_request().await;
    let tool = &completion.body["tools"][0]["function"]["name"];
    assert_eq!(tool, "get_current_time", "one device has no prefix");
    completion.send_text("Once upon a time").await;
    events.expect_event("text").await;
    drop(events);
    completion.wait_closed().await;
    fixture.system.turns_ended("stopped", 1).await;
    // Disconnects during a call, which is cancelled.
    let system = &fixture.system;
    let events = system
        .events(&npc, &json!({"text": "What time is it?"}))
        .await;
    let completion = fixture.provider.next_request().await;
    completion
        .calls(&[("call_1", "get_current_time", "{}")])
        .await;
    let (id, ..) = device.receive_call().await;
    drop(events);
    assert_eq!(device.receive_message("cancel").await["call_id"], id);
    fixture.system.turns_ended("stopped", 2).await;
    assert!(fixture.provider.is_idle());
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_without_scope_or_text_is_rejected() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let system = &fixture.system;
    let npc = system.npc(&json!({"name": "Bello"}), &[]).await;
    let stranger = fixture.cluster.another_org("second").await;
    let reader = fixture
        .cluster
        .token(&fixture.cluster.org, "client:anna", &["read"])
        .await;
    let reader = reader["access_token"].as_str().unwrap();
    let (hello, key) = (json!({"text": "Hello"}), system.key.as_str());
    let long = "x".repeat(16 * 1024 + 1);
    let refused: [(&str, &str, Value, u16, &str); 8] = [
        (&stranger.key, &npc, hello.clone(), 404, "unknown_npc"),
        (reader, &npc, hello.clone(), 403, "insufficient_scope"),
        ("sb_nobody", &npc, hello.clone(), 401, ""),
        (key, "npc_1", hello.clone(), 404, "not_found"),
        (key, &npc, json!({"text": " \n"}), 422, "invalid_body"),
        (key, &npc, json!({"text": long}), 422, "invalid_body"),
        (
            key,
            &npc,
            json!({"text": "Hello", "subject": "a\nb"}),
            422,
            "invalid_body",
        ),
        (
            key,
            &npc,
            json!({"text": "Hello", "mood": 1}),
            422,
            "invalid_body",
        ),
    ];
    for (key, npc, body, status, slug) in refused {
        let answer = system.talk(key, npc, &body).await;
        assert_eq!(answer.status().as_u16(), status, "{body:.60}");
        let problem: Value = answer.json().await.unwrap();
        let kind = problem["type"].as_str().unwrap();
        assert!(kind.ends_with(slug), "{problem}");
    }
    // The `call` scope permits chat.
    let caller = fixture
        .cluster
        .token(&fixture.cluster.org, "client:anna", &["call"])
        .await;
    let caller = caller["access_token"].as_str().unwrap();
    let answer = system.talk(caller, &npc, &hello).await;
    assert_eq!(answer.status(), StatusCode::OK);
    fixture.provider.next_request().await.reply("Hello!").await;
    assert!(answer.text().await.unwrap().contains("Hello!"));
    assert_eq!(
        fixture.provider.seen().len(),
        1,
        "a refused one was answered"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_user_is_stored_for_that_user() {
    let rest = ("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1");
    let mut fixture = ChatFixture::start(1, &[rest]).await;
    let npc = fixture.system.npc(&json!({"name": "Bello"}), &[]).await;
    let people = [
        json!({"text": "I like tea"}),
        json!({"text": "I like tea", "subject": "user:anna"}),
    ];
    for text in people {
        let mut events = fixture.system.events(&npc, &text).await;
        fixture.provider.next_request().await.reply("I see.").await;
        events.expect_event("text").await;
        events.expect_event("end").await;
    }
    // No memories are extracted for an unidentified user.
    let completion = fixture.provider.next_request().await;
    assert!(completion.user_message().contains("User: I like tea"));
    completion.reply(r#"["Anna likes tea."]"#).await;
    let memories = fixture.system.memories_when(&npc, 1).await;
    assert_eq!(memories[0]["subject"], "user:anna");
    // A device is another user: the memories of `user:anna` are not in its prompt.
    let mut device = fixture.system.device(0, "toy-1").await;
    device.send_text(task(1), "Does Anna like tea?").await;
    let completion = fixture.provider.next_request().await;
    assert!(!completion.system().contains("Anna likes tea."));
    completion.reply("Who knows.").await;
    device.receive_answer(task(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_limits_apply_per_organisation_and_user() {
    let limits = [
        ("SWITCHBOARD_CHAT_ORG_LINES", "1"),
        ("SWITCHBOARD_CHAT_CALLER_RATE_PER_S", "1"),
        ("SWITCHBOARD_CHAT_CALLER_BURST", "4"),
    ];
    let mut fixture = ChatFixture::start(1, &limits).await;
    let system = &fixture.system;
    let npc = system.npc(&json!({"name": "Bello"}), &[]).await;
    let hello = json!({"text": "Hello"});
    let mut first = system.events(&npc, &hello).await;
    let completion = fixture.provider.next_request().await;
    let second = system.talk(&system.key, &npc, &hello).await;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(second.headers().contains_key("retry-after"));
    let problem: Value = second.json().await.unwrap();
    let kind = problem["type"].as_str().unwrap();
    assert!(kind.ends_with("too_many_turns"), "{problem}");
    completion.reply("Hello!").await;
    first.expect_event("text").await;
    first.expect_event("end").await;
    // The bucket has a capacity of four and refills one per second: of fifty concurrent requests
    // some exceed it, also on a slow machine.
    system.exceed_rate(&npc, &[&system.key]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_an_organisation_share_its_rate_of_messages() {
    let limits = [
        ("SWITCHBOARD_CHAT_ORG_RATE_PER_S", "1"),
        ("SWITCHBOARD_CHAT_ORG_BURST", "4"),
    ];
    let provider = Provider::scripted(|request| request.reply("Hi.")).await;
    let fixture = ChatFixture::start_with(provider, 0, &limits).await;
    let (cluster, system) = (&fixture.cluster, &fixture.system);
    let npc = system.npc(&json!({"name": "Bello"}), &[]).await;
    let mut tokens = Vec::new();
    for user in ["anna", "ben"] {
        let subject = format!("client:{user}");
        let token = cluster.token(&cluster.org, &subject, &["call"]).await;
        tokens.push(token["access_token"].as_str().unwrap().to_owned());
    }
    // Each caller stays within its own burst of 50. Of fifty concurrent messages some exceed the
    // organisation's, also on a slow machine.
    let limited = system.exceed_rate(&npc, &tokens).await;
    let of_org = format!("switchboard_chat_shed_total{{reason=\"org_rate\"}} {limited}\n");
    system.metric(&of_org).await;
    // Another organisation has a rate of its own.
    let others = cluster.another_org("Others").await;
    let theirs = npc_of(&fixture, &others).await;
    let hello = json!({"text": "Hello"});
    let answer = system.talk(&others.key, &theirs, &hello).await;
    assert_eq!(answer.status(), StatusCode::OK);
}
