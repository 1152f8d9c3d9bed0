//! People without a device talk to an NPC over HTTP, and hear its answer as it is given.
//! Never: an answer that goes on when nobody listens.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    provider::Provider,
    site::{Site, Stage, UpStage},
    turns::{task, time_service},
};

const SOON: Duration = Duration::from_secs(20);

/// An answer event by event.
struct Events {
    response: Response,
    heard: String,
}

impl Site {
    async fn talk(&self, key: &str, npc: &str, body: &Value) -> Response {
        let url = format!("{}/v1/npcs/{npc}/chat", self.talk);
        let request = self.http.post(url).bearer_auth(key).json(body);
        request.send().await.unwrap()
    }

    async fn events(&self, npc: &str, body: &Value) -> Events {
        let response = self.talk(&self.key, npc, body).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events {
            response,
            heard: String::new(),
        }
    }
}

impl Events {
    /// The next one: its name and its data.
    async fn next(&mut self) -> Option<(String, Value)> {
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
                    // A sign of life.
                    None => continue,
                }
            }
            let chunk = timeout(SOON, self.response.chunk()).await;
            let chunk = chunk.expect("an event in time").unwrap()?;
            self.heard.push_str(&String::from_utf8_lossy(&chunk));
        }
    }

    async fn must_be(&mut self, name: &str) -> Value {
        let (found, data) = self.next().await.expect("an event before the end");
        assert_eq!(found, name, "{data}");
        data
    }
}

