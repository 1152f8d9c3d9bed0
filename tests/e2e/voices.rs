//! Voices from upload to the provider's response: created by processes that may die, and uploaded
//! by the command line.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, extract::State, routing::post};
use http::HeaderMap;
use serde_json::{Value, json};
use switchboard_test_support::{eventually::eventually, switchboard::Program};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    task::JoinSet,
    time::timeout,
};

use crate::cluster::TestCluster;

const SAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../control/tests/control/voices/tone.mp3"
);
/// Upper bound for the creation of a voice, including the lease of a killed process.
const CREATION_TIMEOUT: Duration = Duration::from_secs(60);

/// The idempotency keys with which the provider was called.
type Asked = Arc<Mutex<Vec<String>>>;

/// A provider that never answers the first request.
async fn make(State(asked): State<Asked>, headers: HeaderMap) -> Json<Value> {
    let count = {
        let mut asked = asked.lock().unwrap();
        asked.push(headers["idempotency-key"].to_str().unwrap().to_owned());
        asked.len()
    };
    if count == 1 {
        std::future::pending::<()>().await;
    }
    Json(json!({"id": "v-1", "state": "ready"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_voice_of_killed_worker_is_created_with_same_key() {
    let (asked, mut tasks) = (Asked::default(), JoinSet::new());
    let router = Router::new()
        .route("/", post(make))
        .with_state(asked.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let objects = tempfile::tempdir().unwrap();
    let objects = format!("file://{}", objects.path().display());
    let settings = [
        ("SWITCHBOARD_OBJECTS", objects.as_str()),
        ("SWITCHBOARD_VOICES_ENDPOINT", &endpoint),
    ];
    let mut cluster = TestCluster::start_with(0, &settings).await;
    let address = cluster.control.address("http_url");
    let consent = ["--consent-by", "Anna", "--consent", "Yes."];
    let mut upload = tokio::process::Command::new(env!("CARGO_BIN_EXE_switchboard"))
        .args(["voices", "upload", SAMPLE, "--provider", "http"])
        .args(consent)
        .env("SWITCHBOARD_URL", &address)
        .env("SWITCHBOARD_API_KEY", &cluster.org.key)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let count = async || asked.lock().unwrap().len();
    eventually(CREATION_TIMEOUT, count, |count| *count == 1).await;
    cluster.control.kill();
    // The client continues to wait for the voice.
    let mut printed = BufReader::new(upload.stderr.take().unwrap()).lines();
    let printed = timeout(CREATION_TIMEOUT, printed.next_line())
        .await
        .unwrap()
        .unwrap();
    let printed = printed.unwrap();
    assert!(printed.contains("retrying"), "{printed}");

    let mut environment = cluster.environment();
    environment.push(("SWITCHBOARD_OBJECTS", objects.clone()));
    environment.push(("SWITCHBOARD_VOICES_ENDPOINT", endpoint.clone()));
    let listen = address.strip_prefix("http://").unwrap();
    let _other = Program::start(&["control", "--http-listen", listen], &environment);
    let output = timeout(CREATION_TIMEOUT, upload.wait_with_output()).await;
    let output = output.unwrap().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    let ready: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&ready["state"], &ready["provider_voice_id"]),
        (&json!("ready"), &json!("v-1"))
    );
    let keys = asked.lock().unwrap().clone();
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn voice_is_managed_by_command_line() {
    let objects = tempfile::tempdir().unwrap();
    let url = format!("file://{}", objects.path().display());
    let cluster = TestCluster::start_with(0, &[("SWITCHBOARD_OBJECTS", &url)]).await;
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_switchboard"))
            .arg("voices")
            .args(arguments)
            .env("SWITCHBOARD_URL", cluster.control.address("http_url"))
            .env("SWITCHBOARD_API_KEY", &cluster.org.key)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let consent = [
        "--consent",
        "The toy & its makers may.",
        "--consent-by",
        "Anna",
    ];
    let upload = |file: &str, more: &[&str]| {
        let mut arguments = vec!["upload", file];
        arguments.extend(more);
        run(&arguments)
    };
    assert_eq!(upload(SAMPLE, &[]).0, Some(64), "consent is no option");
    let more = [&consent[..], &["--language", "de-DE,en", "--label", "warm"]].concat();
    let (code, out, err) = upload(SAMPLE, &more);
    assert_eq!(code, Some(0), "{err}");
    let voice: Value = serde_json::from_str(&out).unwrap();
    let expected = json!({
        "name": "tone", "state": "ready", "mime_type": "audio/mpeg", "languages": ["de-DE", "en"], "labels": ["warm"],
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&voice[name], value, "{name}");
    }
    assert_eq!(
        voice["consent"]["statement"], consent[1],
        "it stands as it was given"
    );
    let id = voice["id"].as_str().unwrap();
    let (code, out, _) = run(&["list", "--language", "de", "--state", "ready"]);
    assert_eq!((code, out.contains(id)), (Some(0), true), "{out}");
    assert_eq!(run(&["list", "--json"]).1, run(&["show", id]).1);
    let (code, out, _) = run(&["list", "--language", "fr", "--json"]);
    assert_eq!((code, out.trim()), (Some(0), ""));
    let (code, out, err) = run(&["train", id]);
    assert_eq!(
        (code, out.contains("\"ready\"")),
        (Some(0), true),
        "{out}{err}"
    );
    let (code, _, err) = upload("-", &consent);
    assert_eq!((code, err.contains("--name")), (Some(64), true), "{err}");
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let (code, _, err) = upload(text.to_str().unwrap(), &consent);
    assert_eq!((code, err.contains("(415)")), (Some(1), true), "{err}");
    assert_eq!(run(&["delete", id]).0, Some(0));
    assert_eq!(run(&["show", id]).0, Some(1));
}
