//! The training of voices by the embedded provider and by an HTTP provider, with failures.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use switchboard_store::{JobTurn, Store, VoiceJob};
use switchboard_test_support::eventually::{eventually_some, eventually_true};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use uuid::Uuid;

use crate::{
    cases::wav,
    installation::{Installation, OPERATOR_KEY, body},
    voices::path,
};

const EMBEDDED: &str = "embedded";

impl Installation {
    /// Waits until the voice has this state.
    pub(crate) async fn wait_for_state(&self, key: &str, voice: &Value, state: &str) -> Value {
        let at = path(voice);
        eventually_some(state, async || {
            let (_, found) = self.send(Method::GET, &at, Some(key), None).await;
            (found["state"] == state).then_some(found)
        })
        .await
    }

    /// Makes all voices and orphans due that no worker has leased.
    pub(crate) async fn make_due(&self) {
        let now = "UPDATE voices SET due_at = now() WHERE worker IS NULL AND due_at IS NOT NULL;
                   UPDATE voice_removals SET due_at = now()";
        self.database.execute(now).await.unwrap();
    }

    pub(crate) async fn train(&self, key: &str, voice: &Value) -> (StatusCode, Value) {
        let path = format!("{}/train", path(voice));
        self.send(Method::POST, &path, Some(key), None).await
    }

    /// Leases a voice, like a worker that dies afterwards.
    async fn claim_voice(&self) -> Option<VoiceJob> {
        claim(&self.store, Uuid::now_v7(), Duration::ZERO).await
    }
}

async fn claim(store: &Store, worker: Uuid, lease: Duration) -> Option<VoiceJob> {
    let turn = &mut JobTurn::default();
    let claim = store.claim_voice(worker, lease, EMBEDDED, turn);
    claim.await.unwrap()
}

#[tokio::test]
async fn every_sample_format_becomes_a_voice() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    for (sample, mime_type) in [
        (wav(1_300), "audio/wav"),
        (include_bytes!("voices/tone.mp3").to_vec(), "audio/mpeg"),
        (include_bytes!("voices/tone.flac").to_vec(), "audio/flac"),
        (include_bytes!("voices/tone.ogg").to_vec(), "audio/ogg"),
        (include_bytes!("voices/tone.opus").to_vec(), "audio/ogg"),
    ] {
        let voice = installation.voice(key, "", sample).await;
        let ready = installation.wait_for_state(key, &voice, "ready").await;
        assert_eq!(
            (&ready["mime_type"], &ready["error"], &ready["version"]),
            (&json!(mime_type), &Value::Null, &json!(1))
        );
    }
    // The worker counts a voice after it has stored its state.
    eventually_true("all voices are counted", || {
        installation.metric("switchboard_control_voices_ready_total") >= 5.0
    })
    .await;
}

#[tokio::test]
async fn another_worker_continues_after_a_crash() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    assert_eq!(installation.claim_voice().await.unwrap().attempts, 1);
    let left = installation.wait_for_state(key, &voice, "training").await;
    assert_eq!(left["error"], Value::Null);
    installation.start_workers();
    installation.wait_for_state(key, &voice, "ready").await;
}

#[tokio::test]
async fn voice_that_crashes_its_workers_fails() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    for attempt in 1..=5 {
        assert_eq!(installation.claim_voice().await.unwrap().attempts, attempt);
    }
    installation.start_workers();
    let failed = installation.wait_for_state(key, &voice, "failed").await;
    assert_eq!(failed["error"]["kind"], "given_up", "{failed}");
    let (status, started) = installation.train(key, &voice).await;
    assert_eq!(
        (status, &started["error"]),
        (StatusCode::ACCEPTED, &Value::Null)
    );
    installation.wait_for_state(key, &voice, "ready").await;
}

#[tokio::test]
async fn worker_without_its_lease_writes_nothing() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    installation.voice(key, "", wav(1_300)).await;
    let (late, lease) = (Uuid::now_v7(), Duration::from_secs(60));
    let store = &installation.store;
    let job = claim(store, late, Duration::ZERO).await.unwrap();
    let winner = claim(store, Uuid::now_v7(), lease).await;
    assert_eq!(winner.unwrap().id, job.id);
    assert!(installation.claim_voice().await.is_none());
    let standing = switchboard_store::VoiceStatus::Training {
        made_as: "v-1".to_owned(),
        next: lease,
    };
    assert!(!store.renew_voice(late, job.id, lease).await.unwrap());
    assert!(
        !store
            .update_voice_status(late, &job, &standing)
            .await
            .unwrap()
    );
    // The other worker got the same id, so it is not an orphan.
    let leftover = store.claim_orphaned_voice(EMBEDDED, lease).await;
    assert_eq!(leftover.unwrap(), None);
}

