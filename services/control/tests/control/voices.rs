//! `/v1/voices`, without the training.

use axum::{body::Body, response::Response};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::{
    cases::wav,
    installation::{Installation, OPERATOR_KEY, body},
};

const MAX_BYTES: usize = 10 * 1024 * 1024;
pub(crate) const CONSENT: &str = "consent_by=Anna%20Example&consent_statement=The%20toy%20may.";

impl Installation {
    pub(crate) async fn send_sample(&self, key: &str, query: &str, sample: Vec<u8>) -> Response {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("/v1/voices?{query}"))
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            // The type that the client declares is ignored.
            .header(header::CONTENT_TYPE, "image/png");
        self.answer(request.body(Body::from(sample)).unwrap()).await
    }

    /// Uploads a valid voice.
    pub(crate) async fn voice(&self, key: &str, query: &str, sample: Vec<u8>) -> Value {
        let query = format!("name=Anna&{CONSENT}&{query}");
        let response = self.send_sample(key, &query, sample).await;
        let status = response.status();
        let voice = body(response).await;
        assert_eq!(status, StatusCode::CREATED, "{voice}");
        voice
    }

    async fn problem_of(&self, response: Response, status: u16, slug: &str) -> Value {
        let answered = response.status().as_u16();
        let problem = body(response).await;
        assert_eq!(
            (answered, &problem["type"]),
            (status, &json!(format!("/problems/{slug}"))),
            "{problem}"
        );
        problem
    }

    async fn preview(&self, key: &str, at: &str, name: &str, value: &str) -> Response {
        let request = Request::builder()
            .uri(format!("{at}/preview"))
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            .header(name, value);
        self.answer(request.body(Body::empty()).unwrap()).await
    }
}

pub(crate) fn path(voice: &Value) -> String {
    format!("/v1/voices/{}", voice["id"].as_str().unwrap())
}

async fn bytes(response: Response) -> Vec<u8> {
    let collected = response.into_body().collect().await.unwrap();
    collected.to_bytes().to_vec()
}

#[tokio::test]
async fn voice_is_created_listed_and_deleted() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let query = format!(
        "name=Grandma&languages=de-DE,en&labels=warm,old&{CONSENT}\
         &consent_agreed_at=2026-01-02T03:04:05Z&consent_expires_at=2999-01-02T03:04:05Z"
    );
    let response = installation.send_sample(key, &query, wav(1_300)).await;
    let head = |name| response.headers()[name].to_str().unwrap().to_owned();
    let (location, etag) = (head(header::LOCATION), head(header::ETAG));
    let voice = body(response).await;
    assert_eq!((&location, etag.as_str()), (&path(&voice), "\"1\""));
    let expected = json!({
        "name": "Grandma", "languages": ["de-DE", "en"], "labels": ["warm", "old"], "provider": "embedded",
        "provider_voice_id": null, "state": "uploaded", "error": null, "preview": format!("{location}/preview"),
        "consent": {
            "by": "Anna Example", "statement": "The toy may.", "agreed_at": "2026-01-02T03:04:05Z",
            "expires_at": "2999-01-02T03:04:05Z",
        },
        "mime_type": "audio/wav", "duration_ms": 1_300, "sample_rate_hz": 8_000, "channels": 1, "size_bytes": 20_844,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&voice[name], value, "{name}");
    }
    assert!(voice["id"].as_str().unwrap().starts_with("voice_"));
    let (_, shown) = installation
        .send(Method::GET, &location, Some(key), None)
        .await;
    assert_eq!(shown, voice);
    for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
        let (status, _) = installation
            .send(Method::DELETE, &location, Some(key), None)
            .await;
        assert_eq!(status, expected);
    }
    assert_eq!(installation.objects().len(), 0);
}

#[tokio::test]
async fn sample_is_sent_completely_or_in_part() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let sample = include_bytes!("voices/tone.opus").to_vec();
    let voice = installation.voice(key, "", sample.clone()).await;
    let at = path(&voice);
    let played = installation.preview(key, &at, "accept", "audio/*").await;
    let tag = format!("\"{}\"", voice["sha256"].as_str().unwrap());
    for (name, value) in [
        ("content-type", "audio/ogg"),
        ("accept-ranges", "bytes"),
        ("etag", &tag),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(played.headers()[name], value);
    }
    assert_eq!(bytes(played).await, sample);
    let known = installation.preview(key, &at, "if-none-match", &tag).await;
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    let part = installation.preview(key, &at, "range", "bytes=10-19").await;
    assert_eq!(
        (part.status(), &part.headers()["content-range"]),
        (
            StatusCode::PARTIAL_CONTENT,
            &format!("bytes 10-19/{}", sample.len()).parse().unwrap()
        )
    );
    assert_eq!(bytes(part).await, sample[10..20]);
    let beyond = installation
        .preview(key, &at, "range", "bytes=999999-")
        .await;
    assert_eq!(
        beyond.headers()["content-range"],
        format!("bytes */{}", sample.len()).as_str()
    );
    installation
        .problem_of(beyond, 416, "range_not_satisfiable")
        .await;
}

