//! Attacks on a chat process.

use reqwest::Response;
use serde_json::json;
use switchboard_protocol::message::MAX_PICTURE_BYTES;

use super::{
    super::{Service, Takes, Target, sized},
    at_once, devices,
};
use crate::{
    cluster::Org,
    device::Device,
    provider::{Provider, ProviderRequest},
    system::{MODEL, TestSystem},
    turns::task,
};

/// The name of the user in the conversations of the attacker.
const NOISY_USER: &str = "Nora";

/// A service whose call lasts as long as it may.
fn endless_service() -> String {
    json!({"wave": {"description": "Waves", "parameters": {"type": "object"}, "timeout_ms": 89_000}})
        .to_string()
}

impl Target {
    fn system(&self, org: &Org) -> TestSystem {
        let mut system = TestSystem::new(&self.cluster, self.chat.as_ref().unwrap());
        system.key.clone_from(&org.key);
        system
    }
}

/// Sends a message to an NPC over HTTP. Returns the response as soon as it begins.
async fn talk(system: &TestSystem, npc: &str, text: &str) -> Response {
    let url = format!("{}/v1/npcs/{npc}/chat", system.talk);
    let message = system.http.post(url).bearer_auth(&system.key);
    message.json(&json!({"text": text})).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_turns_leave_turns_to_others() {
    let turns = sized(16, 256).to_string();
    let setting = ("SWITCHBOARD_CHAT_TURNS", &*turns);
    let target = Target::start(Service::Chat, &[setting]).await;
    let attack = async {
        // At full size, also more than the share of the turn queue.
        let mut devices = devices(&target.cluster, sized(16, 700)).await;
        for device in &mut devices {
            device.register(&endless_service()).await;
            for number in 0..sized(1, 4) {
                device.send_text(task(number), "Please wave").await;
            }
        }
        devices.into_iter().map(Device::stall).collect::<Vec<_>>()
    };
    target
        .measure("endless turns", Takes::Share("chat_turns"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_turns_with_pictures_leave_memory_to_others() {
    let target = Target::start(Service::Chat, &[]).await;
    let attack = async {
        let mut picture = b"GIF89a".to_vec();
        picture.resize(MAX_PICTURE_BYTES, 0);
        let mut devices = devices(&target.cluster, sized(14, 32)).await;
        for device in &mut devices {
            device.register(&endless_service()).await;
            device.show(task(0), &picture, "Please wave").await;
        }
        devices.into_iter().map(Device::stall).collect::<Vec<_>>()
    };
    target
        .measure(
            "endless turns with pictures",
            Takes::Share("chat_pictures"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_answers_over_http_leave_room_to_others() {
    let settings = [
        ("SWITCHBOARD_CHAT_TURNS", &*sized(32, 256).to_string()),
        ("SWITCHBOARD_CHAT_CALLER_RATE_PER_S", "1000"),
        ("SWITCHBOARD_CHAT_CALLER_BURST", "1000"),
        ("SWITCHBOARD_CHAT_ORG_RATE_PER_S", "1000"),
        ("SWITCHBOARD_CHAT_ORG_BURST", "1000"),
    ];
    let target = Target::start(Service::Chat, &settings).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let (noisy, quiet) = (target.system(&cluster.org), target.system(&other));
    let attack = async {
        let mut device = devices(cluster, 1).await.remove(0);
        device.register(&endless_service()).await;
        let waving = device.stall();
        let npc = noisy.npc(&json!({"name": "Noisy"}), &["noisy-0"]).await;
        let messages = (0..sized(40, 300)).map(|_| talk(&noisy, &npc, "Please wave"));
        let answers = at_once(messages).await;
        let npc = quiet.npc(&json!({"name": "Quiet"}), &[]).await;
        let answer = talk(&quiet, &npc, "Hello").await.text().await.unwrap();
        assert!(answer.contains("event: end"), "{answer}");
        (answers, waving)
    };
    target
        .measure(
            "endless answers over HTTP",
            Takes::Share("chat_http_answers"),
            attack,
        )
        .await;
}

/// A model that answers at once, except when it extracts the memories of the attacker.
async fn answer(request: ProviderRequest) {
    if !request.system().starts_with("Below is a conversation") {
        return request.reply("I see.").await;
    }
    if request.body.to_string().contains(NOISY_USER) {
        let _open = request;
        return std::future::pending().await;
    }
    request.reply(r#"["The user has a name."]"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_extractions_leave_conversation_jobs_to_others() {
    let provider = Provider::scripted(answer).await;
    let jobs = sized(8, 32);
    let settings = [
        ("SWITCHBOARD_COMPLETIONS_ENDPOINT", &*provider.url),
        ("SWITCHBOARD_COMPLETIONS_MODEL", MODEL),
        ("SWITCHBOARD_CHAT_CONVERSATION_JOBS", &*jobs.to_string()),
        ("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1"),
    ];
    let target = Target::start(Service::Chat, &settings).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Reminded").await;
    let (noisy, quiet) = (target.system(&cluster.org), target.system(&other));
    let attack = async {
        let mut devices = devices(cluster, sized(12, 200)).await;
        let npc = noisy.npc(&json!({"name": "Noisy"}), &[]).await;
        noisy.set_default_npc(&npc).await;
        for (number, device) in devices.iter_mut().enumerate() {
            let text = format!("My name is {NOISY_USER}.");
            device.ask(task(number), &text).await;
        }
        let share = format!(
            "switchboard_budget_used{{budget=\"conversation_jobs\"}} {}\n",
            jobs / 4
        );
        noisy.metric(&share).await;
        let npc = quiet.npc(&json!({"name": "Quiet"}), &["quiet"]).await;
        let mut device = cluster.device_of(&other, "quiet").await;
        device.ask(task(0), "My name is Quinn.").await;
        quiet.memories_when(&npc, 1).await;
        devices
    };
    target
        .measure(
            "slow extractions",
            Takes::Share("conversation_jobs"),
            attack,
        )
        .await;
}