#[tokio::test]
async fn damaged_sample_fails() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    installation.wait_for_state(key, &voice, "ready").await;
    let sample = installation.objects().remove(0);
    std::fs::write(&sample, wav(1_400)).unwrap();
    for _ in 0..2 {
        assert_eq!(
            installation.train(key, &voice).await.0,
            StatusCode::ACCEPTED
        );
        let failed = installation.wait_for_state(key, &voice, "failed").await;
        assert_eq!(failed["error"]["kind"], "sample_damaged", "{failed}");
        // A missing sample fails, too.
        let _ = std::fs::remove_file(&sample);
    }
}

#[tokio::test]
async fn voice_expires_with_its_consent() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let query = "consent_expires_at=2999-01-02T03:04:05Z";
    let voice = installation.voice(key, query, wav(1_300)).await;
    installation.wait_for_state(key, &voice, "ready").await;
    let due = "DO $$ BEGIN ASSERT (SELECT due_at = consent_expires_at FROM voices); END $$";
    installation.database.execute(due).await.unwrap();
    let now = "UPDATE voices SET consent_expires_at = now(), due_at = now()";
    installation.database.execute(now).await.unwrap();
    let expired = installation.wait_for_state(key, &voice, "expired").await;
    assert_eq!(
        (&expired["error"]["kind"], &expired["preview"]),
        (&json!("consent_ended"), &Value::Null)
    );
    let preview = format!("{}/preview", path(&voice));
    for (method, path) in [
        (Method::GET, preview.as_str()),
        (Method::POST, &preview.replace("preview", "train")),
    ] {
        let (status, problem) = installation.send(method, path, Some(key), None).await;
        assert_eq!(
            (status, &problem["type"]),
            (StatusCode::CONFLICT, &json!("/problems/consent_ended"))
        );
    }
    eventually_true("the worker expires the voice", || {
        installation.metric("switchboard_control_voices_expired_total") >= 1.0
    })
    .await;
    let (_, page) = installation
        .send(Method::GET, "/v1/voices?state=expired", Some(key), None)
        .await;
    assert_eq!(page["voices"][0]["id"], voice["id"]);
}

/// A fake voice provider with an HTTP API.
#[derive(Clone, Default)]
struct FakeVoiceProvider(Arc<Mutex<ProviderState>>);

#[derive(Default)]
struct ProviderState {
    /// Another response to the next sample.
    moods: Vec<u16>,
    /// Whether it creates voices without a response.
    is_mute: bool,
    /// One for each sample that it reads; it reads all without them.
    turns: Option<Arc<Semaphore>>,
    /// The samples by key.
    sent: BTreeMap<String, (String, Bytes)>,
    /// The state of each voice.
    voices: BTreeMap<String, &'static str>,
}

