//! `switchboard doctor`: every line of its report, passed and failed.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, which reports the line"
)]

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
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
    certificates::Authority, command::printed, data_folder::DataFolder, database::Database,
    eventually::eventually, redis_server::RedisServer, switchboard::Program, tcp_proxy::TcpProxy,
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

    /// The line is not checked, for a reason with these words.
    fn skips(&self, check: &str, reason: &str) {
        let line = self.line(check);
        assert_eq!(
            (&line["ok"], &line["remedy"]),
            (&Value::Null, &Value::Null),
            "{line}"
        );
        assert!(line["detail"].as_str().unwrap().contains(reason), "{line}");
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

/// Every line that the documentation lists is tested here in each of its states.
#[test]
fn every_line_is_tested_in_its_states() {
    let page = include_str!("../docs/operations.md");
    let table = page.split("| line | what it does |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .map_while(|row| row.strip_prefix("| `"));
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 10, "{rows:?}");
    let tests: String = include_str!("doctor.rs").split_whitespace().collect();
    for row in rows {
        let name = row.split('`').next().unwrap();
        let name: String = name.split_whitespace().collect();
        let can_be_skipped = row.split(" | ").nth(2).unwrap().trim() != "–";
        let states: &[&str] = match can_be_skipped {
            true => &["passes", "fails", "skips"],
            false => &["passes", "fails"],
        };
        for state in states {
            let call = format!(".{state}(\"{name}\",");
            assert!(tests.contains(&call), "no test has {call}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_about_an_up_and_its_webhooks() {
    let folder = DataFolder::new();
    let empty = Report::of(&folder, &[]);
    empty.fails("installation", "--data-dir, --context or --url");
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
    // The settings of the `up` apply, unless others are given.
    Report::of(&folder, &[]).passes("webhooks", "1 reachable, 0 disabled");
    let other = ["--webhooks-allow", "10.0.0.0/8"];
    Report::of(&folder, &other).fails("webhooks", "or the URL");
    drop(receiver);
    Report::of(&folder, &[]).fails("webhooks", "the URL of the webhook");

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
    fs::create_dir(Path::new(folder.path()).join("up.json")).unwrap();
    let damaged = Report::of(&folder, &[]);
    damaged.fails("data folder", "up.json.damaged`");
}

/// Changes a setting that the `up` of the folder has stored.
fn change_setting(folder: &DataFolder, name: &str, value: &str) {
    let file = Path::new(folder.path()).join("up.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    stored["settings"]["values"][name] = json!([value]);
    fs::write(&file, stored.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_an_up_apply_where_they_are_complete_and_valid() {
    let folder = DataFolder::new();
    let file = |name: &str, content: Value| {
        let path = Path::new(folder.path()).join(name);
        fs::write(&path, content.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let endpoint = format!("http://{NOWHERE}/v1");
    let provider =
        json!([{"name": "a", "endpoint": endpoint, "model": "m", "key_env": "DOCTOR_KEY"}]);
    let completions = file("completions.json", provider);
    let arguments = ["--completions-file", &completions, "--json"];
    let key = [("DOCTOR_KEY", "secret".to_owned())];
    let _up = Program::start(&folder.up_arguments(&arguments), &key);

    // The variable is absent here, and so it is not known whether the `up` has the key.
    Report::of(&folder, &[]).skips("conversations", "set DOCTOR_KEY here");
    let mut with_key = folder.command(&["doctor", "--json"]);
    let report = Report::from(with_key.env("DOCTOR_KEY", "secret"));
    report.fails("conversations", "SWITCHBOARD_COMPLETIONS_FILE");
    let report = Report::of(&folder, &arguments[..2]);
    report.fails("conversations", "SWITCHBOARD_COMPLETIONS_FILE");

    let stored = fs::read_to_string(Path::new(folder.path()).join("up.json")).unwrap();
    assert!(stored.contains("\"json\""), "{stored}");
    let plain = folder.run(&["doctor"]).stdout;
    let plain = String::from_utf8(plain).unwrap();
    assert!(plain.starts_with("ok    installation: "), "{plain}");

    let provider =
        json!({"name": "a", "kind": "command", "endpoint": "x", "key_env": "DOCTOR_KEY"});
    let speech = file("speech.json", json!({"stt": [provider]}));
    change_setting(&folder, "speech-file", &speech);
    change_setting(&folder, "objects", "s3://switchboard-doctor");
    let mut without_credentials = folder.command(&["doctor", "--json"]);
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ] {
        without_credentials.env_remove(name);
    }
    let report = Report::from(&mut without_credentials);
    report.skips("speech recognition", "set DOCTOR_KEY here");
    report.skips("objects", "set its AWS_");

    // As another version may store it: here it is out of range.
    change_setting(&folder, "completions-pause-ms", "1");
    let report = Report::of(&folder, &[]);
    let unreadable = "cannot be read by this version";
    for check in ["conversations", "objects", "webhooks", "speech synthesis"] {
        report.skips(check, unreadable);
    }
    report.skips("PostgreSQL programs", unreadable);
    report.passes("HTTP API", "accepts the API key");
}

/// A home folder with a current context of this installation.
fn logged_in(url: &str, key: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut login = Command::new(env!("CARGO_BIN_EXE_switchboard"));
    login.args(["login", url, "--context", "lab", "--key-stdin"]);
    let login = login.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
    printed(login, key, 0);
    home
}

/// `doctor` with a home folder, and without a data folder.
fn doctor_of(home: &tempfile::TempDir, more: &[&str]) -> Report {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
    command.args(["doctor", "--json"]).args(more);
    for name in [
        "DATABASE_URL",
        "REDIS_URL",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    ] {
        command.env_remove(name);
    }
    Report::from(command.env("HOME", home.path()))
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_about_a_context_and_an_address() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    let (url, key) = (up.address("http_url"), up.address("api_key"));
    let home = logged_in(&url, &key);
    let report = doctor_of(&home, &[]);
    report.passes("installation", "context lab");
    report.passes("HTTP API", "accepts the API key");
    report.skips("PostgreSQL programs", "only an `up` on this machine");
    report.skips("embeddings", "run `switchboard doctor` where it runs");
    report.skips("admin port", "use --data-dir");
    report.skips("device port", "use --addr");
    let port = up.address("device_addr");
    doctor_of(&home, &["--addr", &port]).passes("device port", "accepts connections");
    // The key of the context is not sent to another address.
    let report = doctor_of(&home, &["--url", &url]);
    report.passes("installation", "--url");
    report.skips("HTTP API", "no API key is given");
    report.skips("webhooks", "no API key is given");
    let report = doctor_of(&home, &["--api-key", "sb_wrong"]);
    report.fails("HTTP API", "--context lab`");
    // The ports of a data folder are not those of an address.
    let report = Report::of(&folder, &["--url", &url, "--api-key", &key]);
    report.passes("HTTP API", "accepts the API key");
    report.skips("admin port", "use --data-dir");
    report.skips("device port", "use --addr");
    // A data folder that is named comes before the current context.
    let mut local = folder.command(&["doctor", "--json"]);
    let report = Report::from(local.env("HOME", home.path()));
    report.passes("installation", "the `up` of the data folder");
    up.kill();
    doctor_of(&home, &[]).fails("HTTP API", "its --tls-ca");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_authority_is_that_of_the_settings() {
    let authority = Authority::new();
    let certificate = authority.issue(&["127.0.0.1"]);
    let folder = DataFolder::new();
    let up = Program::start(&folder.up_arguments(&certificate.https_flags()), &[]);
    let (url, key) = (up.address("https_url"), up.address("api_key"));
    let named = ["--url", &url, "--api-key", &key];
    Report::of(&folder, &named).fails("HTTP API", "--tls-ca");
    let authority = authority.certificate();
    let trusted = ["--tls-ca", authority.to_str().unwrap()];
    let trusted = [&named[..], &trusted].concat();
    Report::of(&folder, &trusted).passes("HTTP API", "accepts the API key");
}

/// An `up` with a database elsewhere, which becomes unreachable.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_names_what_is_missing_and_its_remedy() {
    let folder = DataFolder::new();
    let database = Database::create(&format!("doctor_away_{}", std::process::id())).unwrap();
    let mut url = reqwest::Url::parse(database.url()).unwrap();
    let port = url.port().unwrap_or(5432);
    let server = url.socket_addrs(|| Some(port)).unwrap()[0];
    let proxy = TcpProxy::start(server).await;
    url.set_port(Some(proxy.address().port())).unwrap();
    url.set_host(Some("127.0.0.1")).unwrap();
    let url = url.to_string();
    let up = Program::start(&folder.up_arguments(&["--database-url", &url]), &[]);
    let report = Report::of(&folder, &[]);
    report.passes("admin port", "reports ready");
    report.skips("Postgres", "set DATABASE_URL here");
    proxy.close();
    let admin = up.address("admin_url");
    let readiness = || async {
        reqwest::get(format!("{admin}/readyz"))
            .await
            .unwrap()
            .status()
    };
    eventually(STOP_TIMEOUT, readiness, |status| !status.is_success()).await;
    let report = Report::of(&folder, &[]);
    report.fails("admin port", "or correct DATABASE_URL (--database-url)");
    let detail = report.line("admin port")["detail"].as_str().unwrap();
    assert!(detail.contains("not ready: postgres ("), "{detail}");
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
    // Another user may not list the databases of root.
    let mut other = elsewhere.command(&["doctor", "--json"]);
    let report = Report::from(other.uid(65534).gid(65534));
    report.skips("databases of up", "only root");
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
    // The last `up` of the folder had a master key.
    report.fails("keys in Postgres", "DATABASE_URL (--database-url)");
    let report = Report::of(&DataFolder::new(), &["--database-url", &nowhere]);
    report.skips("keys in Postgres", "no master key is given");
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

/// An `up` has providers that `doctor` is not started with: it uses them as far as they are no secret.
#[tokio::test(flavor = "multi_thread")]
async fn providers_are_those_of_the_running_up() {
    let folder = DataFolder::new();
    let (provider, _server) = provider().await;
    let url = format!("{provider}/v1");
    let mut with: Vec<(String, String)> = Vec::new();
    for (service, key) in [
        ("EMBEDDINGS", "KEY"),
        ("COMPLETIONS", "KEY"),
        ("STT", "API_KEY"),
        ("TTS", "API_KEY"),
    ] {
        with.push((format!("SWITCHBOARD_{service}_ENDPOINT"), url.clone()));
        with.push((format!("SWITCHBOARD_{service}_MODEL"), "m".to_owned()));
        with.push((format!("SWITCHBOARD_{service}_{key}"), "good".to_owned()));
    }
    for service in ["STT", "TTS"] {
        with.push((format!("SWITCHBOARD_{service}_KIND"), "openai".to_owned()));
    }
    let environment: Vec<_> = with
        .iter()
        .map(|(name, value)| (&**name, value.clone()))
        .collect();
    let _up = Program::start(&folder.up_arguments(&[]), &environment);
    let stored = fs::read_to_string(Path::new(folder.path()).join("up.json")).unwrap();
    assert!(
        stored.contains(&url) && !stored.contains("\"good\""),
        "{stored}"
    );
    let report = Report::of(&folder, &[]);
    report.skips("embeddings", "set SWITCHBOARD_EMBEDDINGS_KEY here");
    report.skips("conversations", "set SWITCHBOARD_COMPLETIONS_KEY here");
    report.skips("speech recognition", "set SWITCHBOARD_STT_API_KEY here");
    report.skips("speech synthesis", "set SWITCHBOARD_TTS_API_KEY here");
    let mut command = folder.command(&["doctor", "--json"]);
    command.env("SWITCHBOARD_COMPLETIONS_KEY", "good");
    Report::from(&mut command).passes("conversations", "default: status 200");
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
