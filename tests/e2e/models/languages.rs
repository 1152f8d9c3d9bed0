//! Apologies and answers of the service itself are in the language of the user.

use std::time::{Duration, Instant};

use reqwest::{StatusCode, header};
use serde_json::json;
use switchboard_test_support::eventually::eventually;

use super::quotas::{npc_of, set_quota};
use crate::{
    cluster::TestCluster,
    device::Device,
    provider::Provider,
    system::{ChatFixture, TestSystem, start_chat},
    turns::task,
};

/// In no language.
const NUMBERS: &str = "42";
const CHINESE: &str = "抱歉，我现在无法回答。请稍后再问。";
const ENGLISH: &str =
    "Sorry, I cannot think of an answer at the moment. Please ask again in a moment.";
/// Within this, a changed quota is in force: an amount is cached for 10 s, and counted turns are
/// written every 5 s.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(25);
const PUBLISHED_TIMEOUT: Duration = Duration::from_secs(20);

/// A system whose provider refuses everything.
async fn start() -> ChatFixture {
    let provider = Provider::scripted(|request| async move { request.reject(400, None) }).await;
    ChatFixture::start_with(provider, 1, &[]).await
}

async fn answer(device: &mut Device, text: &str) -> String {
    device.send_text(task(1), text).await;
    device.receive_answer(task(1)).await
}

/// Asks until the device receives this answer.
async fn answer_becomes(device: &mut Device, expected: &str, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    let mut last = String::new();
    while last != expected {
        assert!(Instant::now() < deadline, "{last}");
        last = answer(device, NUMBERS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apology_is_in_the_language_of_the_message_or_of_the_device() {
    let fixture = start().await;
    let mut device = fixture.system.device_in(0, "toy-1", "zh-CN").await;
    assert_eq!(answer(&mut device, NUMBERS).await, CHINESE);
    assert_eq!(answer(&mut device, "请告诉我现在几点").await, CHINESE);
    assert_eq!(answer(&mut device, "What time is it?").await, ENGLISH);
    // An unknown language is that of the organisation.
    let mut other = fixture.system.device_in(0, "toy-2", "tlh").await;
    assert_eq!(answer(&mut other, NUMBERS).await, ENGLISH);
    fixture.system.change_org(&json!({"locale": "de"})).await;
    let german =
        "Entschuldigung, mir fällt gerade keine Antwort ein. Bitte gleich noch einmal fragen.";
    let mut other = fixture.system.device_in(0, "toy-2", "tlh").await;
    answer_becomes(&mut other, german, PUBLISHED_TIMEOUT).await;
    assert_eq!(answer(&mut device, NUMBERS).await, CHINESE);

    set_quota(
        &fixture.cluster,
        &fixture.cluster.org,
        "turns_per_day",
        json!(1),
    )
    .await;
    let refused = "抱歉，我今天能说的话已经说完了。请明天再来。";
    answer_becomes(&mut device, refused, IN_FORCE_TIMEOUT).await;
    let text = answer(&mut device, "What time is it?").await;
    assert!(text.contains("come back tomorrow"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_answer_in_the_language_of_the_message_or_of_the_device() {
    let cluster = TestCluster::start(1).await;
    let chat = start_chat(&cluster, &[]);
    let system = TestSystem::new(&cluster, &chat);
    let mut device = system.device_in(0, "toy-1", "zh-CN").await;
    device.register("{}").await;
    let text = answer(&mut device, NUMBERS).await;
    assert!(text.starts_with("我没有找到与此相符的功能。"), "{text}");
    let text = answer(&mut device, "What is the meaning of life?").await;
    assert!(
        text.starts_with("I found nothing that fits this. "),
        "{text}"
    );
    let text = answer(&mut device, "Was ist der Sinn des Lebens?").await;
    assert!(text.starts_with("Ich habe nichts gefunden"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_over_http_names_the_languages() {
    let fixture = start().await;
    let npc = npc_of(&fixture, &fixture.cluster.org).await;
    let ask = async |accepted: Option<&str>, text: &str| {
        let url = format!("{}/v1/npcs/{npc}/chat", fixture.system.talk);
        let request = fixture
            .cluster
            .http
            .post(url)
            .bearer_auth(&fixture.system.key);
        let request = request.json(&json!({"text": text}));
        let request = match accepted {
            Some(accepted) => request.header(header::ACCEPT_LANGUAGE, accepted),
            None => request,
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let language = response.headers()[header::CONTENT_LANGUAGE].clone();
        let body = response.text().await.unwrap();
        (language.to_str().unwrap().to_owned(), body)
    };
    let check = async |accepted: Option<&str>, text: &str, language: &str, part: &str| {
        let (named, body) = ask(accepted, text).await;
        assert_eq!(named, language, "{body}");
        assert!(body.contains(part), "{body}");
        // Problems are for developers.
        assert!(body.contains("There is no answer at the moment"), "{body}");
    };
    check(None, NUMBERS, "en", "Sorry, I cannot think").await;
    check(Some("fr;q=0.5, de-CH"), NUMBERS, "de", "Entschuldigung").await;
    check(
        Some("zh-TW, en"),
        NUMBERS,
        "zh-Hant",
        "抱歉，我現在無法回答",
    )
    .await;
    check(Some("tlh, ja;q=0.1"), NUMBERS, "ja", "申し訳ありません").await;
    check(Some("zh-TW"), "What time is it?", "en", "Sorry").await;
    fixture.system.change_org(&json!({"locale": "es"})).await;
    let named = async || ask(Some("tlh"), NUMBERS).await.0;
    let named = eventually(PUBLISHED_TIMEOUT, named, |language| language == "es").await;
    assert_eq!(named, "es");
}
