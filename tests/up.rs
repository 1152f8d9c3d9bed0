//! `switchboard up` from an empty folder, after a crash, and with startup conflicts.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, which reports the line"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Output, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use switchboard_runtime::outbound;
use switchboard_test_support::{
    certificates::Authority,
    data_folder::{DataFolder, processes_in},
    eventually::eventually_true,
    switchboard::Program,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt as _, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::ChildStdout,
    time::timeout,
};
use tokio_rustls::TlsConnector;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts an `up` that must fail. Returns its exit code and output.
async fn run_failing_up(folder: &DataFolder, more: &[&str]) -> (i32, String) {
    let mut program = Program::launch(&folder.up_arguments(more), &[]);
    let code = program.exit_code(START_TIMEOUT).await.unwrap();
    (code, program.logged())
}

/// Repeats a command until it has this exit code.
fn run_until(folder: &DataFolder, arguments: &[&str], code: i32, within: Duration) -> Output {
    let deadline = Instant::now() + within;
    loop {
        let output = folder.run(arguments);
        if output.status.code() == Some(code) {
            return output;
        }
        let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            Instant::now() < deadline,
            "{arguments:?} still exits with {:?}: {output_text}",
            output.status
        );
    }
}

/// A `switchboard device` that is online.
async fn device(folder: &DataFolder, more: &[&str]) -> tokio::process::Child {
    let mut command = folder.command(&["device"]);
    command.args(more).stdout(Stdio::piped());
    let mut child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(START_TIMEOUT, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["event"], "online", "{line}");
    child
}