#[tokio::test]
async fn voice_requires_consent() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    for (query, parameter) in [
        ("name=A", "consent_by"),
        ("name=A&consent_by=%20", "consent_by"),
        ("name=A&consent_statement=Yes.", "consent_by"),
        ("name=A&consent_by=Anna", "consent_statement"),
    ] {
        let response = installation.send_sample(key, query, wav(1_300)).await;
        let problem = installation
            .problem_of(response, 422, "consent_required")
            .await;
        assert_eq!(problem["parameter"], parameter, "{query}");
    }
    let long = "x".repeat(201);
    for (query, mentions) in [
        ("name=A&consent_agreed_at=2999-01-02T03:04:05Z", "future"),
        ("name=A&consent_expires_at=2020-01-02T03:04:05Z", "past"),
        ("name=A&consent_expires_at=soon", "consent_expires_at"),
        ("name=A&provider=nobody", "embedded"),
        ("name=A&languages=de,x", "/languages/1"),
        ("name=A&labels=warm,,old", "/labels/1"),
        ("name=A&mood=happy", "mood"),
        ("name=", "name"),
        ("", "name"),
    ] {
        let query = format!("{query}&{CONSENT}");
        let query = query.trim_start_matches('&');
        let response = installation.send_sample(key, query, wav(1_300)).await;
        let problem = installation
            .problem_of(response, 400, "invalid_query")
            .await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(mentions), "{query}: {detail}");
    }
    let query = format!("name=A&consent_statement=Yes.&consent_by={long}");
    let response = installation.send_sample(key, &query, wav(1_300)).await;
    installation
        .problem_of(response, 400, "invalid_query")
        .await;
    assert_eq!(installation.objects().len(), 0);
    let (_, page) = installation
        .send(Method::GET, "/v1/voices", Some(key), None)
        .await;
    assert_eq!(page, json!({"voices": [], "next_cursor": null}));
}

#[tokio::test]
async fn invalid_sample_is_rejected() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let check = async |sample: Vec<u8>, status: u16, slug: &str| {
        let query = format!("name=A&{CONSENT}");
        let response = installation.send_sample(key, &query, sample).await;
        installation.problem_of(response, status, slug).await
    };
    check(Vec::new(), 400, "empty_body").await;
    check(vec![0; MAX_BYTES + 1], 413, "body_too_large").await;
    check(vec![0; 100], 415, "unsupported_audio").await;
    check(crate::cases::png(3), 415, "unsupported_audio").await;
    check(wav(1_300)[..200].to_vec(), 422, "broken_audio").await;
    let problem = check(wav(900), 422, "unsuitable_audio").await;
    assert!(
        problem["detail"].as_str().unwrap().contains("900 ms"),
        "{problem}"
    );
    assert_eq!(installation.objects().len(), 0);
    let nowhere = Installation::without_objects().await;
    let key = &nowhere.new_org("Toys").await.key;
    let query = format!("name=A&{CONSENT}");
    let response = nowhere.send_sample(key, &query, wav(1_300)).await;
    nowhere
        .problem_of(response, 503, "objects_not_configured")
        .await;
}

#[tokio::test]
async fn change_requires_the_current_version() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let voice = installation
        .voice(key, "languages=de&labels=warm", wav(1_300))
        .await;
    let at = path(&voice);
    let patch = json!({"name": "Oma", "languages": ["de-AT"], "labels": null});
    let without = installation.patch(key, &at, None, patch.clone()).await;
    installation
        .problem_of(without, 428, "precondition_required")
        .await;
    let stale = installation
        .patch(key, &at, Some("\"2\""), patch.clone())
        .await;
    installation
        .problem_of(stale, 412, "precondition_failed")
        .await;
    let changed = installation.patch(key, &at, Some("\"1\""), patch).await;
    assert_eq!(changed.headers()["etag"], "\"2\"");
    let changed = body(changed).await;
    assert_eq!(
        (&changed["name"], &changed["languages"], &changed["labels"]),
        (&json!("Oma"), &json!(["de-AT"]), &json!([]))
    );
    assert_eq!(changed["consent"], voice["consent"]);
    let same = installation
        .patch(key, &at, Some("\"2\""), json!({"name": "Oma"}))
        .await;
    assert_eq!(same.headers()["etag"], "\"2\"");
    for (patch, pointer) in [
        (json!({"state": "ready"}), "/state"),
        (json!({"consent": {"by": "Ben"}}), "/consent"),
        (json!({"languages": ["german language"]}), "/languages/0"),
        (json!({"labels": vec!["x"; 33]}), "/labels"),
        (json!({"name": null}), "/name"),
        (json!({"pitch": 2}), "/pitch"),
    ] {
        let response = installation.patch(key, &at, Some("*"), patch.clone()).await;
        let problem = installation.problem_of(response, 422, "invalid_body").await;
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{patch}");
    }
}

