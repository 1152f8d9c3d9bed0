//! The training of voices by a provider with an API like OpenAI's, with failures.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
    routing::{delete, post},
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_test_support::eventually::{eventually_some, eventually_true};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{cases::wav, installation::Installation, voices::path};

const OPENAI: &str = "provider=openai";
/// The voices on a page of OpenAI's API; the limit of a request is only an upper bound.
const PAGE_VOICES: usize = 2;

/// Whose API the provider has.
#[derive(Clone, Copy, Default, PartialEq)]
enum Dialect {
    #[default]
    OpenAi,
    VllmOmni,
    /// It creates and deletes voices, and does not list them.
    Unlisted,
}

/// A fake voice provider.
#[derive(Clone, Default)]
struct FakeProvider(Arc<Mutex<ProviderState>>);

#[derive(Default)]
struct ProviderState {
    dialect: Dialect,
    /// Other responses to the next uploads, the last one first.
    failures: Vec<(u16, Value)>,
    /// Whether it creates voices without a response.
    is_mute: bool,
    uploads: Vec<Upload>,
    /// The number of requests for a list.
    lists: usize,
    /// The id and the name of each voice.
    voices: Vec<(String, String)>,
}

/// The form of an upload.
struct Upload {
    name: String,
    consent: String,
    sample: Vec<u8>,
}

#[derive(Deserialize)]
struct Cursor {
    after: Option<String>,
}

