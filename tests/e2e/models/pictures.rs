//! Pictures in messages: models that see receive them, others learn what they do not see.

use std::{io::Write as _, process::Stdio};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use tokio::process::Command;

use crate::{
    cluster::TestCluster,
    provider::{Provider, ProviderRequest},
    system::{ChatFixture, TestSystem, start_chat},
    turns::task,
};

const PIXEL: &[u8] = include_bytes!("../objects/pixel.png");
const SEES: (&str, &str) = ("SWITCHBOARD_COMPLETIONS_SEES_PICTURES", "true");
const UNSEEN: &str = "You cannot see pictures. If it matters, say so.";
/// No picture has this id.
const UNKNOWN: &str = "pic_00000000000000000000000000000007";

/// A cluster with a folder for objects, and a setting of its chat process.
async fn with_objects() -> (TempDir, TestCluster, (&'static str, String)) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let cluster = TestCluster::start_with(1, &[("SWITCHBOARD_OBJECTS", &url)]).await;
    (folder, cluster, ("SWITCHBOARD_OBJECTS", url))
}

impl TestSystem {
    /// Uploads a picture. Returns its id.
    async fn upload(&self, query: &str, bytes: Vec<u8>) -> String {
        let url = format!("{}/v1/pictures{query}", self.settings);
        let request = self.http.post(url).bearer_auth(&self.key).body(bytes);
        let created = request.send().await.unwrap();
        assert_eq!(created.status(), StatusCode::CREATED);
        let created: Value = created.json().await.unwrap();
        created["id"].as_str().unwrap().to_owned()
    }

    async fn ask_about(&self, key: &str, npc: &str, body: &Value) -> (StatusCode, String) {
        let url = format!("{}/v1/npcs/{npc}/chat", self.talk);
        let answer = self.http.post(url).bearer_auth(key).json(body).send().await;
        let answer = answer.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }
}

/// The parts of the last message of the user that a model that sees pictures receives.
fn seen(text: &str, picture: &[u8]) -> Value {
    let url = format!("data:image/png;base64,{}", BASE64_STANDARD.encode(picture));
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    match text {
        "" => json!([image]),
        text => json!([{"type": "text", "text": text}, image]),
    }
}

/// The content of the last message.
fn content(request: &ProviderRequest) -> &Value {
    &request.messages().last().unwrap()["content"]
}

#[tokio::test(flavor = "multi_thread")]
async fn model_sees_the_picture_of_a_device_once() {
    let mut fixture = ChatFixture::start(1, &[SEES]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    // Larger than a frame, with the end of a frame in it.
    let mut picture = PIXEL.to_vec();
    picture.resize(400_000, 0xfe);
    picture.extend(b"##END##START");
    device.show(task(1), &picture, "What is this?").await;
    let request = fixture.provider.next_request().await;
    assert!(*content(&request) == seen("What is this?", &picture));
    request.reply("A dog.").await;
    assert_eq!(device.receive_answer(task(1)).await, "A dog.");
    // A message may consist of a picture. Of the one before, a note is left.
    device.show(task(2), PIXEL, "").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(content(&request), &seen("", PIXEL));
    let before = &request.messages()[1]["content"];
    assert_eq!(before, "What is this?\n\n[The user shows a picture.]");
    assert_eq!(request.body.to_string().matches("data:").count(), 1);
    request.reply("A cat.").await;
    device.receive_answer(task(2)).await;
    device.show(task(3), b"", "And now?").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(content(&request), "And now?");
    assert_eq!(
        request.messages()[3]["content"],
        "[The user shows a picture.]"
    );
    request.reply("Nothing.").await;
    device.receive_answer(task(3)).await;
    // The device of the command line shows a file.
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(PIXEL).unwrap();
    let said = Command::new(env!("CARGO_BIN_EXE_switchboard"))
        .args(["device", "--addr", &fixture.system.devices[0], "--token"])
        .arg(fixture.cluster.device_token("toy-2").await)
        .args(["--say", "What is this?", "--picture"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let request = fixture.provider.next_request().await;
    assert_eq!(content(&request), &seen("What is this?", PIXEL));
    request.reply("A dog.").await;
    let said = said.wait_with_output().await.unwrap();
    assert_eq!(said.stdout, b"A dog.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_describes_the_picture_to_a_model_that_does_not_see() {
    let cluster = TestCluster::start(1).await;
    let (mut first, mut second) = (Provider::start().await, Provider::start().await);
    let list = json!([
        {"name": "first", "endpoint": first.url, "model": "m", "sees_pictures": true},
        {"name": "second", "endpoint": second.url, "model": "m"},
    ]);
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(list.to_string().as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let _chat = start_chat(&cluster, &[("SWITCHBOARD_COMPLETIONS_FILE", path)]);
    let mut device = cluster.device(0, "toy-1").await;
    device.show(task(1), PIXEL, "What is this?").await;
    let request = first.next_request().await;
    assert_eq!(content(&request), &seen("What is this?", PIXEL));
    request.reject(500, None);
    let request = second.next_request().await;
    let expected = format!("What is this?\n\n[The user shows a picture.]\n{UNSEEN}");
    assert_eq!(content(&request), expected.as_str());
    request.reply("I cannot see it.").await;
    assert_eq!(device.receive_answer(task(1)).await, "I cannot see it.");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_picture_is_shown_by_its_id() {
    let (_folder, cluster, objects) = with_objects().await;
    let settings = [SEES, (objects.0, &*objects.1)];
    let mut fixture = ChatFixture::with_cluster(cluster, Provider::start().await, &settings);
    let system = &fixture.system;
    let npc = system.npc(&json!({"name": "Bello"}), &["toy-1"]).await;
    let id = system.upload("?name=Anna", PIXEL.to_vec()).await;
    let body = json!({"text": "", "picture_id": id});
    let answer = async {
        let request = fixture.provider.next_request().await;
        assert_eq!(content(&request), &seen("", PIXEL));
        request.reply("A dog.").await;
    };
    let (asked, ()) = tokio::join!(system.ask_about(&system.key, &npc, &body), answer);
    assert_eq!(asked.0, StatusCode::OK);
    assert!(asked.1.contains("A dog."), "{}", asked.1);
    // Over the wire as well. The conversation keeps the name.
    let mut device = system.device(0, "toy-1").await;
    device.show(task(1), id.as_bytes(), "Who is this?").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(content(&request), &seen("Who is this?", PIXEL));
    request.reply("Anna.").await;
    device.receive_answer(task(1)).await;
    device.show(task(2), b"", "Who?").await;
    let request = fixture.provider.next_request().await;
    let before = &request.messages()[1]["content"];
    assert_eq!(
        before,
        "Who is this?\n\n[The user shows a picture: \"Anna\".]"
    );
    request.reply("Anna.").await;
    device.receive_answer(task(2)).await;
    // Unknown ones, those of others, and those that are too large.
    let mut large = PIXEL.to_vec();
    large.resize(4 * 1024 * 1024 + 1, 0);
    let large = system.upload("", large).await;
    let other = fixture.cluster.another_org("second").await;
    let url = format!("{}/v1/pictures", system.settings);
    let request = system.http.post(url).bearer_auth(&other.key).body(PIXEL);
    let foreign: Value = request.send().await.unwrap().json().await.unwrap();
    let foreign = foreign["id"].as_str().unwrap();
    for (id, part) in [
        (UNKNOWN, "no picture"),
        (foreign, "no picture"),
        (&*large, "4194304 bytes"),
        ("npc_1", ""),
    ] {
        let body = json!({"text": "Who is this?", "picture_id": id});
        let (status, problem) = system.ask_about(&system.key, &npc, &body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert!(
            problem.contains("invalid_body") && problem.contains(part),
            "{problem}"
        );
    }
    for (id, part) in [
        (UNKNOWN, "there is none"),
        (foreign, "there is none"),
        (&*large, "too large"),
    ] {
        device.show(task(3), id.as_bytes(), "Who is this?").await;
        let answer = device.receive_answer(task(3)).await;
        assert!(answer.contains(part), "{answer}");
    }
    assert!(fixture.provider.is_idle());
    let path = format!("/v1/pictures/{id}");
    let (status, _) = system.ask(Method::DELETE, &path, &Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_of_a_picture_is_its_description_where_nobody_sees() {
    // The bytes are not read: this chat process has no object store.
    let (_folder, cluster, _) = with_objects().await;
    let mut fixture = ChatFixture::with_cluster(cluster, Provider::start().await, &[]);
    let system = &fixture.system;
    let id = system
        .upload("?name=Anna%20in%20Rome", PIXEL.to_vec())
        .await;
    let mut device = system.device(0, "toy-1").await;
    device.show(task(1), id.as_bytes(), "Who is this?").await;
    let request = fixture.provider.next_request().await;
    let note = "[The user shows a picture: \"Anna in Rome\".]";
    let expected = format!("Who is this?\n\n{note}\n{UNSEEN}");
    assert_eq!(content(&request), expected.as_str());
    request.reply("Anna.").await;
    device.receive_answer(task(1)).await;
    // The rules, too, say that they do not see; what they understand they do.
    let _rules = start_chat(&fixture.cluster, &[]);
    drop(fixture.chat);
    for (text, answer) in [
        ("", "I cannot see pictures."),
        ("What is this?", "I cannot see pictures."),
        (
            "Hello",
            "I cannot see pictures.\nHello! What can I do for you?",
        ),
    ] {
        device.show(task(2), PIXEL, text).await;
        assert_eq!(device.receive_answer(task(2)).await, answer);
    }
}
