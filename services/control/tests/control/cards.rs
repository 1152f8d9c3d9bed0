//! `/v1/templates/import` and `/v1/templates/{id}/export`.

use std::net::SocketAddr;

use axum::{body::Body, response::Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use switchboard_runtime::http::{HttpLimits, HttpMetrics, serve_with_metrics};
use switchboard_test_support::eventually::eventually_true;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::installation::{Installation, OPERATOR_KEY, Org, body};

/// A PNG of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";
const IMPORT: &str = "/v1/templates/import";

/// A card with all members of the specification.
pub(crate) fn card(name: &str) -> Value {
    json!({
        "spec": "chara_card_v2", "spec_version": "2.0",
        "data": {
            "name": name, "description": "{{char}} is a dog.", "personality": "Loyal.", "scenario": "A garden.",
            "first_mes": "Woof, {{user}}!", "mes_example": "<START>", "creator_notes": "For children.",
            "system_prompt": "Be kind.", "post_history_instructions": "Bark.", "alternate_greetings": ["Wuff!"],
            "tags": ["dog"], "creator": "Anna", "character_version": "1.1",
            "character_book": {"extensions": {}, "entries": [{"keys": ["bone"], "content": "Likes them.", "enabled": true}]},
            "extensions": {"other": {"a": [1, null]}},
        },
    })
}

fn pixel() -> Vec<u8> {
    BASE64_STANDARD.decode(PNG).unwrap()
}

/// The pixel with a text chunk at its end.
fn png(keyword: &str, text: &[u8]) -> Vec<u8> {
    let mut chunk = b"tEXt".to_vec();
    chunk.extend(keyword.bytes().chain([0]));
    chunk.extend(BASE64_STANDARD.encode(text).bytes());
    with_chunk(pixel(), &chunk)
}

/// A file with a chunk at its end, from its type and data.
fn with_chunk(mut file: Vec<u8>, chunk: &[u8]) -> Vec<u8> {
    let mut whole = u32::try_from(chunk.len() - 4)
        .unwrap()
        .to_be_bytes()
        .to_vec();
    whole.extend(chunk);
    whole.extend(crc32fast::hash(chunk).to_be_bytes());
    let end = file.len() - 12;
    file.splice(end..end, whole);
    file
}

impl Installation {
    async fn import(&self, key: &str, bytes: Vec<u8>) -> Response {
        let request = Request::builder()
            .method(Method::POST)
            .uri(IMPORT)
            .header(header::AUTHORIZATION, format!("Bearer {key}"));
        self.answer(request.body(Body::from(bytes)).unwrap()).await
    }

    async fn imported(&self, key: &str, bytes: Vec<u8>) -> Value {
        let response = self.import(key, bytes).await;
        let status = response.status();
        let template = body(response).await;
        assert_eq!(status, StatusCode::CREATED, "{template}");
        template
    }

    async fn export(&self, key: &str, template: &Value, accept: &str) -> Response {
        let id = template["id"].as_str().unwrap();
        let request = Request::builder()
            .uri(format!("/v1/templates/{id}/export?format=card_v2"))
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            .header(header::ACCEPT, accept);
        self.answer(request.body(Body::empty()).unwrap()).await
    }

    async fn list(&self, key: &str, kind: &str) -> Vec<Value> {
        let path = format!("/v1/{kind}");
        let (_, page) = self.send(Method::GET, &path, Some(key), None).await;
        page[kind].as_array().unwrap().clone()
    }
}

async fn rejection(response: Response) -> (u16, String, Value) {
    let status = response.status().as_u16();
    let problem = body(response).await;
    let kind = problem["type"].as_str().unwrap().to_owned();
    (
        status,
        kind.replace("/problems/", ""),
        problem["errors"][0]["pointer"].clone(),
    )
}

/// The settings of a template.
fn settings(template: &Value) -> Value {
    let mut settings = template.clone();
    for name in ["id", "version", "created_at", "updated_at"] {
        settings.as_object_mut().unwrap().remove(name);
    }
    settings
}

#[tokio::test]
async fn large_card_is_exported_part_by_part() {
    /// Bytes of the picture, and of the largest part of a response.
    const LARGE: usize = 6 * 1024 * 1024;
    const PART: usize = 1024 * 1024;
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let filler = [b"teSt".as_slice(), &vec![7; LARGE]].concat();
    let picture = with_chunk(png("chara", card("Bello").to_string().as_bytes()), &filler);
    let template = installation.imported(&org.key, picture).await;
    let response = installation.export(&org.key, &template, "image/png").await;
    assert_eq!(response.status(), StatusCode::OK);
    let length = response.headers()[header::CONTENT_LENGTH].clone();
    let (mut exported, mut parts, mut response) = (Vec::new(), 0, response.into_body());
    while let Some(part) = response.frame().await {
        let part = part.unwrap().into_data().unwrap();
        assert!(part.len() <= PART, "a part of {} bytes", part.len());
        exported.extend_from_slice(&part);
        parts += 1;
    }
    assert!(parts > 5 && exported.len() > LARGE, "{parts} parts");
    assert_eq!(length.to_str().unwrap(), exported.len().to_string());
    let again = installation.imported(&org.key, exported).await;
    let same = |template: &Value| {
        let mut settings = settings(template);
        settings["avatar"].take();
        settings
    };
    assert_eq!(same(&again), same(&template));
    let filler = [b"teSt".as_slice(), &vec![7; 12 * 1024 * 1024]].concat();
    let refused = installation
        .import(&org.key, with_chunk(pixel(), &filler))
        .await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

/// The beginning of an import, whose rest is not sent.
async fn begin_import(to: SocketAddr, key: &str, length: usize) -> TcpStream {
    let mut socket = TcpStream::connect(to).await.unwrap();
    let head = format!(
        "POST {IMPORT} HTTP/1.1\r\nHost: control\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&pixel()).await.unwrap();
    socket
}

#[tokio::test]
async fn imports_are_charged_to_their_organisation_before_they_are_read() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Other").await,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let length = 10 * 1024 * 1024;
    let limits = HttpLimits {
        larger_bodies: switchboard_control::LARGER_BODIES,
        // A quarter of it is room for two.
        bodies_bytes: 10 * length,
        ..HttpLimits::default()
    };
    let (router, budgets) = (installation.api.clone(), installation.budgets.clone());
    let metrics = HttpMetrics::new("control", &installation.registry).unwrap();
    let shutdown = installation.shutdown.clone();
    installation.shutdown.spawn(async move {
        let served = serve_with_metrics(listener, router, limits, &metrics, &budgets, shutdown);
        served.await.unwrap();
    });
    let held = |org: &Org| {
        let report = installation.budgets.report();
        let bodies = report.iter().find(|report| report.budget == "http_bodies");
        let owner = format!("org_{}", org.id().uuid().simple());
        let mut owners = bodies.unwrap().owners.iter();
        owners
            .find(|held| held.owner == owner)
            .map_or(0, |held| held.held)
    };
    let mut open = Vec::new();
    for imports in 1..=2 {
        open.push(begin_import(address, &org.key, length).await);
        eventually_true("the import is charged", || held(&org) == imports * length).await;
    }
    let mut refused = begin_import(address, &org.key, length).await;
    let mut answer = String::new();
    refused.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("http_bodies"), "{answer}");
    open.push(begin_import(address, &other.key, length).await);
    eventually_true("another organisation has room", || held(&other) == length).await;
    drop(open);
    eventually_true("all is returned", || held(&org) + held(&other) == 0).await;
}

#[tokio::test]
async fn imported_card_is_exported_unchanged() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let response = installation
        .import(&org.key, card("Bello").to_string().into())
        .await;
    let (location, etag) = (
        response.headers()[header::LOCATION].clone(),
        response.headers()[header::ETAG].clone(),
    );
    let template = body(response).await;
    let persona = &template["persona"];
    assert_eq!(
        location.to_str().unwrap(),
        format!("/v1/templates/{}", template["id"].as_str().unwrap())
    );
    assert_eq!(etag, "\"1\"");
    assert_eq!(persona["greeting"], json!(["Woof, {{user}}!", "Wuff!"]));
    assert_eq!(
        (
            &persona["example_dialogue"],
            &persona["card"]["data"]["creator"]
        ),
        (&json!("<START>"), &json!("Anna"))
    );
    let response = installation.export(&org.key, &template, "*/*").await;
    assert_eq!(response.headers()[header::VARY], "Accept");
    assert_eq!(body(response).await, card("Bello"));
    let (_, found) = installation
        .send(
            Method::GET,
            location.to_str().unwrap(),
            Some(&org.key),
            None,
        )
        .await;
    assert_eq!(found, template);
}

