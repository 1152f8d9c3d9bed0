//! How voices are made: by the embedded provider, by one that speaks HTTP, and whatever befalls them meanwhile.

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
use switchboard_store::VoiceJob;
use tokio::{net::TcpListener, task::JoinSet};
use uuid::Uuid;

use crate::{
    cases::wav,
    installation::{Installation, OPERATOR_KEY, body, eventually},
    voices::path,
};

const EMBEDDED: &str = "embedded";

impl Installation {
    /// The voice when it is in this state.
    pub(crate) async fn becomes(&self, key: &str, voice: &Value, state: &str) -> Value {
        let at = path(voice);
        eventually(state, async || {
            let (_, shown) = self.send(Method::GET, &at, Some(key), None).await;
            (shown["state"] == state).then_some(shown)
        })
        .await
    }

    /// Has every voice and every leftover looked after now, that nobody looks after.
    async fn hurry(&self) {
        let now = "UPDATE voices SET due_at = now() WHERE worker IS NULL AND due_at IS NOT NULL;
                   UPDATE voice_removals SET due_at = now()";
        self.database.execute(now).await.unwrap();
    }

    async fn train(&self, key: &str, voice: &Value) -> (StatusCode, Value) {
        let path = format!("{}/train", path(voice));
        self.send(Method::POST, &path, Some(key), None).await
    }

    /// Takes a voice over, as a worker does that then dies.
    async fn claimed(&self) -> Option<VoiceJob> {
        let claim = self
            .store
            .claim_voice(Uuid::now_v7(), Duration::ZERO, EMBEDDED);
        claim.await.unwrap()
    }
}

#[tokio::test]
async fn every_kind_of_sample_becomes_a_voice() {
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
        let ready = installation.becomes(key, &voice, "ready").await;
        assert_eq!(
            (&ready["mime_type"], &ready["error"], &ready["version"]),
            (&json!(mime_type), &Value::Null, &json!(1))
        );
    }
    let ready = installation.metric("switchboard_control_voices_ready_total");
    assert!(ready >= 5.0, "{ready}");
}

#[tokio::test]
async fn a_voice_whose_maker_died_is_made_by_another() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    assert_eq!(installation.claimed().await.unwrap().attempts, 1);
    let left = installation.becomes(key, &voice, "training").await;
    assert_eq!(left["error"], Value::Null);
    installation.start_background();
    installation.becomes(key, &voice, "ready").await;
}

#[tokio::test]
async fn a_voice_that_takes_its_makers_down_is_given_up() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    for attempt in 1..=5 {
        assert_eq!(installation.claimed().await.unwrap().attempts, attempt);
    }
    installation.start_background();
    let failed = installation.becomes(key, &voice, "failed").await;
    assert_eq!(failed["error"]["kind"], "given_up", "{failed}");
    let (status, begun) = installation.train(key, &voice).await;
    assert_eq!(
        (status, &begun["error"]),
        (StatusCode::ACCEPTED, &Value::Null)
    );
    installation.becomes(key, &voice, "ready").await;
}

#[tokio::test]
async fn a_worker_that_lost_its_voice_has_no_say() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    installation.voice(key, "", wav(1_300)).await;
    let (late, lease) = (Uuid::now_v7(), Duration::from_secs(60));
    let store = &installation.store;
    let job = store.claim_voice(late, Duration::ZERO, EMBEDDED).await;
    let job = job.unwrap().unwrap();
    let winner = store.claim_voice(Uuid::now_v7(), lease, EMBEDDED).await;
    assert_eq!(winner.unwrap().unwrap().id, job.id);
    assert!(installation.claimed().await.is_none());
    let standing = switchboard_store::VoiceStanding::Training {
        made_as: "v-1".to_owned(),
        next: lease,
    };
    assert!(!store.renew_voice(late, job.id, lease).await.unwrap());
    assert!(!store.settle_voice(late, &job, &standing).await.unwrap());
    // The winner is told the same name: it is no leftover.
    let leftover = store.claim_voice_leftover(EMBEDDED, lease).await;
    assert_eq!(leftover.unwrap(), None);
}

#[tokio::test]
async fn a_sample_that_was_tampered_with_is_no_voice() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    installation.becomes(key, &voice, "ready").await;
    let sample = installation.objects().remove(0);
    std::fs::write(&sample, wav(1_400)).unwrap();
    for _ in 0..2 {
        assert_eq!(
            installation.train(key, &voice).await.0,
            StatusCode::ACCEPTED
        );
        let failed = installation.becomes(key, &voice, "failed").await;
        assert_eq!(failed["error"]["kind"], "sample_damaged", "{failed}");
        // Gone is no better.
        let _ = std::fs::remove_file(&sample);
    }
}

