//! A suspended organisation: its turns and its ended conversations wait.

use std::{sync::Arc, time::Duration};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::id::DeviceKey;
use switchboard_test_support::eventually::eventually;
use tokio::sync::Semaphore;

use super::quotas::{npc_of, send};
use crate::{
    cluster::Org,
    provider::{Provider, ProviderRequest},
    system::ChatFixture,
};

/// How long a suspension may take to be in force, or to be lifted.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Covers several queries for turns and for ended conversations.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Suspends the first organisation, and waits until the chat process refuses its key.
async fn suspend(fixture: &ChatFixture) {
    let org = &fixture.cluster.org;
    fixture.cluster.set_suspended(org, true).await;
    let status = async || send(fixture, org, "npc_0", json!({"text": "?"})).await.0;
    let is_refused = |status: &StatusCode| *status == StatusCode::FORBIDDEN;
    eventually(IN_FORCE_TIMEOUT, status, is_refused).await;
}

async fn lift(fixture: &ChatFixture) {
    let cluster = &fixture.cluster;
    cluster.set_suspended(&cluster.org, false).await;
}

/// The user messages of the requests to the provider of which the system prompt has these words.
fn asked(fixture: &ChatFixture, words: &str) -> Vec<String> {
    let content = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let seen = fixture.provider.seen().into_iter();
    let messages = seen.map(|body| body["messages"].as_array().cloned().unwrap_or_default());
    let about = messages.filter(|messages| content(&messages[0]).contains(words));
    about
        .map(|messages| content(&messages[messages.len() - 1]))
        .collect()
}

/// Waits until the provider was asked for something about these words.
async fn wait_asked(fixture: &ChatFixture, system: &str, words: &str) {
    let about = async || {
        let asked = asked(fixture, system).into_iter();
        asked.filter(|text| text.contains(words)).count()
    };
    eventually(WAIT_TIMEOUT, about, |count| *count > 0).await;
}

pub(super) fn toy_of(org: &Org) -> DeviceKey {
    DeviceKey {
        org: org.id.parse().unwrap(),
        device: "toy-1".parse().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_suspended_organisation_wait() {
    let provider = Provider::scripted(|request| request.reply("Hi.")).await;
    let fixture = ChatFixture::start_with(provider, 0, &[]).await;
    let others = fixture.cluster.another_org("Others").await;
    // An edge that keeps its connections, as one that has not yet noticed the suspension.
    let (edge, shutdown) = fixture.edge_bus().await;
    let turn = async |org: &Org, text: &str| {
        let toy = toy_of(org);
        let epoch = edge.claim(&toy).await.unwrap().epoch;
        let enqueued = edge.enqueue_turn(&toy, epoch, *b"task1234", text.to_owned());
        enqueued.await.unwrap();
    };
    suspend(&fixture).await;
    turn(&fixture.cluster.org, "We are suspended.").await;
    for text in ["We are one.", "We are two."] {
        turn(&others, text).await;
        wait_asked(&fixture, "", text).await;
    }
    lift(&fixture).await;
    wait_asked(&fixture, "", "We are suspended.").await;
    // The suspended one was enqueued first.
    let in_order = ["We are one.", "We are two.", "We are suspended."];
    assert_eq!(asked(&fixture, ""), in_order);
    shutdown.stop();
}

const EXTRACTION: &str = "Below is a conversation";

/// Answers users, the suspended one when permitted, and remembers nothing.
async fn answer_when(received: ProviderRequest, permitted: Arc<Semaphore>) {
    if received.system().contains(EXTRACTION) {
        received.reply("[]").await;
        return;
    }
    if received.user_message().contains("suspended") {
        permitted.acquire().await.unwrap().forget();
    }
    received.reply("Hi.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_conversations_of_a_suspended_organisation_wait() {
    let permitted = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&permitted);
    let provider = Provider::scripted(move |asked| answer_when(asked, Arc::clone(&held))).await;
    let short_rest = [("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1")];
    let fixture = ChatFixture::start_with(provider, 0, &short_rest).await;
    let (org, others) = (
        &fixture.cluster.org,
        &fixture.cluster.another_org("Others").await,
    );
    let (npc, others_npc) = (npc_of(&fixture, org).await, npc_of(&fixture, others).await);
    let say = async |org: &Org, npc: &str, text: &str| {
        let said = send(
            &fixture,
            org,
            npc,
            json!({"text": text, "subject": "user-1"}),
        );
        let (status, _, answer) = said.await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    };
    // The answer is in progress when the suspension begins, and is completed.
    let suspended = async {
        wait_asked(&fixture, "", "suspended").await;
        suspend(&fixture).await;
        permitted.add_permits(1);
    };
    tokio::join!(say(org, &npc, "I am suspended."), suspended);
    // The first claim of a conversation of others may have been too early for the other one.
    for text in ["I am one.", "I am two."] {
        say(others, &others_npc, text).await;
        wait_asked(&fixture, EXTRACTION, text).await;
    }
    let extracted = asked(&fixture, EXTRACTION);
    let of_suspended = extracted.iter().filter(|text| text.contains("suspended"));
    assert_eq!(of_suspended.count(), 0, "{extracted:?}");
    lift(&fixture).await;
    wait_asked(&fixture, EXTRACTION, "suspended").await;
}