#[tokio::test]
async fn exported_template_is_imported_unchanged() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let template = json!({
        "name": "Rex", "locale": "de-DE", "tags": ["dog"],
        "persona": {
            "role": "a dog", "backstory": "b", "dialogue_style": "d", "forbidden_topics": ["cats"], "greeting": [""],
            "card": {"data": {"creator": ""}, "root": {"fav": true}},
        },
        "model": {"provider": "p", "model": "m", "temperature": 0.5}, "voice": {"voice_id": "v"},
        "tools": {"allow": [], "deny": ["x"]}, "memory": {"retention_days": 3, "from_conversations": false},
        "conversation": {"barge_in": false},
        "prompt": {"arguments": [{"name": "char"}], "messages": [{"role": "user", "content": {"type": "text", "text": "{{char}}"}}]},
    });
    let (status, created) = installation
        .send(
            Method::POST,
            "/v1/templates",
            Some(&org.key),
            Some(template),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let exported = body(
        installation
            .export(&org.key, &created, "application/json")
            .await,
    )
    .await;
    let again = installation
        .imported(&org.key, exported.to_string().into())
        .await;
    assert_eq!(settings(&again), settings(&created));
}

#[tokio::test]
async fn imported_png_is_the_avatar_and_carries_the_card() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let file = png("chara", card("Bello").to_string().as_bytes());
    let template = installation.imported(&org.key, file.clone()).await;
    let path = format!(
        "/v1/pictures/{}/content",
        template["avatar"].as_str().unwrap()
    );
    let avatar = installation
        .request(Method::GET, &path, Some(&org.key), None)
        .await;
    // The stored picture has no card: its viewers must not see the prompt of the character.
    assert_eq!(
        avatar.into_body().collect().await.unwrap().to_bytes(),
        pixel()
    );
    let exported = installation.export(&org.key, &template, "image/png").await;
    assert_eq!(exported.headers()[header::CONTENT_TYPE], "image/png");
    let exported = exported.into_body().collect().await.unwrap().to_bytes();
    let again = installation.imported(&org.key, exported.to_vec()).await;
    let same = |template: &Value| {
        let mut settings = settings(template);
        // Another picture with the same bytes.
        settings["avatar"].take();
        settings
    };
    assert_eq!(same(&again), same(&template));
    assert_ne!(again["avatar"], template["avatar"]);
    let browser = installation
        .export(&org.key, &template, "application/json, image/png")
        .await;
    assert_eq!(browser.headers()[header::CONTENT_TYPE], "application/json");
}