#[tokio::test]
async fn a_voice_ends_with_its_consent() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let query = "consent_expires_at=2999-01-02T03:04:05Z";
    let voice = installation.voice(key, query, wav(1_300)).await;
    installation.becomes(key, &voice, "ready").await;
    let due = "DO $$ BEGIN ASSERT (SELECT due_at = consent_expires_at FROM voices); END $$";
    installation.database.execute(due).await.unwrap();
    let now = "UPDATE voices SET consent_expires_at = now(), due_at = now()";
    installation.database.execute(now).await.unwrap();
    let expired = installation.becomes(key, &voice, "expired").await;
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
    eventually("the worker has noticed", async || {
        let expired = installation.metric("switchboard_control_voices_expired_total");
        (expired >= 1.0).then_some(())
    })
    .await;
    let (_, page) = installation
        .send(Method::GET, "/v1/voices?state=expired", Some(key), None)
        .await;
    assert_eq!(page["voices"][0]["id"], voice["id"]);
}

/// A provider of voices that speaks HTTP.
#[derive(Clone, Default)]
struct Studio(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    /// What it answers to a sample instead, once.
    moods: Vec<u16>,
    /// Whether it makes what it is sent and says nothing of it.
    is_mute: bool,
    /// What was sent under which key.
    sent: BTreeMap<String, (String, Bytes)>,
    /// How far each voice is.
    voices: BTreeMap<String, &'static str>,
}