/// Two devices are an NPC's tools; what it says and does is heard at once, and the conversation goes on.
async fn an_npc_is_talked_to(site: &Site, provider: &mut Provider) {
    let bello = json!({"name": "Bello", "persona": {"role": "a clock with two faces"}});
    let npc = site.npc(&bello, &["hall", "kitchen"]).await;
    let mut hall = site.device(0, "hall").await;
    let mut kitchen = site.device(0, "kitchen").await;
    for toy in [&mut hall, &mut kitchen] {
        toy.register(&time_service("Get current time")).await;
    }
    let words = json!({"text": "What time is it in the kitchen?", "subject": "user:anna"});
    let mut events = site.events(&npc, &words).await;
    let mut asked = provider.asked().await;
    assert!(asked.system().contains("a clock with two faces"));
    let tools = asked.body["tools"].as_array().unwrap().iter();
    let names: Vec<_> = tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["hall__get_current_time", "kitchen__get_current_time"]
    );
    asked.says("I look.").await;
    assert_eq!(events.must_be("text").await, json!({"text": "I look."}));
    let call = (
        "call_1",
        "kitchen__get_current_time",
        r#"{"format": "simple"}"#,
    );
    asked.calls(&[call]).await;
    let (id, ..) = kitchen.is_called().await;
    kitchen.gives(&id, json!("14:30")).await;
    let called = events.must_be("call").await;
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
    provider.asked().await.replies("It is 14:30.").await;
    assert_eq!(
        events.must_be("text").await,
        json!({"text": "\nIt is 14:30."})
    );
    let end = events.must_be("end").await;
    assert_eq!(events.next().await, None);

    let mut words = json!({"text": "And in the hall?", "conversation_id": end["conversation_id"], "subject": "user:anna"});
    let mut events = site.events(&npc, &words).await;
    let asked = provider.asked().await;
    assert_eq!(
        asked.messages()[1]["content"],
        "What time is it in the kitchen?"
    );
    assert_eq!(asked.question(), "And in the hall?");
    asked.replies("The same.").await;
    assert_eq!(events.must_be("text").await, json!({"text": "The same."}));
    assert_eq!(events.must_be("end").await, end);
    // Without its id, or by somebody else, it is another conversation.
    let named = words.as_object_mut().unwrap();
    named.insert("subject".to_owned(), json!("user:ben"));
    for (words, is_same_id) in [(words, true), (json!({"text": "Hello"}), false)] {
        let mut events = site.events(&npc, &words).await;
        let asked = provider.asked().await;
        assert_eq!(asked.messages().len(), 2, "{}", asked.body);
        asked.replies("Hello!").await;
        events.must_be("text").await;
        assert_eq!(events.must_be("end").await == end, is_same_id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_npc_is_talked_to_over_http() {
    let mut stage = Stage::set(1, &[]).await;
    an_npc_is_talked_to(&stage.site, &mut stage.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_npc_is_talked_to_over_http_under_up() {
    let mut stage = UpStage::set().await;
    an_npc_is_talked_to(&stage.site, &mut stage.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_hangs_up_ends_the_request_to_the_provider() {
    let mut stage = Stage::set(1, &[]).await;
    let site = &stage.site;
    let npc = site.npc(&json!({"name": "Bello"}), &["toy-1"]).await;
    let mut toy = site.device(0, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    // In the middle of words.
    let mut events = site.events(&npc, &json!({"text": "Tell me a story"})).await;
    let mut asked = stage.provider.asked().await;
    let tool = &asked.body["tools"][0]["function"]["name"];
    assert_eq!(tool, "get_current_time", "one device has no prefix");
    asked.says("Once upon a time").await;
    events.must_be("text").await;
    drop(events);
    asked.hung_up().await;
    stage.site.turns_ended("stopped", 1).await;
    // In the middle of a call, which is cancelled.
    let site = &stage.site;
    let events = site
        .events(&npc, &json!({"text": "What time is it?"}))
        .await;
    let asked = stage.provider.asked().await;
    asked.calls(&[("call_1", "get_current_time", "{}")]).await;
    let (id, ..) = toy.is_called().await;
    drop(events);
    assert_eq!(toy.is_told("cancel").await["call_id"], id);
    stage.site.turns_ended("stopped", 2).await;
    assert!(stage.provider.is_at_rest());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_talk_or_says_nothing_is_refused() {
    let mut stage = Stage::set(1, &[]).await;
    let site = &stage.site;
    let npc = site.npc(&json!({"name": "Bello"}), &[]).await;
    let stranger = stage.plant.another_org("second").await;
    let reader = stage
        .plant
        .token(&stage.plant.org, "client:anna", &["read"])
        .await;
    let reader = reader["access_token"].as_str().unwrap();
    let (hello, key) = (json!({"text": "Hello"}), site.key.as_str());
    let long = "x".repeat(16 * 1024 + 1);
    let refused: [(&str, &str, Value, u16, &str); 8] = [
        (&stranger.key, &npc, hello.clone(), 404, "unknown_npc"),
        (reader, &npc, hello.clone(), 403, "insufficient_scope"),
        ("sb_nobody", &npc, hello.clone(), 401, ""),
        (key, "npc_1", hello.clone(), 422, "invalid_path"),
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
        let answer = site.talk(key, npc, &body).await;
        assert_eq!(answer.status().as_u16(), status, "{body:.60}");
        let problem: Value = answer.json().await.unwrap();
        let kind = problem["type"].as_str().unwrap();
        assert!(kind.ends_with(slug), "{problem}");
    }
    // One who may call devices may talk.
    let caller = stage
        .plant
        .token(&stage.plant.org, "client:anna", &["call"])
        .await;
    let caller = caller["access_token"].as_str().unwrap();
    let answer = site.talk(caller, &npc, &hello).await;
    assert_eq!(answer.status(), StatusCode::OK);
    stage.provider.asked().await.replies("Hello!").await;
    assert!(answer.text().await.unwrap().contains("Hello!"));
    assert_eq!(stage.provider.seen().len(), 1, "a refused one was answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_says_is_remembered_of_them() {
    let rest = ("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1");
    let mut stage = Stage::set(1, &[rest]).await;
    let npc = stage.site.npc(&json!({"name": "Bello"}), &[]).await;
    let people = [
        json!({"text": "I like tea"}),
        json!({"text": "I like tea", "subject": "user:anna"}),
    ];
    for words in people {
        let mut events = stage.site.events(&npc, &words).await;
        stage.provider.asked().await.replies("I see.").await;
        events.must_be("text").await;
        events.must_be("end").await;
    }
    // Of somebody who cannot be told apart nothing is kept.
    let asked = stage.provider.asked().await;
    assert!(asked.question().contains("User: I like tea"));
    asked.replies(r#"["Anna likes tea."]"#).await;
    let memories = stage.site.memories_when(&npc, 1).await;
    assert_eq!(memories[0]["subject"], "user:anna");
    // A device of hers is somebody else.
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.says(task(1), "Does Anna like tea?").await;
    let asked = stage.provider.asked().await;
    assert!(!asked.system().contains("Anna likes tea."));
    asked.replies("Who knows.").await;
    toy.hears(task(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_organisation_leaves_room_for_others_and_nobody_talks_too_often() {
    let limits = [
        ("SWITCHBOARD_CHAT_ORG_LINES", "1"),
        ("SWITCHBOARD_CHAT_CALLER_RATE_PER_S", "1"),
        ("SWITCHBOARD_CHAT_CALLER_BURST", "4"),
    ];
    let mut stage = Stage::set(1, &limits).await;
    let site = &stage.site;
    let npc = site.npc(&json!({"name": "Bello"}), &[]).await;
    let hello = json!({"text": "Hello"});
    let mut first = site.events(&npc, &hello).await;
    let asked = stage.provider.asked().await;
    let second = site.talk(&site.key, &npc, &hello).await;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(second.headers().contains_key("retry-after"));
    let problem: Value = second.json().await.unwrap();
    let kind = problem["type"].as_str().unwrap();
    assert!(kind.ends_with("too_many_turns"), "{problem}");
    asked.replies("Hello!").await;
    first.must_be("text").await;
    first.must_be("end").await;
    // The bucket holds four and one more each second: of fifty at once some come too often, however slow this machine is.
    let mut all = JoinSet::new();
    for _ in 0..50 {
        let url = format!("{}/v1/npcs/{npc}/chat", site.talk);
        let request = site.http.post(url).bearer_auth(&site.key).json(&hello);
        all.spawn(async move {
            let answer = request.send().await.unwrap();
            match answer.status() {
                StatusCode::OK => Value::Null,
                _ => answer.json().await.unwrap(),
            }
        });
    }
    let answers = all.join_all().await;
    let is_too_often = |problem: &&Value| problem["type"] == "/problems/rate_limited";
    let too_often = answers.iter().filter(is_too_often).count();
    assert!(too_often > 0, "{answers:?}");
}