#[tokio::test]
async fn rejected_import_leaves_nothing_behind() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let changed = |place: &str, value: Value| {
        let mut card = card("Bello");
        *card.pointer_mut(place).unwrap() = value;
        card.to_string().into_bytes()
    };
    let ours = "/data/extensions/switchboard/template";
    let with_ours = |patch: Value| {
        changed(
            "/data/extensions",
            json!({"switchboard": {"template": patch}}),
        )
    };
    let nobodys = "pic_01a1fdc1e9a974a2a3864a7cbf82fd2a";
    let mut half = png("chara", card("Bello").to_string().as_bytes());
    half.pop();
    for (sent, expected) in [
        (b"{".to_vec(), (400, "malformed_json", Value::Null)),
        (Vec::new(), (400, "empty_body", Value::Null)),
        (
            b"\xFF\xD8\xFF a JPEG".to_vec(),
            (400, "malformed_json", Value::Null),
        ),
        (
            br#"{"spec": 1, "spec": 2}"#.to_vec(),
            (422, "invalid_body", Value::Null),
        ),
        (
            vec![b' '; 1024 * 1024 + 1],
            (413, "body_too_large", Value::Null),
        ),
        (
            vec![b' '; 13 * 1024 * 1024],
            (413, "body_too_large", Value::Null),
        ),
        (
            changed("/spec", json!("chara_card_v3")),
            (422, "invalid_body", json!("/spec")),
        ),
        (
            changed("/data/tags/0", json!("")),
            (422, "invalid_body", json!("/data/tags/0")),
        ),
        (
            with_ours(json!({"avatar": nobodys})),
            (422, "invalid_body", json!(format!("{ours}/avatar"))),
        ),
        (pixel(), (422, "broken_card", Value::Null)),
        (half, (422, "broken_card", Value::Null)),
        (png("ccv3", b"{}"), (422, "broken_card", Value::Null)),
        (png("chara", b"{"), (400, "malformed_json", Value::Null)),
        (
            png("chara", &[b'x'; 1024 * 1024 + 9]),
            (422, "broken_card", Value::Null),
        ),
        (
            png("chara", &changed("/data/name", json!(7))),
            (422, "invalid_body", json!("/data/name")),
        ),
    ] {
        let start = String::from_utf8_lossy(&sent[..sent.len().min(80)]).into_owned();
        let (status, kind, pointer) = rejection(installation.import(&org.key, sent).await).await;
        let pointer = Some(pointer)
            .filter(|_| !expected.2.is_null())
            .unwrap_or_default();
        assert_eq!((status, kind.as_str(), pointer), expected, "{start}");
    }
    assert!(installation.list(&org.key, "templates").await.is_empty());
    assert!(installation.list(&org.key, "pictures").await.is_empty());
}

