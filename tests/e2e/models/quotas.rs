//! Quotas of a day: turns, and the cost of language models.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;

use crate::{
    cluster::{OPERATOR_KEY, Org, TestCluster},
    provider::Provider,
    speech::{RECORDING, dialogue},
    system::ChatFixture,
    turns::task,
};

/// Within this, a changed quota is in force: an amount is cached for 10 s, and counted turns are
/// written every 5 s.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(25);

/// A system whose provider always answers, and whose rates allow to ask often.
async fn start(settings: &[(&'static str, &str)]) -> ChatFixture {
    let provider = Provider::scripted(|request| request.reply("Hi.")).await;
    let rates = [
        ("SWITCHBOARD_CHAT_CALLER_RATE_PER_S", "100000"),
        ("SWITCHBOARD_CHAT_CALLER_BURST", "100000"),
        ("SWITCHBOARD_CHAT_ORG_RATE_PER_S", "100000"),
        ("SWITCHBOARD_CHAT_ORG_BURST", "100000"),
    ];
    ChatFixture::start_with(provider, 1, &[&rates, settings].concat()).await
}

pub async fn set_quota(cluster: &TestCluster, org: &Org, quota: &str, limit: Value) {
    let url = format!("{}/v1/orgs/{}", cluster.control.address("http_url"), org.id);
    let request = cluster.http.patch(url).bearer_auth(OPERATOR_KEY);
    let changed = request.json(&json!({"quotas": {quota: limit}})).send();
    assert_eq!(changed.await.unwrap().status(), StatusCode::OK);
}

/// Sends a message to an NPC, and reads the answer to its end.
async fn chat(fixture: &ChatFixture, org: &Org, npc: &str) -> (StatusCode, Option<u64>, Value) {
    send(fixture, org, npc, json!({"text": "Hello"})).await
}

/// Sends this message to an NPC, and reads the answer to its end.
pub async fn send(
    fixture: &ChatFixture,
    org: &Org,
    npc: &str,
    message: Value,
) -> (StatusCode, Option<u64>, Value) {
    let url = format!("{}/v1/npcs/{npc}/chat", fixture.system.talk);
    let request = fixture.cluster.http.post(url).bearer_auth(&org.key);
    let answer: Response = request.json(&message).send().await.unwrap();
    let retry_after = answer.headers().get("retry-after");
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let status = answer.status();
    let body = answer.text().await.unwrap();
    (
        status,
        retry_after,
        serde_json::from_str(&body).unwrap_or_default(),
    )
}

pub async fn npc_of(fixture: &ChatFixture, org: &Org) -> String {
    let url = format!("{}/v1/npcs", fixture.system.settings);
    let request = fixture.cluster.http.request(Method::POST, url);
    let request = request.bearer_auth(&org.key);
    let created = request
        .json(&json!({"overrides": {"name": "Bello"}}))
        .send();
    let created: Value = created.await.unwrap().json().await.unwrap();
    created["id"].as_str().unwrap().to_owned()
}

fn assert_refused(
    (status, retry_after, problem): (StatusCode, Option<u64>, Value),
    quota: &str,
    limit: &Value,
) {
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{problem}");
    assert_eq!(problem["type"], "/problems/quota_exceeded", "{problem}");
    assert_eq!(
        (&problem["quota"], &problem["limit"]),
        (&json!(quota), limit)
    );
    assert!(
        (1..=86_400).contains(&retry_after.unwrap()),
        "{retry_after:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_day_are_limited() {
    let fixture = start(&[]).await;
    let cluster = &fixture.cluster;
    let (org, other) = (&cluster.org, cluster.another_org("Others").await);
    let (npc, others_npc) = (npc_of(&fixture, org).await, npc_of(&fixture, &other).await);
    let mut device = fixture.system.device(0, "toy-1").await;
    set_quota(cluster, org, "turns_per_day", json!(2)).await;
    // Until then, the quota may not have reached the chat process.
    let status = async || chat(&fixture, org, &npc).await.0;
    let is_refused = |status: &StatusCode| *status == StatusCode::TOO_MANY_REQUESTS;
    let refused = eventually(IN_FORCE_TIMEOUT, status, is_refused).await;
    assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    assert_refused(chat(&fixture, org, &npc).await, "turns_per_day", &json!(2));
    let asked = fixture.provider.seen().len();
    device.send_text(task(1), "Hello").await;
    let answer = device.receive_answer(task(1)).await;
    assert!(answer.contains("come back tomorrow"), "{answer}");
    fixture.system.turns_ended("quota_exceeded", 1).await;
    assert_eq!(
        fixture.provider.seen().len(),
        asked,
        "a refused turn costs nothing"
    );
    assert_eq!(chat(&fixture, &other, &others_npc).await.0, StatusCode::OK);

    set_quota(cluster, org, "turns_per_day", json!(1_000)).await;
    let status = async || chat(&fixture, org, &npc).await.0;
    let raised = eventually(IN_FORCE_TIMEOUT, status, |status| status.is_success()).await;
    assert_eq!(raised, StatusCode::OK);
    device.send_text(task(2), "Hello").await;
    assert_eq!(device.receive_answer(task(2)).await, "Hi.");
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_of_a_day_is_limited() {
    // The 19 prompt tokens of a turn cost 0.19.
    let fixture = start(&[("SWITCHBOARD_COMPLETIONS_PROMPT_PRICE", "10000")]).await;
    let cluster = &fixture.cluster;
    let (org, other) = (&cluster.org, cluster.another_org("Others").await);
    let (npc, others_npc) = (npc_of(&fixture, org).await, npc_of(&fixture, &other).await);
    set_quota(cluster, org, "model_cost_per_day", json!(0.25)).await;
    let status = async || chat(&fixture, org, &npc).await.0;
    let is_refused = |status: &StatusCode| *status == StatusCode::TOO_MANY_REQUESTS;
    let refused = eventually(IN_FORCE_TIMEOUT, status, is_refused).await;
    assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    assert_refused(
        chat(&fixture, org, &npc).await,
        "model_cost_per_day",
        &json!(0.25),
    );
    assert_eq!(chat(&fixture, &other, &others_npc).await.0, StatusCode::OK);
    set_quota(cluster, org, "model_cost_per_day", json!(0)).await;
    let status = async || chat(&fixture, org, &npc).await.0;
    let raised = eventually(IN_FORCE_TIMEOUT, status, |status| status.is_success()).await;
    assert_eq!(raised, StatusCode::OK);
}

/// What is spoken is counted, and refused beyond the quota; what is written is answered.
#[tokio::test(flavor = "multi_thread")]
async fn speech_of_a_day_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("recognize.sh");
    std::fs::write(&script, "cat > /dev/null; echo hello").unwrap();
    let recognizer = [
        ("SWITCHBOARD_STT_KIND", "command"),
        (
            "SWITCHBOARD_STT_ENDPOINT",
            &format!("sh {}", script.display()),
        ),
    ];
    let cluster = TestCluster::start_with(1, &recognizer).await;
    let provider = Provider::scripted(|request| request.reply("Hi.")).await;
    let fixture = ChatFixture::with_cluster(cluster, provider, &[]);
    let cluster = &fixture.cluster;
    // Three seconds; the recording has more than two.
    set_quota(cluster, &cluster.org, "speech_minutes_per_day", json!(0.05)).await;
    let says = async || {
        let arguments = ["--mic", RECORDING, "--listen", "manual"];
        let events = dialogue(cluster, 0, &arguments).await;
        let says = events.into_iter().filter(|(event, _)| event != "heard");
        says.map(|(_, text)| text).collect::<String>()
    };
    let is_refused = |says: &String| says.contains("speak to me again tomorrow");
    let refused = eventually(IN_FORCE_TIMEOUT, says, is_refused).await;
    assert!(is_refused(&refused), "{refused}");
    fixture.system.turns_ended("quota_exceeded", 1).await;
    let refusals = "switchboard_http_quota_refused_total{quota=\"speech_minutes_per_day\"";
    fixture.system.metric(refusals).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.send_text(task(1), "Hello").await;
    assert_eq!(device.receive_answer(task(1)).await, "Hi.");

    let usage = async || {
        let (_, usage) = fixture
            .system
            .ask(Method::GET, "/v1/usage", &Value::Null)
            .await;
        usage
    };
    // Also what was said in vain.
    let is_counted = |usage: &Value| usage["total"]["speech_milliseconds"].as_u64() > Some(3_000);
    let usage = eventually(IN_FORCE_TIMEOUT, usage, is_counted).await;
    assert!(is_counted(&usage), "{usage}");
    let mut quotas = usage["quotas"].as_array().unwrap().iter();
    let speech = quotas.find(|one| one["quota"] == "speech_minutes_per_day");
    let speech = speech.unwrap();
    assert_eq!(speech["limit"], json!(0.05), "{usage}");
    assert!(speech["used"].as_f64() > Some(0.05), "{usage}");
}