fn postmaster(folder: &DataFolder) -> nix::unistd::Pid {
    let file = fs::read_to_string(folder.cluster().join("postmaster.pid")).unwrap();
    nix::unistd::Pid::from_raw(file.lines().next().unwrap().parse().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[tokio::test]
async fn up_in_empty_folder_works_and_stops_cleanly() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    for (field, start) in [
        ("device_addr", "127.0.0.1:"),
        ("http_url", "http://127.0.0.1:"),
        ("admin_url", "http://127.0.0.1:"),
        ("org_id", "org_"),
        ("api_key", "sb_"),
    ] {
        assert!(
            up.address(field).starts_with(start),
            "{field} of {}",
            up.ready
        );
    }

    let demo = device(&folder, &[]).await;
    let called = folder.run(&[
        "call",
        "demo-1",
        "get_current_time",
        r#"{"format":"simple"}"#,
    ]);
    assert_eq!(called.status.code(), Some(0), "{}", text(&called.stderr));
    let time: String = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(time.len(), "2025-01-22 14:30:25".len(), "{time}");
    for (service, params, code) in [
        ("echo", r#"{"text":"你好 ##END"}"#, 0),
        (
            "create_file",
            r#"{"filename":"../outside","content":""}"#,
            1,
        ),
        ("get_current_time", r#"{"format":"vague"}"#, 2),
        ("dance", "{}", 3),
    ] {
        let called = folder.run(&["call", "demo-1", service, params]);
        assert_eq!(
            called.status.code(),
            Some(code),
            "{service}: {}",
            text(&called.stderr)
        );
    }
    assert_eq!(
        folder.run(&["call", "nobody", "echo"]).status.code(),
        Some(3)
    );
    let doctor = folder.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(0), "{}", text(&doctor.stdout));
    assert!(text(&doctor.stdout).contains("embeddings: not configured"));
    drop(demo);
    run_until(
        &folder,
        &["call", "demo-1", "echo", r#"{"text":"x"}"#],
        4,
        START_TIMEOUT,
    );

    let cluster = folder.cluster();
    assert!(!processes_in(&cluster).is_empty());
    up.terminate();
    assert_eq!(up.exit_code(START_TIMEOUT).await, Some(0));
    assert_eq!(processes_in(&cluster), Vec::<String>::new());
    assert!(!cluster.join("postmaster.pid").exists());
    assert_eq!(
        folder.run(&["call", "demo-1", "echo"]).status.code(),
        Some(9)
    );
}

#[tokio::test]
async fn async_calls_are_returned_by_id() {
    let folder = DataFolder::new();
    let _up = folder.up();
    let echo = ["call", "demo-1", "echo", r#"{"text":"x"}"#];
    let kept = folder.run(&[&echo[..], &["--queued", "--expires-in-ms", "600000"]].concat());
    assert_eq!(kept.status.code(), Some(0), "{}", text(&kept.stderr));
    let id = text(&kept.stdout).trim().to_owned();
    assert_eq!(folder.run(&["calls", "show", &id]).status.code(), Some(11));

    let _demo = device(&folder, &[]).await;
    let waited = folder.run(&["calls", "show", &id, "--wait"]);
    assert_eq!(waited.status.code(), Some(0), "{}", text(&waited.stderr));
    let ended: Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(ended["outcome"], "succeeded");
    let gone = "call_0000000000000000000000000000abcd";
    assert_eq!(folder.run(&["calls", "show", gone]).status.code(), Some(9));
    // Synchronous calls are in the journal.
    assert_eq!(folder.run(&echo).status.code(), Some(0));
    let deadline = Instant::now() + START_TIMEOUT;
    let recent = loop {
        let recent = folder.run(&["calls", "recent", "--device", "demo-1", "-o", "json"]);
        let recent: Value = serde_json::from_slice(&recent.stdout).unwrap();
        if recent != serde_json::json!([]) {
            break recent;
        }
        assert!(Instant::now() < deadline, "the journal is empty");
    };
    assert_eq!(
        (&recent[0]["service"], &recent[0]["outcome"]),
        (&"echo".into(), &"succeeded".into())
    );
    let kept = folder.run(&["call", "demo-1", "dance", "--async"]);
    let id = text(&kept.stdout).trim().to_owned();
    let waited = folder.run(&["calls", "show", &id, "--wait"]);
    assert_eq!(waited.status.code(), Some(3), "{}", text(&waited.stderr));
}

#[tokio::test]
async fn up_after_kill_restores_state() {
    let folder = DataFolder::new();
    let mut first = folder.up();
    let orphan = postmaster(&folder);
    first.kill();
    // Its PostgreSQL is still running and does not block the next start.
    assert!(nix::sys::signal::kill(orphan, None).is_ok());
    let mut second = folder.up();
    assert_ne!(postmaster(&folder), orphan);
    for field in ["org_id", "api_key"] {
        assert_eq!(first.address(field), second.address(field));
    }
    let online = device(&folder, &[]).await;
    run_until(
        &folder,
        &["call", "demo-1", "echo", r#"{"text":"x"}"#],
        0,
        START_TIMEOUT,
    );
    drop(online);
    second.terminate();
    assert_eq!(second.exit_code(START_TIMEOUT).await, Some(0));
}

#[tokio::test]
async fn picture_survives_kill() {
    let folder = DataFolder::new();
    let mut first = folder.up();
    // Larger than every other body may be.
    let mut picture = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0".to_vec();
    picture.resize(3 * 1024 * 1024, 7);
    let client = reqwest::Client::new();
    let sent = client
        .post(format!("{}/v1/pictures", first.address("http_url")))
        .bearer_auth(first.address("api_key"))
        .body(picture.clone());
    let sent: Value = sent.send().await.unwrap().json().await.unwrap();
    let id = sent["id"].as_str().unwrap();
    first.kill();
    let second = folder.up();
    let content = client
        .get(format!(
            "{}/v1/pictures/{id}/content",
            second.address("http_url")
        ))
        .bearer_auth(second.address("api_key"));
    let content = content.send().await.unwrap();
    assert_eq!(content.status(), 200);
    assert_eq!(content.bytes().await.unwrap(), picture);
}

#[tokio::test]
async fn npcs_are_created_shown_and_deleted() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    let run = |arguments: &[&str], code: i32| {
        let output = folder.run(&[&["npcs"], arguments].concat());
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        let output_text = if code == 0 {
            output.stdout
        } else {
            output.stderr
        };
        text(&output_text).trim_end().to_owned()
    };
    let id = run(
        &["create", r#"{"name":"小白"}"#, "--device-id", "toy-1,toy-2"],
        0,
    );
    assert!(id.starts_with("npc_"), "{id}");
    let line = format!("{id}\t小白\t-\ttoy-1,toy-2");
    assert_eq!(run(&["list"], 0), line);
    assert_eq!(run(&["list", "--device-id", "toy-2"], 0), line);
    assert_eq!(run(&["list", "--device-id", "toy-3"], 0), "");
    let shown: Value = serde_json::from_str(&run(&["show", &id], 0)).unwrap();
    assert_eq!(
        (&shown["id"], &shown["effective"]["name"]),
        (&id.as_str().into(), &"小白".into())
    );
    let listed: Value = serde_json::from_str(&run(&["list", "--json"], 0)).unwrap();
    assert_eq!(listed, shown);
    let taken = run(&["create", r#"{"name":"B"}"#, "--device-id", "toy-1"], 1);
    assert!(taken.contains(&id) && taken.contains("409"), "{taken}");
    assert!(run(&["create"], 1).contains("`/overrides/name` is required"));
    assert!(run(&["create", "[]"], 64).contains("JSON object"));
    assert!(run(&["create", "--template-version", "1"], 64).contains("--template"));
    run(&["delete", &id], 0);
    assert!(run(&["delete", &id], 1).contains("404"));
    assert_eq!(run(&["list"], 0), "");
    up.terminate();
    assert_eq!(up.exit_code(START_TIMEOUT).await, Some(0));
}

#[tokio::test]
async fn killed_postgres_is_restarted_within_seconds() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    let before = postmaster(&folder);
    nix::sys::signal::kill(before, nix::sys::signal::Signal::SIGKILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let restarted = || {
        let file = fs::read_to_string(folder.cluster().join("postmaster.pid")).unwrap_or_default();
        file.lines()
            .next()
            .is_some_and(|pid| pid != before.to_string())
            && file
                .lines()
                .nth(7)
                .is_some_and(|status| status.trim() == "ready")
    };
    while !restarted() {
        assert!(Instant::now() < deadline, "{}", up.logged());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    run_until(
        &folder,
        &["token", "--device", "toy-1"],
        0,
        Duration::from_secs(5),
    );
    up.terminate();
    assert_eq!(up.exit_code(START_TIMEOUT).await, Some(0));
}

#[tokio::test]
async fn startup_conflicts_are_named() {
    let folder = DataFolder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let empty = tempfile::tempdir().unwrap();
    let config = empty.path().join("switchboard.toml");
    fs::write(&config, "device-listne = \"127.0.0.1:1\"\n").unwrap();
    let none = empty.path().join("none");
    let check = async |more: &[&str], code: i32, text: &[&str]| {
        let (got, output_text) = run_failing_up(&folder, more).await;
        assert_eq!(got, code, "{more:?}: {output_text}");
        for word in text {
            assert!(
                output_text.contains(word),
                "{more:?}: {word} is not in {output_text}"
            );
        }
    };
    let config = config.to_str().unwrap();
    check(&["--config", config], 64, &["device-listne"]).await;
    check(
        &["--device-heartbeat-s", "soon"],
        64,
        &["--device-heartbeat-s"],
    )
    .await;
    check(
        &["--postgres-bin-dir", none.to_str().unwrap()],
        69,
        &["Install it", "DATABASE_URL"],
    )
    .await;
    check(
        &["--database-url", "postgres://x:port/y"],
        64,
        &["DATABASE_URL"],
    )
    .await;

    let mut arguments = folder.up_arguments(&[]);
    let position = arguments
        .iter()
        .position(|argument| *argument == "--http-listen")
        .unwrap();
    arguments[position + 1] = &address;
    let mut program = Program::launch(&arguments, &[]);
    assert_eq!(program.exit_code(START_TIMEOUT).await, Some(1));
    let output_text = program.logged();
    assert!(
        output_text.contains(&address) && output_text.contains("--http-listen"),
        "{output_text}"
    );
}

#[tokio::test]
async fn lost_master_key_is_named() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    let file = Path::new(folder.path()).join("master.key");
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let key = fs::read_to_string(&file).unwrap();
    assert!(!up.logged().contains(key.trim()));
    up.terminate();
    assert_eq!(up.exit_code(START_TIMEOUT).await, Some(0));

    fs::remove_file(&file).unwrap();
    let (code, log) = run_failing_up(&folder, &[]).await;
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("master.key is missing"), "{log}");
    assert!(log.contains("is encrypted with the master key"), "{log}");
    assert!(!file.exists(), "no other key is created");

    fs::write(&file, key).unwrap();
    let _up = folder.up();
    let token = folder.run(&["token", "--scope", "read"]);
    assert_eq!(token.status.code(), Some(0), "{}", text(&token.stderr));
}

#[tokio::test]
async fn second_instance_in_folder_is_rejected() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    let (code, output_text) = run_failing_up(&folder, &[]).await;
    assert_eq!(code, 1, "{output_text}");
    assert!(
        output_text.contains(&up.pid().to_string()) && output_text.contains("--data-dir"),
        "{output_text}"
    );
    up.terminate();
    assert_eq!(up.exit_code(START_TIMEOUT).await, Some(0));
}

#[tokio::test]
async fn device_runs_commands_of_file() {
    let folder = DataFolder::new();
    let mut up = folder.up();
    let file = Path::new(folder.path()).join("services.json");
    let services = r#"{"services":{"shout":{"description":"Say it louder",
        "parameters":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]},
        "command":["tr","a-z","A-Z"]}}}"#;
    fs::write(&file, services).unwrap();
    let online = device(
        &folder,
        &["--id", "loud", "--services", file.to_str().unwrap()],
    )
    .await;
    let called = folder.run(&["call", "loud", "shout", r#"{"text":"hey"}"#]);
    assert_eq!(
        text(&called.stdout),
        r#"{"TEXT":"HEY"}"#,
        "{}",
        text(&called.stderr)
    );
    assert_eq!(
        folder.run(&["call", "loud", "shout", "{}"]).status.code(),
        Some(2)
    );

    fs::write(&file, r#"{"services":{"a":{"description":"d","parameters":{"type":"nonsense"},"command":["true"]}}}"#)
        .unwrap();
    let refused = folder.run(&["device", "--services", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    drop(online);
    up.terminate();
    assert_eq!(up.exit_code(START_TIMEOUT).await, Some(0));
}

/// A device with these services, each given with its command and further members.
async fn command_device(
    folder: &DataFolder,
    id: &str,
    services: &[(&str, Value)],
) -> tokio::process::Child {
    let file = Path::new(folder.path()).join(format!("{id}.json"));
    let mut all = serde_json::Map::new();
    for (name, members) in services {
        let mut service = json!({"description": "d", "parameters": {"type": "object"}});
        let members = members.as_object().unwrap().clone();
        service.as_object_mut().unwrap().extend(members);
        all.insert((*name).to_owned(), service);
    }
    fs::write(&file, json!({"services": all}).to_string()).unwrap();
    device(folder, &["--id", id, "--services", file.to_str().unwrap()]).await
}

#[tokio::test]
async fn text_of_a_device_does_not_control_the_terminal() {
    let folder = DataFolder::new();
    let _up = folder.up();
    let steering = r"\033]0;pwned\007\033[2J\302\23331m\342\200\256\177";
    let error = format!("printf '{steering}' >&2; exit 1");
    let data = r#""\302\23331m\342\200\256\177""#;
    let services = [
        ("error", json!({"command": ["sh", "-c", error]})),
        ("data", json!({"command": ["printf", data]})),
    ];
    let _online = command_device(&folder, "evil", &services).await;
    let failed = folder.run(&["call", "evil", "error"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(
        text(&failed.stderr),
        r"switchboard: \u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{7f}"
    );
    let succeeded = folder.run(&["call", "evil", "data"]);
    assert_eq!(text(&succeeded.stdout), r#""\u009b31m\u202e\u007f""#);
}

#[tokio::test]
async fn command_of_a_service_inherits_named_variables_only() {
    let folder = DataFolder::new();
    let _up = folder.up();
    let named = "CARGO_MANIFEST_DIR";
    let members = json!({"command": ["env"], "env": [named, "SWITCHBOARD_ABSENT"]});
    let _online = command_device(&folder, "envious", &[("environment", members)]).await;
    let printed = folder.run(&["call", "envious", "environment"]);
    let printed: String = serde_json::from_slice(&printed.stdout).unwrap();
    let names = printed.lines().filter_map(|line| line.split_once('='));
    let names: Vec<_> = names.map(|(name, _)| name).collect();
    assert!(
        names.contains(&"PATH") && names.contains(&named),
        "{printed}"
    );
    let allowed = [
        "PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ", named,
    ];
    assert!(names.iter().all(|name| allowed.contains(name)), "{printed}");
}

/// A command on a terminal of its own. What it prints is on stdout; what is written to stdin is typed.
fn on_terminal(command: &str) -> tokio::process::Command {
    // A shell that waits for the command dies of its Ctrl-C, and hides the exit code.
    let command = format!("exec {command}");
    let mut script = tokio::process::Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    script
}

/// A program on a terminal, and what it has printed.
struct Terminal {
    child: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    printed: String,
}

impl Terminal {
    fn start(mut command: tokio::process::Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            printed: String::new(),
        }
    }

    /// Waits until this is printed; returns everything that is.
    async fn read_until(&mut self, part: &str) -> &str {
        while !self.printed.contains(part) {
            let line = timeout(START_TIMEOUT, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no {part}: {}", self.printed));
            let line = line.unwrap();
            let line = line.unwrap_or_else(|| panic!("no {part}: {}", self.printed));
            self.printed.push_str(&line);
            self.printed.push('\n');
        }
        &self.printed
    }

    async fn press_ctrl_c(&mut self) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(&[3]).await.unwrap();
    }

    async fn exit_code(&mut self) -> Option<i32> {
        let ended = timeout(START_TIMEOUT, self.child.wait()).await;
        ended.unwrap().unwrap().code()
    }
}

/// An `up` on a terminal. It waits longer than a test for what is in progress.
fn up_on_terminal(data_folder: &str, more: &str) -> Terminal {
    let ports = ["--device-listen", "--http-listen", "--admin-listen"];
    let ports = ports.map(|port| format!("{port} 127.0.0.1:0")).join(" ");
    let program = env!("CARGO_BIN_EXE_switchboard");
    Terminal::start(on_terminal(&format!(
        "{program} up --data-dir '{data_folder}' {ports} --drain-timeout-s 3600 {more}"
    )))
}

#[tokio::test]
async fn person_reads_a_summary_without_the_key() {
    let folder = DataFolder::new();
    let data = format!("{}/my data", folder.path());
    let mut up = up_on_terminal(&data, "");
    let start = up
        .read_until("README.md has the next steps")
        .await
        .to_owned();
    for part in [
        "database started: ",
        "migrations applied: ",
        "Switchboard is ready",
        "device --id toy-1 --data-dir ",
    ] {
        assert!(start.contains(part), "{start}");
    }
    assert!(!start.contains("sb_"), "{start}");
    // What a person pastes.
    let paste = start
        .lines()
        .find(|line| line.contains(" doctor --data-dir "));
    let paste = paste.and_then(|line| line.split('`').nth(1)).unwrap();
    let mut doctor = std::process::Command::new("sh");
    doctor.args(["-c", paste]);
    doctor.env_remove("DATABASE_URL").env_remove("REDIS_URL");
    let doctor = doctor.output().unwrap();
    assert!(doctor.status.success(), "{}", text(&doctor.stdout));
    up.press_ctrl_c().await;
    let idle = "nothing is in progress. Another Ctrl-C stops at once.";
    up.read_until(idle).await;
    assert_eq!(up.exit_code().await, Some(0));

    let mut up = up_on_terminal(&data, "--json");
    up.read_until(r#""event":"ready""#).await;
    up.press_ctrl_c().await;
    up.exit_code().await;
}

/// The second signal arrives while the process drains, or while it still serves.
#[tokio::test]
async fn second_ctrl_c_stops_at_once_during_a_call() {
    for leave in ["--leave-ms 0", "--leave-ms 60000"] {
        let folder = DataFolder::new();
        let patient = format!("--device-drain-timeout-ms 3600000 {leave}");
        let mut up = up_on_terminal(folder.path(), &patient);
        up.read_until("README.md has the next steps").await;
        let working = Path::new(folder.path()).join("working");
        // It ends with the folder.
        let work = format!(
            "touch {0}; while test -e {0}; do sleep 0.1; done",
            working.display()
        );
        let members = json!({"command": ["sh", "-c", work], "timeout_ms": 300_000});
        let _online = command_device(&folder, "busy", &[("work", members)]).await;
        let mut call = folder.command(&["call", "busy", "work", "--timeout-ms", "300000"]);
        let mut call = call.stderr(Stdio::null()).spawn().unwrap();
        eventually_true("the call is in progress", || working.exists()).await;
        up.press_ctrl_c().await;
        let waits =
            "waiting up to 3600 s for 1 call of a device and 1 HTTP request. Another Ctrl-C";
        up.read_until(waits).await;
        up.press_ctrl_c().await;
        assert_eq!(up.exit_code().await, Some(0));
        call.wait().unwrap();
    }
}

#[tokio::test]
async fn device_shows_its_calls_in_color_on_a_terminal_only() {
    let folder = DataFolder::new();
    let _up = folder.up();
    let program = env!("CARGO_BIN_EXE_switchboard");
    let echo = |id: &str| folder.run(&["call", id, "echo", r#"{"text":"x"}"#]);
    for (id, no_color, expected) in [
        ("plain", "1", "echo succeeded in "),
        ("colored", "", "echo \u{1b}[32msucceeded\u{1b}[0m in "),
    ] {
        let command = format!("{program} device --id {id} --data-dir {}", folder.path());
        let mut command = on_terminal(&command);
        command.env("NO_COLOR", no_color).env("TERM", "xterm");
        let mut device = Terminal::start(command);
        device.read_until(r#""event":"online""#).await;
        assert_eq!(echo(id).status.code(), Some(0));
        device.read_until(expected).await;
        device.press_ctrl_c().await;
        device.exit_code().await;
    }
    let command = folder.command(&["device", "--id", "piped"]);
    let mut device = tokio::process::Command::from(command)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(device.stderr.take().unwrap()).lines();
    run_until(
        &folder,
        &[
            "call",
            "piped",
            "create_file",
            r#"{"filename":"../x","content":""}"#,
        ],
        1,
        START_TIMEOUT,
    );
    loop {
        let line = timeout(START_TIMEOUT, lines.next_line()).await.unwrap();
        let line = line.unwrap().expect("the line of the call");
        if line.starts_with("create_file failed in ") {
            assert!(
                line.contains(" (call …") && !line.contains('\u{1b}'),
                "{line}"
            );
            break;
        }
    }
}

#[tokio::test]
async fn body_over_the_limit_is_refused_with_both_sizes() {
    let folder = DataFolder::new();
    let limit = ["--http-body-limit-bytes", "50000"];
    let _up = Program::start(&folder.up_arguments(&limit), &[]);
    let params = json!({"text": "x".repeat(60_000)}).to_string();
    let refused = folder.run(&["call", "demo-1", "echo", &params]);
    let printed = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(9), "{printed}");
    let sizes = format!(
        "{} bytes; at most 50000 bytes are accepted",
        params.len() + 28
    );
    assert!(printed.contains(&sizes), "{printed}");
}

#[tokio::test]
async fn tls_port_for_http_negotiates_the_version() {
    let authority = Authority::new();
    let certificate = authority.issue(&["127.0.0.1"]);
    let folder = DataFolder::new();
    let up = Program::start(&folder.up_arguments(&certificate.https_flags()), &[]);
    let url = up.address("https_url");
    let trusted = CertificateDer::from_pem_file(authority.certificate()).unwrap();
    for (offered, chosen) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let mut config = outbound::tls_config(Some(vec![trusted.clone()])).unwrap();
        config.alpn_protocols = offered
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let address = url.strip_prefix("https://").unwrap();
        let socket = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, socket);
        let mut stream = timeout(START_TIMEOUT, connecting).await.unwrap().unwrap();
        let negotiated = stream.get_ref().1.alpn_protocol().map(text);
        assert_eq!(negotiated.as_deref(), chosen);
        if chosen != Some("h2") {
            let request = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut answer = String::new();
            let read = timeout(START_TIMEOUT, stream.read_to_string(&mut answer)).await;
            read.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        }
    }
    let (code, logged) = run_failing_up(
        &DataFolder::new(),
        &["--http-tls-cert", "/nowhere", "--http-tls-key", "/nowhere"],
    )
    .await;
    assert_eq!(code, 64, "{logged}");
    let named = "--http-tls-cert, --http-tls-key: cannot read a certificate chain from /nowhere";
    assert!(logged.contains(named), "{logged}");
}