#[tokio::test]
async fn list_has_filters_and_pages() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = &installation.new_org("Toys").await.key;
    let one = installation
        .voice(key, "languages=de-AT,en", wav(1_300))
        .await;
    let two = installation.voice(key, "languages=den", wav(1_300)).await;
    let public = installation.voice(OPERATOR_KEY, "", wav(1_300)).await;
    assert_eq!(public["org_id"], Value::Null);
    let list = async |query: &str| {
        let path = format!("/v1/voices?{query}");
        let (status, page) = installation.send(Method::GET, &path, Some(key), None).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page
    };
    let ids = |page: &Value| -> Vec<Value> {
        let voices = page["voices"].as_array().unwrap().iter();
        voices.map(|voice| voice["id"].clone()).collect()
    };
    let id = |voice: &Value| voice["id"].clone();
    for (query, expected) in [
        ("", vec![id(&one), id(&two), id(&public)]),
        ("language=DE", vec![id(&one)]),
        ("language=de-at", vec![id(&one)]),
        ("language=d", vec![]),
        ("language=den&state=uploaded", vec![id(&two)]),
        ("state=ready", vec![]),
        ("provider=embedded&limit=1", vec![id(&one)]),
        ("provider=%00", vec![]),
    ] {
        assert_eq!(ids(&list(query).await), expected, "{query}");
    }
    let first = list("limit=2").await;
    let next = first["next_cursor"].as_str().unwrap();
    let second = list(&format!("limit=2&cursor={next}")).await;
    assert_eq!(
        (ids(&second), &second["next_cursor"]),
        (vec![id(&public)], &Value::Null)
    );
    for query in ["state=happy", "cursor=x", "limit=0", "other=1"] {
        let path = format!("/v1/voices?{query}");
        let response = installation
            .request(Method::GET, &path, Some(key), None)
            .await;
        installation
            .problem_of(response, 400, "invalid_query")
            .await;
    }
    let response = installation
        .request(Method::DELETE, &path(&public), Some(key), None)
        .await;
    installation
        .problem_of(response, 403, "operator_only")
        .await;
}

#[tokio::test]
async fn voice_in_use_cannot_be_deleted() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let (key, other) = (
        &installation.new_org("Toys").await.key,
        &installation.new_org("Games").await.key,
    );
    let (one, two) = (
        installation.voice(key, "", wav(1_300)).await,
        installation.voice(key, "", wav(1_300)).await,
    );
    let speaks = |voice: &Value| json!({"name": "Bello", "voice": {"voice_id": voice["id"]}});
    let make = async |key: &str, path: &str, body: Value| {
        installation
            .request(Method::POST, path, Some(key), Some(body))
            .await
    };
    for (key, voice) in [(other, one["id"].clone()), (key, json!("voice_1"))] {
        let response = make(key, "/v1/templates", speaks(&json!({"id": voice}))).await;
        let problem = installation.problem_of(response, 422, "invalid_body").await;
        assert_eq!(problem["errors"][0]["pointer"], "/voice/voice_id");
        let npc = json!({"overrides": speaks(&json!({"id": voice}))});
        let response = make(key, "/v1/npcs", npc).await;
        let problem = installation.problem_of(response, 422, "invalid_body").await;
        assert_eq!(problem["errors"][0]["pointer"], "/overrides/voice/voice_id");
    }
    // An id without our prefix is one of a provider.
    let created = make(key, "/v1/templates", speaks(&json!({"id": "warm-1"}))).await;
    assert_eq!(created.status(), StatusCode::CREATED);

    let template = body(make(key, "/v1/templates", speaks(&one)).await).await;
    let follows = json!({"template_id": template["id"], "overrides": {"voice": {"rate": 2}}});
    let follower = body(make(key, "/v1/npcs", follows).await).await;
    assert_eq!(follower["effective"]["voice"]["voice_id"], one["id"]);
    let own =
        json!({"template_id": template["id"], "overrides": {"voice": {"voice_id": two["id"]}}});
    let npc = body(make(key, "/v1/npcs", own).await).await;
    let remove = async |voice: &Value| {
        installation
            .request(Method::DELETE, &path(voice), Some(key), None)
            .await
    };
    for voice in [&one, &two] {
        installation
            .problem_of(remove(voice).await, 409, "voice_in_use")
            .await;
    }
    let at = format!("/v1/templates/{}", template["id"].as_str().unwrap());
    let changed = installation
        .patch(
            key,
            &at,
            Some("*"),
            json!({"voice": {"voice_id": two["id"]}}),
        )
        .await;
    assert_eq!(changed.status(), StatusCode::OK);
    assert_eq!(remove(&one).await.status(), StatusCode::NO_CONTENT);
    let npc_at = format!("/v1/npcs/{}", npc["id"].as_str().unwrap());
    let changed = installation
        .patch(
            key,
            &npc_at,
            Some("*"),
            json!({"overrides": {"voice": null}}),
        )
        .await;
    assert_eq!(changed.status(), StatusCode::OK);
    let changed = installation
        .patch(key, &at, Some("*"), json!({"voice": null}))
        .await;
    assert_eq!(changed.status(), StatusCode::OK);
    assert_eq!(remove(&two).await.status(), StatusCode::NO_CONTENT);
}