impl Studio {
    /// Opens it; it stays open as long as the tasks are there.
    async fn open() -> (Self, String, JoinSet<()>) {
        let studio = Self::default();
        let router = Router::new()
            .route("/voices", post(make))
            .route("/voices/{id}", get(status).delete(remove))
            .with_state(studio.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        (studio, format!("http://{address}/voices/"), tasks)
    }

    fn shelf<T>(&self, look: impl FnOnce(&mut Shelf) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    fn says(&self, id: &str) -> Response {
        let state = self.shelf(|shelf| shelf.voices.get(id).copied());
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

async fn make(State(studio): State<Studio>, headers: HeaderMap, sample: Bytes) -> Response {
    assert_eq!(headers["authorization"], "Bearer the provider's key");
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let key = text("idempotency-key");
    let id = format!("studio/{key}");
    if sample.is_empty() {
        return studio.says(&id);
    }
    if let Some(mood) = studio.shelf(|shelf| shelf.moods.pop()) {
        return StatusCode::from_u16(mood).unwrap().into_response();
    }
    studio.shelf(|shelf| {
        shelf.sent.insert(key, (text("content-type"), sample));
        shelf.voices.entry(id.clone()).or_insert("training");
    });
    if studio.shelf(|shelf| shelf.is_mute) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    studio.says(&id)
}

async fn status(State(studio): State<Studio>, Path(id): Path<String>) -> Response {
    studio.says(&id)
}

async fn remove(State(studio): State<Studio>, Path(id): Path<String>) -> StatusCode {
    match studio.shelf(|shelf| shelf.voices.remove(&id)) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

#[tokio::test]
async fn a_provider_over_http_makes_a_voice_loses_it_and_lets_go_of_it() {
    let (studio, endpoint, _open) = Studio::open().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "provider=http", wav(1_300)).await;
    let first = eventually("it is asked for", async || {
        studio.shelf(|shelf| shelf.voices.keys().next().cloned())
    })
    .await;
    studio.shelf(|shelf| {
        let (mime_type, sample) = shelf.sent.values().next().unwrap();
        assert_eq!(
            (mime_type.as_str(), &sample[..]),
            ("audio/wav", &wav(1_300)[..])
        );
        shelf.voices.insert(first.clone(), "ready");
    });
    let ready = installation.becomes(key, &voice, "ready").await;
    assert_eq!(ready["provider_voice_id"], first.as_str());

    // The provider says that it has ended, and later has forgotten it.
    studio.shelf(|shelf| shelf.voices.insert(first.clone(), "expired"));
    installation.hurry().await;
    let expired = installation.becomes(key, &voice, "expired").await;
    let detail = expired["error"]["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("The provider says: There is a dog in it. Wuff!"),
        "{expired}"
    );
    assert_eq!(detail.len(), 500);
    eventually("it has let go of it", async || {
        studio.shelf(|shelf| shelf.voices.is_empty()).then_some(())
    })
    .await;
    assert_eq!(
        installation.train(key, &voice).await.0,
        StatusCode::ACCEPTED
    );
    let second = eventually("it is asked for again", async || {
        studio.shelf(|shelf| shelf.voices.keys().next().cloned())
    })
    .await;
    assert_ne!(first, second);
    studio.shelf(|shelf| shelf.voices.insert(second.clone(), "ready"));
    installation.becomes(key, &voice, "ready").await;
    let (status, _) = installation
        .send(Method::DELETE, &path(&voice), Some(key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    eventually("nothing is left", async || {
        studio.shelf(|shelf| shelf.voices.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_provider_that_is_away_is_asked_again_and_one_that_refuses_is_not() {
    let (studio, endpoint, _open) = Studio::open().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    studio.shelf(|shelf| shelf.moods = vec![422, 429, 503]);
    let voice = installation.voice(key, "provider=http", wav(1_300)).await;
    let failed = eventually("it is refused", async || {
        installation.hurry().await;
        let (_, shown) = installation
            .send(Method::GET, &path(&voice), Some(key), None)
            .await;
        (shown["state"] == "failed").then_some(shown)
    })
    .await;
    assert_eq!(failed["error"]["kind"], "provider_refused");
    assert!(studio.shelf(|shelf| shelf.moods.is_empty() && shelf.sent.is_empty()));
    installation.train(key, &voice).await;
    let made = eventually("it is asked for", async || {
        studio.shelf(|shelf| shelf.voices.keys().next().cloned())
    })
    .await;
    studio.shelf(|shelf| shelf.voices.remove(&made));
    installation.hurry().await;
    let lost = eventually("it is lost", async || {
        installation.hurry().await;
        let (_, shown) = installation
            .send(Method::GET, &path(&voice), Some(key), None)
            .await;
        (shown["state"] == "expired").then_some(shown)
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
async fn what_a_provider_never_said_that_it_made_does_not_stay_there() {
    let (studio, endpoint, _open) = Studio::open().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    studio.shelf(|shelf| shelf.is_mute = true);
    let made = async || {
        let voice = installation.voice(key, "provider=http", wav(1_300)).await;
        eventually("it is made", async || {
            studio.shelf(|shelf| (!shelf.voices.is_empty()).then_some(()))
        })
        .await;
        voice
    };
    let let_go = async || {
        eventually("it is let go of", async || {
            installation.hurry().await;
            let is_gone = "DO $$ BEGIN ASSERT (SELECT count(*) = 0 FROM voice_removals); END $$";
            let is_gone = installation.database.execute(is_gone).await.is_ok();
            (is_gone && studio.shelf(|shelf| shelf.voices.is_empty())).then_some(())
        })
        .await;
    };
    let voice = made().await;
    let (status, _) = installation
        .send(Method::DELETE, &path(&voice), Some(key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let_go().await;

    let voice = made().await;
    let now = "UPDATE voices SET consent_expires_at = now()";
    installation.database.execute(now).await.unwrap();
    eventually("its end is noticed", async || {
        installation.hurry().await;
        let ended = "DO $$ BEGIN ASSERT (SELECT state = 'expired' FROM voices); END $$";
        installation.database.execute(ended).await.ok()
    })
    .await;
    installation.becomes(key, &voice, "expired").await;
    let_go().await;
}

#[tokio::test]
async fn a_provider_that_stays_away_is_asked_less_often_and_not_for_ever() {
    let (studio, endpoint, _open) = Studio::open().await;
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    studio.shelf(|shelf| shelf.moods = vec![500; 100]);
    let voice = installation.voice(key, "provider=http", wav(1_300)).await;
    // Five minutes and twenty seconds, less what this test takes to see it.
    let rests = "DO $$ BEGIN ASSERT (SELECT failures = 7 AND worker IS NULL AND due_at > now() + interval '200 s'
                                     FROM voices); END $$";
    eventually("it rests", async || {
        let often = "UPDATE voices SET failures = 6, due_at = now() WHERE worker IS NULL AND failures BETWEEN 1 AND 6";
        installation.database.execute(often).await.unwrap();
        installation.database.execute(rests).await.ok()
    })
    .await;
    let too_often = "UPDATE voices SET failures = 149, due_at = now()";
    installation.database.execute(too_often).await.unwrap();
    let failed = installation.becomes(key, &voice, "failed").await;
    assert_eq!(failed["error"]["kind"], "provider_away", "{failed}");
    // What follows is begun anew.
    studio.shelf(|shelf| shelf.moods.clear());
    assert_eq!(
        installation.train(key, &voice).await.0,
        StatusCode::ACCEPTED
    );
    let made = eventually("it is asked for", async || {
        studio.shelf(|shelf| shelf.voices.keys().next().cloned())
    })
    .await;
    assert!(made.ends_with("-2"), "{made}");
}

#[tokio::test]
async fn a_silent_provider_holds_up_nobody_elses_voices() {
    // Connections are taken, and nobody ever answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", silent.local_addr().unwrap());
    let installation = Installation::with_voices_at(&endpoint).await;
    let key = &installation.new_org("Toys").await.key;
    let waiting = installation.voice(key, "provider=http", wav(1_300)).await;
    installation.becomes(key, &waiting, "training").await;
    let voice = installation.voice(key, "", wav(1_300)).await;
    installation.becomes(key, &voice, "ready").await;
    installation.becomes(key, &waiting, "training").await;
}

#[tokio::test]
async fn a_voice_whose_provider_was_taken_away_is_not_made_again() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, "", wav(1_300)).await;
    installation.becomes(key, &voice, "ready").await;
    let of_another = "UPDATE voices SET provider = 'http'";
    installation.database.execute(of_another).await.unwrap();
    let (status, problem) = installation.train(key, &voice).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::CONFLICT, &json!("/problems/provider_missing"))
    );
    installation.becomes(key, &voice, "ready").await;
}