impl FakeVoiceProvider {
    /// Starts it; dropping the tasks stops it.
    async fn start() -> (Self, String, JoinSet<()>) {
        let provider = Self::default();
        let router = Router::new()
            .route("/voices", post(create))
            .route("/voices/{id}", get(status).delete(delete_voice))
            .with_state(provider.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        (provider, format!("http://{address}/voices/"), tasks)
    }

    fn state<T>(&self, access: impl FnOnce(&mut ProviderState) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }

    fn voice_response(&self, id: &str) -> Response {
        let state = self.state(|state| state.voices.get(id).copied());
        match state {
            None => StatusCode::NOT_FOUND.into_response(),
            Some(state) => {
                let error =
                    json!({"detail": format!("There is a dog in it. {}", "Wuff! ".repeat(100))});
                let error = ["failed", "expired"].contains(&state).then_some(error);
                Json(json!({"id": id, "state": state, "error": error})).into_response()
            }
        }
    }
}

async fn create(
    State(provider): State<FakeVoiceProvider>,
    headers: HeaderMap,
    sample: Bytes,
) -> Response {
    assert_eq!(headers["authorization"], "Bearer the provider's key");
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let key = text("idempotency-key");
    let id = format!("provider/{key}");
    if sample.is_empty() {
        return provider.voice_response(&id);
    }
    if let Some(turns) = provider.state(|state| state.turns.clone()) {
        turns.acquire().await.unwrap().forget();
    }
    if let Some(mood) = provider.state(|state| state.moods.pop()) {
        return StatusCode::from_u16(mood).unwrap().into_response();
    }
    provider.state(|state| {
        state.sent.insert(key, (text("content-type"), sample));
        state.voices.entry(id.clone()).or_insert("training");
    });
    if provider.state(|state| state.is_mute) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    provider.voice_response(&id)
}

async fn status(State(provider): State<FakeVoiceProvider>, Path(id): Path<String>) -> Response {
    provider.voice_response(&id)
}

async fn delete_voice(
    State(provider): State<FakeVoiceProvider>,
    Path(id): Path<String>,
) -> StatusCode {
    match provider.state(|state| state.voices.remove(&id)) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

#[tokio::test]
async fn http_provider_trains_loses_and_deletes_a_voice() {
    let (provider, endpoint, _open) = FakeVoiceProvider::start().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "provider=http", wav(1_300)).await;
    let first = eventually_some("a sample at the provider", async || {
        provider.state(|state| state.voices.keys().next().cloned())
    })
    .await;
    provider.state(|state| {
        let (mime_type, sample) = state.sent.values().next().unwrap();
        assert_eq!(
            (mime_type.as_str(), &sample[..]),
            ("audio/wav", &wav(1_300)[..])
        );
        state.voices.insert(first.clone(), "ready");
    });
    let ready = installation.wait_for_state(key, &voice, "ready").await;
    assert_eq!(ready["provider_voice_id"], first.as_str());

    // The provider reports the voice as expired, and later no longer has it.
    provider.state(|state| state.voices.insert(first.clone(), "expired"));
    installation.make_due().await;
    let expired = installation.wait_for_state(key, &voice, "expired").await;
    let detail = expired["error"]["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("Message of the provider: There is a dog in it. Wuff!"),
        "{expired}"
    );
    assert_eq!(detail.len(), 500);
    eventually_true("the voice is deleted at the provider", || {
        provider.state(|state| state.voices.is_empty())
    })
    .await;
    assert_eq!(
        installation.train(key, &voice).await.0,
        StatusCode::ACCEPTED
    );
    let second = eventually_some("the status is requested again", async || {
        provider.state(|state| state.voices.keys().next().cloned())
    })
    .await;
    assert_ne!(first, second);
    provider.state(|state| state.voices.insert(second.clone(), "ready"));
    installation.wait_for_state(key, &voice, "ready").await;
    let (status, _) = installation
        .send(Method::DELETE, &path(&voice), Some(key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    eventually_true("no orphan is left", || {
        provider.state(|state| state.voices.is_empty())
    })
    .await;
}

#[tokio::test]
async fn unavailable_provider_is_retried_and_rejection_is_final() {
    let (provider, endpoint, _open) = FakeVoiceProvider::start().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    provider.state(|state| state.moods = vec![422, 429, 503]);
    let voice = installation.voice(key, "provider=http", wav(1_300)).await;
    let failed = eventually_some("the sample is rejected", async || {
        installation.make_due().await;
        let (_, found) = installation
            .send(Method::GET, &path(&voice), Some(key), None)
            .await;
        (found["state"] == "failed").then_some(found)
    })
    .await;
    assert_eq!(failed["error"]["kind"], "provider_refused");
    assert!(provider.state(|state| state.moods.is_empty() && state.sent.is_empty()));
    installation.train(key, &voice).await;
    let created = eventually_some("a sample at the provider", async || {
        provider.state(|state| state.voices.keys().next().cloned())
    })
    .await;
    provider.state(|state| state.voices.remove(&created));
    installation.make_due().await;
    let lost = eventually_some("the voice is lost", async || {
        installation.make_due().await;
        let (_, found) = installation
            .send(Method::GET, &path(&voice), Some(key), None)
            .await;
        (found["state"] == "expired").then_some(found)
    })
    .await;
    assert_eq!(lost["error"]["kind"], "provider_lost_it");
    let query = "/v1/voices?provider=http";
    let page = installation
        .request(Method::GET, query, Some(key), None)
        .await;
    assert_eq!(body(page).await["voices"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn voice_without_a_response_is_deleted_at_the_provider() {
    let (provider, endpoint, _open) = FakeVoiceProvider::start().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    provider.state(|state| state.is_mute = true);
    let created = async || {
        let voice = installation.voice(key, "provider=http", wav(1_300)).await;
        eventually_true("a voice without a response", || {
            provider.state(|state| !state.voices.is_empty())
        })
        .await;
        voice
    };
    let let_go = async || {
        eventually_some("the voice is deleted at the provider", async || {
            installation.make_due().await;
            let is_gone = "DO $$ BEGIN ASSERT (SELECT count(*) = 0 FROM voice_removals); END $$";
            let is_gone = installation.database.execute(is_gone).await.is_ok();
            (is_gone && provider.state(|state| state.voices.is_empty())).then_some(())
        })
        .await;
    };
    let voice = created().await;
    let (status, _) = installation
        .send(Method::DELETE, &path(&voice), Some(key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let_go().await;

    let voice = created().await;
    let now = "UPDATE voices SET consent_expires_at = now()";
    installation.database.execute(now).await.unwrap();
    eventually_some("the voice expires", async || {
        installation.make_due().await;
        let ended = "DO $$ BEGIN ASSERT (SELECT state = 'expired' FROM voices); END $$";
        installation.database.execute(ended).await.ok()
    })
    .await;
    installation.wait_for_state(key, &voice, "expired").await;
    let_go().await;
}

#[tokio::test]
async fn backoff_for_a_provider_grows_and_ends() {
    let (provider, endpoint, _open) = FakeVoiceProvider::start().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    provider.state(|state| state.moods = vec![500; 100]);
    let voice = installation.voice(key, "provider=http", wav(1_300)).await;
    // Five minutes and twenty seconds, minus the time that the test takes.
    let rests = "DO $$ BEGIN ASSERT (SELECT failures = 7 AND worker IS NULL AND due_at > now() + interval '200 s'
                                     FROM voices); END $$";
    eventually_some("the voice is postponed", async || {
        let often = "UPDATE voices SET failures = 6, due_at = now() WHERE worker IS NULL AND failures BETWEEN 1 AND 6";
        installation.database.execute(often).await.unwrap();
        installation.database.execute(rests).await.ok()
    })
    .await;
    let too_often = "UPDATE voices SET failures = 149, due_at = now()";
    installation.database.execute(too_often).await.unwrap();
    let failed = installation.wait_for_state(key, &voice, "failed").await;
    assert_eq!(failed["error"]["kind"], "provider_away", "{failed}");
    // The next training starts from the beginning.
    provider.state(|state| state.moods.clear());
    assert_eq!(
        installation.train(key, &voice).await.0,
        StatusCode::ACCEPTED
    );
    let created = eventually_some("a sample at the provider", async || {
        provider.state(|state| state.voices.keys().next().cloned())
    })
    .await;
    assert!(created.ends_with("-2"), "{created}");
}

#[tokio::test]
async fn silent_provider_does_not_delay_other_providers() {
    // Connections are accepted, and get no response.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", silent.local_addr().unwrap());
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    let waiting = installation.voice(key, "provider=http", wav(1_300)).await;
    installation.wait_for_state(key, &waiting, "training").await;
    let voice = installation.voice(key, "", wav(1_300)).await;
    installation.wait_for_state(key, &voice, "ready").await;
    installation.wait_for_state(key, &waiting, "training").await;
}

#[tokio::test]
async fn voice_of_a_removed_provider_is_not_trained_again() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    installation.wait_for_state(key, &voice, "ready").await;
    let of_another = "UPDATE voices SET provider = 'http'";
    installation.database.execute(of_another).await.unwrap();
    let (status, problem) = installation.train(key, &voice).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::CONFLICT, &json!("/problems/provider_missing"))
    );
    installation.wait_for_state(key, &voice, "ready").await;
}

#[tokio::test]
async fn voices_of_one_organisation_leave_providers_to_others() {
    const BUDGET: &str = "voice_jobs";
    let (provider, endpoint, _open) = FakeVoiceProvider::start().await;
    let turns = Arc::new(Semaphore::new(0));
    provider.state(|state| state.turns = Some(Arc::clone(&turns)));
    let installation = Installation::with_voices_at(&endpoint).await;
    let (noisy, quiet) = (
        installation.new_org("Noisy").await,
        installation.new_org("Quiet").await,
    );
    for _ in 0..3 {
        installation
            .voice(&noisy.key, "provider=http", wav(1_300))
            .await;
    }
    eventually_true("its first voice is being trained", || {
        let mut reports = installation.budgets.report().into_iter();
        let report = reports.find(|report| report.budget == BUDGET).unwrap();
        let noisy = noisy.id().to_string();
        report.owners.iter().any(|owner| owner.owner == noisy)
    })
    .await;
    // The embedded provider is free.
    let embedded = installation.voice(&quiet.key, "", wav(1_300)).await;
    installation
        .wait_for_state(&quiet.key, &embedded, "ready")
        .await;

    // The other one trains a voice of each organisation in turn.
    let waits = installation
        .voice(&quiet.key, "provider=http", wav(1_300))
        .await;
    turns.add_permits(2);
    let sent = || provider.state(|state| state.sent.keys().cloned().collect::<Vec<_>>());
    eventually_true("two samples are sent", || sent().len() == 2).await;
    let id = waits["id"].as_str().unwrap();
    assert!(
        sent().iter().any(|key| key.contains(id)),
        "{id} of {:?}",
        sent()
    );
}
