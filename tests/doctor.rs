//! `switchboard doctor`: every line of its report, passed and failed.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, which reports the line"
)]

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::Request,
    http::StatusCode,
    routing::{get, post},
};
use serde_json::{Value, json};
use switchboard_test_support::{
    data_folder::DataFolder, database::Database, redis_server::RedisServer, switchboard::Program,
};
use tokio::task::JoinSet;

/// An address without a listener.
const NOWHERE: &str = "127.0.0.1:1";

const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// What `doctor --json` has found.
struct Report(Vec<Value>);

impl Report {
    fn of(folder: &DataFolder, more: &[&str]) -> Self {
        Self::from(&mut folder.command(&[&["doctor", "--json"], more].concat()))
    }

    fn from(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let findings: Vec<Value> = serde_json::from_str(&printed)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        let has_failed = findings.iter().any(|finding| finding["ok"] == false);
        assert_eq!(output.status.code(), Some(has_failed.into()), "{printed}");
        Self(findings)
    }

    fn line(&self, check: &str) -> &Value {
        let mut found = self.0.iter().filter(|finding| finding["check"] == check);
        let line = found.next();
        assert!(found.next().is_none(), "{check} is there twice");
        line.unwrap_or_else(|| panic!("no {check} in {:?}", self.0))
    }

    /// The line has passed, and has this in its detail.
    fn passes(&self, check: &str, detail: &str) {
        let line = self.line(check);
        assert_eq!(
            (&line["ok"], &line["remedy"]),
            (&json!(true), &Value::Null),
            "{line}"
        );
        assert!(line["detail"].as_str().unwrap().contains(detail), "{line}");
        assert!(!line["how"].as_str().unwrap().is_empty(), "{line}");
    }

    /// The line has failed, and has this at the end of its remedy.
    fn fails(&self, check: &str, remedy: &str) {
        let line = self.line(check);
        assert_eq!(line["ok"], false, "{line}");
        assert!(line["remedy"].as_str().unwrap().ends_with(remedy), "{line}");
        assert!(!line["how"].as_str().unwrap().is_empty(), "{line}");
    }

    /// Runs the command that the line ends with.
    fn run_remedy(&self, check: &str) {
        let remedy = self.line(check)["remedy"].as_str().unwrap();
        let command = remedy.split('`').nth(1).unwrap();
        let status = Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(status.success(), "{command}");
    }
}