#[tokio::test]
async fn taken_prompt_name_leaves_no_picture_behind() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let ours = "/data/extensions/switchboard/template";
    let mut named = card("Bello");
    named["data"]["extensions"] = json!({"switchboard": {"template": {"prompt": {
        "name": "greet", "messages": [{"role": "user", "content": {"type": "text", "text": "x"}}],
    }}}});
    let named = named.to_string().into_bytes();
    installation.imported(&org.key, named.clone()).await;
    let taken = rejection(installation.import(&org.key, png("chara", &named)).await).await;
    assert_eq!(
        taken,
        (
            409,
            "prompt_name_taken".to_owned(),
            json!(format!("{ours}/prompt/name"))
        )
    );
    assert_eq!(installation.list(&org.key, "templates").await.len(), 1);
    assert!(installation.list(&org.key, "pictures").await.is_empty());
    assert!(installation.objects().is_empty());
}

#[tokio::test]
async fn export_as_png_needs_a_png_avatar() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let template = installation
        .imported(&org.key, card("Bello").to_string().into())
        .await;
    let refused = rejection(installation.export(&org.key, &template, "image/png").await).await;
    assert_eq!((refused.0, refused.1.as_str()), (409, "no_png_avatar"));
    // A truncated PNG is accepted as a picture, but cannot carry a card.
    let truncated = Request::builder()
        .method(Method::POST)
        .uri("/v1/pictures")
        .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
        .body(Body::from(crate::cases::png(7)));
    let picture = body(installation.answer(truncated.unwrap()).await).await;
    let with_avatar = json!({"name": "Rex", "avatar": picture["id"]});
    let (_, template) = installation
        .send(
            Method::POST,
            "/v1/templates",
            Some(&org.key),
            Some(with_avatar),
        )
        .await;
    let refused = rejection(installation.export(&org.key, &template, "image/png").await).await;
    assert_eq!((refused.0, refused.1.as_str()), (409, "no_png_avatar"));
    let bare = Installation::without_objects().await;
    let org = bare.new_org("own").await;
    let sent = png("chara", card("Bello").to_string().as_bytes());
    let refused = rejection(bare.import(&org.key, sent).await).await;
    assert_eq!(
        (refused.0, refused.1.as_str()),
        (503, "objects_not_configured")
    );
    assert!(bare.list(&org.key, "templates").await.is_empty());
}

#[tokio::test]
async fn template_of_the_operator_is_public() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let file = png("chara", card("Bello").to_string().as_bytes());
    let template = installation.imported(OPERATOR_KEY, file).await;
    assert_eq!(
        (&template["visibility"], &template["org_id"]),
        (&json!("public"), &Value::Null)
    );
    for accept in ["application/json", "image/png"] {
        let response = installation.export(&org.key, &template, accept).await;
        assert_eq!(response.status(), StatusCode::OK);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let copy = installation.import(&org.key, bytes.to_vec()).await;
        let status = copy.status();
        let copy = body(copy).await;
        assert_eq!(
            (status, &copy["visibility"]),
            (StatusCode::CREATED, &json!("private")),
            "{copy}"
        );
    }
}
