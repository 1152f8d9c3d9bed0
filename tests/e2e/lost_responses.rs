//! Responses lost on the way to the command line: nothing is created twice, and no success is
//! reported as a failure. The requests themselves arrive.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};

use crate::cluster::{TestCluster, echo_services};

const SAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../control/tests/control/voices/tone.mp3"
);

/// A proxy in front of the control plane.
#[derive(Clone)]
struct Relay {
    to: String,
    http: reqwest::Client,
    /// The end of the path whose next response is dropped.
    loses: Arc<Mutex<Option<&'static str>>>,
}

/// A system behind the proxy.
struct Remote {
    cluster: TestCluster,
    folder: tempfile::TempDir,
    relay: Relay,
    url: String,
    _tasks: JoinSet<()>,
}

async fn pass(
    State(relay): State<Relay>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Bytes) {
    headers.remove(header::HOST);
    let request = relay.http.request(method, format!("{}{uri}", relay.to));
    let answer = request.headers(headers).body(body).send().await.unwrap();
    let (status, body) = (answer.status(), answer.bytes().await.unwrap());
    let mut loses = relay.loses.lock().unwrap();
    match loses.take_if(|end| uri.path().ends_with(*end)) {
        Some(_) => (StatusCode::BAD_GATEWAY, Bytes::new()),
        None => (status, body),
    }
}

impl Remote {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let objects = format!("file://{}/objects", folder.path().display());
        let cluster = TestCluster::start_with(0, &[("SWITCHBOARD_OBJECTS", &objects)]).await;
        let relay = Relay {
            to: cluster.control.address("http_url"),
            http: cluster.http.clone(),
            loses: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass).with_state(relay.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            cluster,
            folder,
            relay,
            url,
            _tasks: tasks,
        }
    }

    fn run(&self, arguments: &[&str], stdin: Stdio) -> Output {
        Command::new(env!("CARGO_BIN_EXE_switchboard"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env("SWITCHBOARD_URL", &self.url)
            .env("SWITCHBOARD_API_KEY", &self.cluster.org.key)
            .stdin(stdin)
            .output()
            .unwrap()
    }

    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, Stdio::null());
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The stderr of a command whose response to the request with such a path is dropped.
    fn without(&self, answer: &'static str, arguments: &[&str]) -> String {
        *self.relay.loses.lock().unwrap() = Some(answer);
        let output = self.run(arguments, Stdio::null());
        assert_eq!(*self.relay.loses.lock().unwrap(), None, "it was asked for");
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {err}");
        err
    }
}

/// The idempotency key that the error message suggests.
fn advised(printed: &str) -> &str {
    let (_, key) = printed.split_once("--idempotency-key ").unwrap();
    key.split(|end: char| !end.is_alphanumeric())
        .next()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn book_upload_with_lost_response_is_not_repeated() {
    let remote = Remote::open().await;
    let guide = "# Care\n\nReplace the battery once a year.";
    std::fs::write(remote.folder.path().join("guide.md"), guide).unwrap();
    let upload = ["skills", "upload", "guide.md"];
    let err = remote.without("/v1/skills-books", &upload);
    let again = [&upload[..], &["--idempotency-key", advised(&err)]].concat();
    let err = remote.without("/parts/1", &again);
    assert!(
        err.contains("is incomplete") && err.contains(again[4]),
        "{err}"
    );
    let err = remote.without("/finish", &again);
    assert!(err.contains("`switchboard skills show skb_"), "{err}");
    assert!(!err.contains("delete"), "{err}");
    let book: Value = serde_json::from_str(&remote.printed(&again)).unwrap();
    assert_eq!(book["state"], "ready");
    let line = format!("{}\tready\t100\tguide.md\n", book["id"].as_str().unwrap());
    assert_eq!(remote.printed(&["skills", "list"]), line);
}

#[tokio::test(flavor = "multi_thread")]
async fn voice_creation_with_lost_response_is_not_repeated() {
    let remote = Remote::open().await;
    let consent = ["--consent-by", "Anna", "--consent", "Yes."];
    let upload = [&["voices", "upload", SAMPLE], &consent[..]].concat();
    let err = remote.without("/v1/voices", &upload);
    let again = [&upload[..], &["--idempotency-key", advised(&err)]].concat();
    let voice: Value = serde_json::from_str(&remote.printed(&again)).unwrap();
    assert_eq!(
        (&voice["state"], &voice["name"]),
        (&"ready".into(), &"tone".into())
    );
    assert_eq!(remote.printed(&["voices", "list"]).lines().count(), 1);

    let sample = std::fs::File::open(Path::new(SAMPLE)).unwrap();
    let piped = [&["voices", "upload", "-", "--name", "Piped"], &consent[..]].concat();
    let output = remote.run(&piped, sample.into());
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert_eq!(remote.printed(&["voices", "list"]).lines().count(), 2);
}

fn command(cluster: &TestCluster, url: &str, arguments: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_switchboard"));
    command
        .args(arguments)
        .env("SWITCHBOARD_URL", url)
        .env("SWITCHBOARD_API_KEY", &cluster.org.key)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_lost_when_the_gateway_dies_after_the_device_has_it() {
    let mut cluster = TestCluster::start(1).await;
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&echo_services()).await;
    let url = cluster.gateway.address("http_url");
    let call = ["call", "toy-1", "echo", r#"{"text":"a"}"#];
    let waiting = command(&cluster, &url, &call).spawn().unwrap();
    device.next_call().await;
    cluster.gateway.kill();
    let check = |output: Output, code: i32, part: &str| {
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert!(err.contains(part), "{err}");
    };
    let lost = waiting.wait_with_output().await.unwrap();
    check(lost, 8, "lost, delivered: unknown");
    // Nothing was sent.
    let refused = command(&cluster, &url, &call).output().await.unwrap();
    check(refused, 9, &url);
}

#[tokio::test(flavor = "multi_thread")]
async fn url_of_another_service_is_named_and_not_tried_again() {
    let cluster = TestCluster::start(1).await;
    // The gateway issues no tokens.
    let url = cluster.gateway.address("http_url");
    let edge = cluster.edges[0].address("device_addr");
    let device = ["device", "--id", "toy-1", "--addr", &edge];
    let output = command(&cluster, &url, &device).output().await.unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains(&url) && err.contains("`switchboard gateway`"),
        "{err}"
    );
}