/// Every line that the documentation lists is tested here in both states.
#[test]
fn every_line_is_tested_in_both_states() {
    let page = include_str!("../docs/operations.md");
    let table = page.split("| line | what it does |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .map_while(|row| row.strip_prefix("| `"));
    let names: Vec<_> = rows.map(|row| row.split('`').next().unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    let tests: String = include_str!("doctor.rs").split_whitespace().collect();
    for name in names {
        let name: String = name.split_whitespace().collect();
        for state in ["passes", "fails"] {
            let call = format!(".{state}(\"{name}\",");
            assert!(tests.contains(&call), "no test has {call}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_about_an_up_and_its_webhooks() {
    let folder = DataFolder::new();
    let empty = Report::of(&folder, &[]);
    empty.fails("installation", "--data-dir or --url");
    empty.passes("data folder", "has no data");

    let allow = ["--webhooks-allow", "127.0.0.0/8"];
    let mut up = Program::start(&folder.up_arguments(&allow), &[]);
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let webhook = json!({
        "url": format!("http://{}/hook", receiver.local_addr().unwrap()),
        "events": ["device.online"],
    });
    let created = reqwest::Client::new()
        .post(format!("{}/v1/webhooks", up.address("http_url")))
        .bearer_auth(up.address("api_key"))
        .body(webhook.to_string())
        .header("content-type", "application/json");
    let created = created.send().await.unwrap();
    assert_eq!(created.status(), 201, "{}", created.text().await.unwrap());

    let running = Report::of(&folder, &allow);
    running.passes("installation", "the `up` of the data folder");
    running.passes("data folder", "contains the data");
    running.passes("HTTP API", "accepts the API key");
    running.passes("admin port", "reports ready");
    running.passes("device port", "accepts connections");
    running.passes("webhooks", "1 reachable, 0 disabled");
    // As control would refuse the address.
    Report::of(&folder, &[]).fails("webhooks", "or the URL");
    drop(receiver);
    Report::of(&folder, &allow).fails("webhooks", "the URL of the webhook");

    let wrong = folder.run(&["doctor", "--api-key", "sb_wrong"]);
    let printed = String::from_utf8(wrong.stdout).unwrap();
    let line = printed
        .lines()
        .find(|line| line.starts_with("FAIL  HTTP API: "));
    let line = line.unwrap_or_else(|| panic!("{printed}"));
    assert!(line.contains("[GET http://127.0.0.1:"), "{line}");
    assert!(
        line.ends_with("correct SWITCHBOARD_API_KEY (--api-key)"),
        "{line}"
    );

    up.kill();
    let stopped = Report::of(&folder, &[]);
    stopped.fails("HTTP API", "or correct --url");
    stopped.fails("admin port", "or correct --data-dir");
    stopped.fails("device port", "SWITCHBOARD_ADDR (--addr)");

    fs::write(Path::new(folder.path()).join("up.json"), "{").unwrap();
    let damaged = Report::of(&folder, &[]);
    damaged.fails("data folder", "up.json.damaged`");
    damaged.run_remedy("data folder");
    Report::of(&folder, &[]).passes("data folder", "has no data");
}

/// Starts an `up` whose data folder PostgreSQL's user cannot reach, stops it, and returns the folder
/// of its database.
async fn database_outside(data: &str) -> Cluster {
    let mut arguments = vec!["up", "--data-dir", data];
    for listen in ["--device-listen", "--http-listen", "--admin-listen"] {
        arguments.extend([listen, "127.0.0.1:0"]);
    }
    let mut up = Program::start(&arguments, &[]);
    let cluster = fs::read_link(Path::new(data).join("postgres")).unwrap();
    up.terminate();
    assert_eq!(up.exit_code(STOP_TIMEOUT).await, Some(0));
    Cluster(cluster.parent().unwrap().to_owned())
}

/// The folder of a database outside its data folder, which is removed also when the test fails.
struct Cluster(PathBuf);

impl Drop for Cluster {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn line_about_databases_whose_data_folder_is_gone() {
    let elsewhere = DataFolder::new();
    if !nix::unistd::geteuid().is_root() {
        Report::of(&elsewhere, &[]).passes("databases of up", "");
        eprintln!("skipped: only root has databases outside of data folders");
        return;
    }
    let private = tempfile::tempdir().unwrap();
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(private.path(), closed).unwrap();
    let data = private.path().join("my data");
    let cluster = database_outside(data.to_str().unwrap()).await;
    let shown = cluster.0.display().to_string();
    let names = |report: &Report| {
        report.line("databases of up")["detail"]
            .to_string()
            .contains(&shown)
    };
    assert!(!names(&Report::of(&elsewhere, &[])));

    // A data folder that was moved still has its database.
    let moved = private.path().join("moved");
    fs::rename(&data, &moved).unwrap();
    let of_moved = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
        command.args(arguments).arg("--data-dir").arg(&moved);
        command.env_remove("DATABASE_URL").env_remove("REDIS_URL");
        command
    };
    assert!(!names(&Report::from(&mut of_moved(&["doctor", "--json"]))));
    // The next start notes where it is.
    let again = database_outside(moved.to_str().unwrap()).await;
    assert_eq!(std::mem::ManuallyDrop::new(again).0, cluster.0);
    assert!(!names(&Report::of(&elsewhere, &[])));

    fs::remove_dir_all(&moved).unwrap();
    let report = Report::of(&elsewhere, &[]);
    assert!(names(&report));
    // No other test leaves one behind.
    report.fails("databases of up", &format!("rm -r {shown}`"));
    report.run_remedy("databases of up");
    assert!(!cluster.0.exists());
    Report::of(&elsewhere, &[]).passes("databases of up", "none without its data folder");
}

#[tokio::test(flavor = "multi_thread")]
async fn database_is_inside_a_data_folder_that_its_user_reaches() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    assert!(folder.cluster().starts_with(folder.path()));
    up.terminate();
    assert_eq!(up.exit_code(STOP_TIMEOUT).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_about_postgres_and_its_keys() {
    let folder = DataFolder::new();
    let database = Database::create(&format!("doctor_{}", std::process::id())).unwrap();
    let with = ["--database-url", database.url()];
    let with_key = |file: &str, arguments: &[&str]| {
        let file = Path::new(folder.path()).join(file);
        if !file.exists() {
            let key = Command::new("openssl")
                .args(["rand", "-base64", "32"])
                .output();
            fs::write(&file, key.unwrap().stdout).unwrap();
        }
        let key = ["--master-key-file", file.to_str().unwrap()];
        [arguments, &with, &key]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    Report::of(&folder, &with).fails("Postgres", "run `switchboard migrate`");

    let key = with_key("one.key", &[]);
    let key: Vec<&str> = key.iter().map(String::as_str).collect();
    let up = Program::start(&folder.up_arguments(&key), &[]);
    let report = Report::of(&folder, &key);
    report.passes("Postgres", "with row security");
    report.passes("keys in Postgres", "readable with");
    let other = with_key("other.key", &[]);
    let other: Vec<&str> = other.iter().map(String::as_str).collect();
    Report::of(&folder, &other).fails("keys in Postgres", "(--master-key-file)");
    drop(up);

    let nowhere = format!("postgres://postgres@{NOWHERE}/none");
    let report = Report::of(&folder, &["--database-url", &nowhere]);
    report.fails("Postgres", "DATABASE_URL (--database-url)");
    report.passes("keys in Postgres", "no master key is given");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_about_redis_objects_and_programs() {
    let folder = DataFolder::new();
    let redis = RedisServer::start();
    let objects = format!("file://{}", folder.path());
    let report = Report::of(
        &folder,
        &["--redis-url", &redis.url(), "--objects", &objects],
    );
    report.passes("Redis", "messages are delivered");
    report.passes("objects", "is a folder");
    report.passes("PostgreSQL programs", "version ");

    let file = Path::new(folder.path()).join("file");
    fs::write(&file, "").unwrap();
    let nowhere = format!("redis://{NOWHERE}/");
    let objects = format!("file://{}", file.display());
    let report = Report::of(
        &folder,
        &[
            "--redis-url",
            &nowhere,
            "--objects",
            &objects,
            "--postgres-bin-dir",
            folder.path(),
        ],
    );
    report.fails("Redis", "REDIS_URL (--redis-url)");
    report.fails("objects", "SWITCHBOARD_OBJECTS (--objects)");
    report.fails("PostgreSQL programs", "--postgres-bin-dir or DATABASE_URL");
}

/// An API like OpenAI's that accepts the key `good`. Its list of models is at `/v1`, and `/bare` has
/// none.
async fn provider() -> (String, JoinSet<std::io::Result<()>>) {
    async fn authorized(request: Request) -> StatusCode {
        let key = request.headers().get("authorization");
        match key.is_some_and(|key| key == "Bearer good") {
            true => StatusCode::OK,
            false => StatusCode::UNAUTHORIZED,
        }
    }
    async fn embed(request: Request) -> (StatusCode, Json<Value>) {
        let embedding = json!({"data": [{"index": 0, "embedding": [1.0, 0.0]}]});
        (authorized(request).await, Json(embedding))
    }
    let router = Router::new()
        .route("/v1/models", get(authorized))
        .route("/v1/embeddings", post(embed))
        .route("/bare/chat/completions", post(authorized))
        .route("/bare/audio/speech", post(authorized));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(axum::serve(listener, router).into_future());
    (url, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_about_providers() {
    let folder = DataFolder::new();
    let (provider, _server) = provider().await;
    let doctor = |url: &str, key: &str| {
        let mut command = folder.command(&["doctor", "--json"]);
        for service in ["EMBEDDINGS", "COMPLETIONS", "STT", "TTS"] {
            command.env(format!("SWITCHBOARD_{service}_ENDPOINT"), url);
            command.env(format!("SWITCHBOARD_{service}_MODEL"), "m");
        }
        for name in [
            "EMBEDDINGS_KEY",
            "COMPLETIONS_KEY",
            "STT_API_KEY",
            "TTS_API_KEY",
        ] {
            command.env(format!("SWITCHBOARD_{name}"), key);
        }
        for service in ["STT", "TTS"] {
            command.env(format!("SWITCHBOARD_{service}_KIND"), "openai");
        }
        Report::from(&mut command)
    };
    let report = doctor(&format!("{provider}/v1"), "good");
    report.passes("embeddings", "m returns 2 dimensions");
    report.passes("conversations", "default: status 200");
    report.passes("speech recognition", "default: status 200");
    report.passes("speech synthesis", "default: status 200");
    let how = report.line("conversations")["how"].as_str().unwrap();
    assert_eq!(how, format!("GET {provider}/v1/models"));

    let report = doctor(&format!("{provider}/v1"), "revoked");
    report.fails(
        "embeddings",
        "SWITCHBOARD_EMBEDDINGS_ENDPOINT, _MODEL or _KEY",
    );
    report.fails("conversations", "SWITCHBOARD_COMPLETIONS_ENDPOINT and _KEY");
    report.fails(
        "speech recognition",
        "SWITCHBOARD_STT_KIND, _ENDPOINT or _API_KEY",
    );
    report.fails(
        "speech synthesis",
        "SWITCHBOARD_TTS_KIND, _ENDPOINT or _API_KEY",
    );
    let text = format!("{:?}", report.0);
    assert!(
        text.contains("rejects the key: status 401") && !text.contains("revoked"),
        "{text}"
    );

    // Without a list of models, the path of requests decides.
    let report = doctor(&format!("{provider}/bare"), "good");
    report.passes("conversations", "no list of models");
    report.fails("speech recognition", "_API_KEY");
    let report = doctor(&format!("http://{NOWHERE}/v1"), "good");
    report.fails("conversations", "_KEY");

    Report::of(&folder, &[]).passes("conversations", "no provider");
}

#[test]
fn line_about_servers_and_programs_of_speech() {
    let folder = DataFolder::new();
    let servers = |kind: &str, endpoint: &str| {
        let stt = ["--stt-kind", kind, "--stt-endpoint", endpoint];
        Report::of(&folder, &stt)
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    servers("wyoming", &address).passes("speech recognition", "accepts connections");
    servers("wyoming", NOWHERE).fails("speech recognition", "_API_KEY");
    servers("realtime", &format!("ws://{NOWHERE}/v1?key=x"))
        .fails("speech recognition", "_API_KEY");
    servers("command", "sh -c x").passes("speech recognition", "it is /");
    servers("command", "no-such-program").fails("speech recognition", "_API_KEY");
}