impl FakeProvider {
    /// Starts it; dropping the tasks stops it.
    async fn start(dialect: Dialect) -> (Self, String, JoinSet<()>) {
        let provider = Self::default();
        provider.state(|state| state.dialect = dialect);
        let create = match dialect {
            Dialect::Unlisted => post(create),
            Dialect::OpenAi | Dialect::VllmOmni => post(create).get(list),
        };
        let router = Router::new()
            .route("/v1/audio/voices", create)
            .route("/v1/audio/voices/{id}", delete(delete_voice))
            .with_state(provider.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        (provider, format!("http://{address}/v1/"), tasks)
    }

    fn state<T>(&self, access: impl FnOnce(&mut ProviderState) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }

    async fn wait_until_empty(&self) {
        eventually_true("no voice is left at the provider", || {
            self.state(|state| state.voices.is_empty())
        })
        .await;
    }
}

/// Reads the form; the test fails if a field is missing.
fn upload(headers: &HeaderMap, body: &[u8]) -> Upload {
    assert_eq!(headers["authorization"], "Bearer the provider's key");
    let content_type = headers["content-type"].to_str().unwrap();
    let boundary = content_type.strip_prefix("multipart/form-data; boundary=");
    let boundary = format!("\r\n--{}", boundary.unwrap());
    let body = [b"\r\n", body].concat();
    let (mut parts, mut rest) = (Vec::new(), &body[..]);
    while let Some(at) = find(rest, boundary.as_bytes()) {
        parts.push(&rest[..at]);
        rest = &rest[at + boundary.len()..];
    }
    assert_eq!(rest, b"--\r\n");
    let part = |start: &str| {
        let start = format!("\r\nContent-Disposition: form-data; {start}\r\n\r\n");
        let mut values = parts.iter();
        let value = values.find_map(|part| part.strip_prefix(start.as_bytes()));
        value.unwrap_or_else(|| panic!("no {start:?}")).to_vec()
    };
    Upload {
        name: String::from_utf8(part("name=\"name\"")).unwrap(),
        consent: String::from_utf8(part("name=\"consent\"")).unwrap(),
        sample: part("name=\"audio_sample\"; filename=\"sample.wav\"\r\nContent-Type: audio/wav"),
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

async fn create(State(provider): State<FakeProvider>, headers: HeaderMap, body: Bytes) -> Response {
    let upload = upload(&headers, &body);
    provider.state(|state| {
        if let Some((status, body)) = state.failures.pop() {
            return (StatusCode::from_u16(status).unwrap(), Json(body)).into_response();
        }
        let name = upload.name.clone();
        let (id, response) = if state.dialect == Dialect::VllmOmni {
            let voice = json!({"name": name, "consent": upload.consent, "file_size": 1});
            (name.clone(), json!({"success": true, "voice": voice}))
        } else {
            let id = format!("voice_{}", state.uploads.len());
            let voice = json!({"id": id, "object": "audio.voice", "name": name, "created_at": 1});
            (id, voice)
        };
        state.uploads.push(upload);
        state.voices.push((id, name));
        if state.is_mute {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        Json(response).into_response()
    })
}

async fn list(State(provider): State<FakeProvider>, Query(cursor): Query<Cursor>) -> Json<Value> {
    provider.state(|state| {
        state.lists += 1;
        if state.dialect == Dialect::VllmOmni {
            let names: Vec<_> = state.voices.iter().map(|(_, name)| name).collect();
            let uploaded: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            return Json(json!({"voices": names, "uploaded_voices": uploaded}));
        }
        let after = cursor.after.as_deref();
        let start = after.and_then(|after| state.voices.iter().position(|(id, _)| id == after));
        let rest = &state.voices[start.map_or(0, |at| at + 1)..];
        let page: Vec<_> = rest
            .iter()
            .take(PAGE_VOICES)
            .map(|(id, name)| json!({"id": id, "object": "audio.voice", "name": name}))
            .collect();
        Json(json!({"object": "list", "data": page, "has_more": rest.len() > PAGE_VOICES}))
    })
}

async fn delete_voice(State(provider): State<FakeProvider>, Path(id): Path<String>) -> Response {
    provider.state(|state| {
        let before = state.voices.len();
        state.voices.retain(|(of, _)| *of != id);
        if state.voices.len() == before {
            return (StatusCode::NOT_FOUND, Json(json!({"success": false}))).into_response();
        }
        Json(json!({"id": id, "object": "audio.voice.deleted", "deleted": true})).into_response()
    })
}

impl Installation {
    /// Makes voices due until this one has this state.
    async fn work_until(&self, key: &str, voice: &Value, state: &str) -> Value {
        eventually_some(state, async || {
            self.make_due().await;
            let at = path(voice);
            let (_, found) = self.send(Method::GET, &at, Some(key), None).await;
            (found["state"] == state).then_some(found)
        })
        .await
    }

    async fn delete_voice(&self, key: &str, voice: &Value) {
        let at = path(voice);
        let (status, _) = self.send(Method::DELETE, &at, Some(key), None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    }
}

#[tokio::test]
async fn openai_voice_is_created_checked_lost_and_deleted() {
    let (provider, endpoint, _open) = FakeProvider::start(Dialect::OpenAi).await;
    let others = (0..5).map(|number| (format!("other_{number}"), "Anna".to_owned()));
    let others: Vec<_> = others.collect();
    provider.state(|state| state.voices = others.clone());
    let installation = Installation::with_openai_voices_at(&endpoint, Some("cons_1")).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, OPENAI, wav(1_300)).await;
    let ready = installation.wait_for_state(key, &voice, "ready").await;
    assert_eq!(ready["provider_voice_id"], "voice_0");
    provider.state(|state| {
        let upload = &state.uploads[0];
        let name = format!("switchboard-{}-1", voice["id"].as_str().unwrap());
        assert_eq!((&upload.name, upload.consent.as_str()), (&name, "cons_1"));
        assert_eq!(upload.sample, wav(1_300));
        state.lists = 0;
    });

    // It stays ready while the provider lists it.
    installation.make_due().await;
    eventually_true("all pages are read", || {
        provider.state(|state| state.lists == 3)
    })
    .await;
    installation.wait_for_state(key, &voice, "ready").await;
    provider.state(|state| state.voices.truncate(others.len()));
    let lost = installation.work_until(key, &voice, "expired").await;
    assert_eq!(lost["error"]["kind"], "provider_lost_it");

    let (status, _) = installation.train(key, &voice).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let ready = installation.wait_for_state(key, &voice, "ready").await;
    assert_eq!(ready["provider_voice_id"], "voice_1");
    assert!(provider.state(|state| state.uploads[1].name.ends_with("-2")));
    installation.delete_voice(key, &voice).await;
    eventually_true("only voices of others are left", || {
        provider.state(|state| state.voices == others)
    })
    .await;
}

#[tokio::test]
async fn vllm_omni_voice_is_known_by_its_name() {
    let (provider, endpoint, _open) = FakeProvider::start(Dialect::VllmOmni).await;
    let installation = Installation::with_openai_voices_at(&endpoint, None).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, OPENAI, wav(1_300)).await;
    let ready = installation.wait_for_state(key, &voice, "ready").await;
    provider.state(|state| {
        let upload = &state.uploads[0];
        assert_eq!(ready["provider_voice_id"], upload.name.as_str());
        assert_eq!(voice["id"], upload.consent.as_str());
        state.voices.clear();
    });
    let lost = installation.work_until(key, &voice, "expired").await;
    assert_eq!(lost["error"]["kind"], "provider_lost_it");
    installation.train(key, &voice).await;
    installation.wait_for_state(key, &voice, "ready").await;
    installation.delete_voice(key, &voice).await;
    provider.wait_until_empty().await;
}

#[tokio::test]
async fn voice_whose_response_was_lost_is_found_by_its_name() {
    for dialect in [Dialect::OpenAi, Dialect::VllmOmni] {
        let (provider, endpoint, _open) = FakeProvider::start(dialect).await;
        let installation = Installation::with_openai_voices_at(&endpoint, None).await;
        let key = &installation.new_org("Toys").await.key;
        provider.state(|state| state.is_mute = true);
        let uploads = || provider.state(|state| state.uploads.len());
        let voice = installation.voice(key, OPENAI, wav(1_300)).await;
        eventually_true("a voice without a response", || uploads() == 1).await;
        installation.work_until(key, &voice, "ready").await;
        assert_eq!(uploads(), 1);
        installation.delete_voice(key, &voice).await;
        provider.wait_until_empty().await;

        // If it is deleted here before its response, it is deleted there as well.
        let voice = installation.voice(key, OPENAI, wav(1_300)).await;
        eventually_true("another voice without a response", || uploads() == 2).await;
        installation.delete_voice(key, &voice).await;
        eventually_some("the voice is deleted at the provider", async || {
            installation.make_due().await;
            let is_gone = "DO $$ BEGIN ASSERT (SELECT count(*) = 0 FROM voice_removals); END $$";
            let is_gone = installation.database.execute(is_gone).await.is_ok();
            (is_gone && provider.state(|state| state.voices.is_empty())).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn unavailable_openai_provider_is_retried_and_rejection_has_its_reason() {
    let (provider, endpoint, _open) = FakeProvider::start(Dialect::OpenAi).await;
    let installation = Installation::with_openai_voices_at(&endpoint, None).await;
    let key = &installation.new_org("Toys").await.key;
    let reason = "The sample is too long; your key is the provider's key.";
    for rejection in [
        json!({"error": {"message": reason, "type": "invalid_request_error", "code": null}}),
        json!({"success": false, "error": reason}),
        json!({"detail": reason}),
    ] {
        // A rejected key is a temporary failure.
        let unavailable = [
            (401, json!({"error": {"message": reason}})),
            (503, json!({})),
        ];
        provider.state(|state| {
            state.failures = vec![(400, rejection)];
            state.failures.extend(unavailable);
        });
        let voice = installation.voice(key, OPENAI, wav(1_300)).await;
        let failed = installation.work_until(key, &voice, "failed").await;
        let detail = "The provider rejected the sample with status 400 Bad Request. Message of the \
                      provider: The sample is too long; your key is (the key).";
        let error = json!({"kind": "provider_refused", "detail": detail});
        assert_eq!(failed["error"], error);
        assert!(provider.state(|state| state.failures.is_empty() && state.uploads.is_empty()));
        installation.delete_voice(key, &voice).await;
    }
    let voice = installation.voice(key, OPENAI, wav(1_300)).await;
    installation.wait_for_state(key, &voice, "ready").await;
}

#[tokio::test]
async fn provider_without_a_list_creates_and_deletes_voices() {
    let (provider, endpoint, _open) = FakeProvider::start(Dialect::Unlisted).await;
    let installation = Installation::with_openai_voices_at(&endpoint, None).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation.voice(key, OPENAI, wav(1_300)).await;
    let ready = installation.wait_for_state(key, &voice, "ready").await;
    assert_eq!(ready["provider_voice_id"], "voice_0");
    installation.make_due().await;
    installation.wait_for_state(key, &voice, "ready").await;
    installation.delete_voice(key, &voice).await;
    provider.wait_until_empty().await;
}
