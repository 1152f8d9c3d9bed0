//! The command line of a running `switchboard up`: contexts, the commands of the API, their output,
//! and completions.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, which reports the line"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use switchboard_test_support::{
    command::printed, data_folder::DataFolder, eventually::eventually, switchboard::Program,
    tcp_proxy::TcpProxy,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    time::timeout,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_switchboard");
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a test waits for the effect of one attempt before the next one.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);
/// The question of `switchboard login`.
const SECRET_QUESTION: &str = "API key: ";

/// A running `up`, and a home folder in which nothing is stored yet.
struct Machine {
    folder: DataFolder,
    up: Program,
    home: tempfile::TempDir,
}

impl Machine {
    fn start() -> Self {
        let folder = DataFolder::new();
        let up = folder.up();
        let home = tempfile::tempdir().unwrap();
        Self { folder, up, home }
    }

    /// A command that knows neither the data folder nor a context.
    fn bare(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .env("HOME", self.home.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::null());
        command
    }

    /// The stdout of a command against the running `up`, or its stderr if `code` is not 0.
    fn run(&self, arguments: &[&str], code: i32) -> String {
        let mut command = self.bare(arguments);
        printed(
            command.env("SWITCHBOARD_DATA_DIR", self.folder.path()),
            "",
            code,
        )
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(arguments, 0)).unwrap()
    }

    fn create_npc(&self, name: &str) -> String {
        let settings = json!({"name": name, "persona": {"role": "a dog"}}).to_string();
        self.run(&["npcs", "create", &settings], 0)
    }

    async fn device(&self, id: &str) -> tokio::process::Child {
        let mut command =
            tokio::process::Command::from(self.folder.command(&["device", "--id", id]));
        let mut child = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(WAIT_TIMEOUT, lines.next_line())
            .await
            .unwrap()
            .unwrap();
        assert!(line.unwrap().contains("online"));
        child
    }
}

/// Waits until the terminal does not show what is typed: the question is there before.
async fn echo_is_off(terminal: &str) {
    let settings = || async {
        let settings = Command::new("stty").args(["-F", terminal, "-a"]).output();
        String::from_utf8_lossy(&settings.unwrap().stdout).into_owned()
    };
    eventually(WAIT_TIMEOUT, settings, |settings| {
        settings.contains("-echo ")
    })
    .await;
}

/// What a command prints on a terminal of its own, on which `typed` is typed once `question` is there.
async fn on_terminal(machine: &Machine, arguments: &[&str], question: &str, typed: &str) -> String {
    let words = shlex::try_join(arguments.iter().copied()).unwrap();
    shell_on_terminal(
        machine,
        &format!("tty; exec {PROGRAM} {words}"),
        question,
        typed,
    )
    .await
}

/// As [`on_terminal`], of a shell that prints the name of the terminal first. `-TERM` is no text but a
/// signal to the process with the printed id.
async fn shell_on_terminal(
    machine: &Machine,
    command: &str,
    question: &str,
    typed: &str,
) -> String {
    let mut script = tokio::process::Command::new("script")
        .args(["--quiet", "--return", "--command", command, "/dev/null"])
        .env("SWITCHBOARD_DATA_DIR", machine.folder.path())
        .env("HOME", machine.home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut out = script.stdout.take().unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    let mut is_typed = false;
    loop {
        let read = timeout(WAIT_TIMEOUT, out.read(&mut buffer)).await;
        let read = read
            .unwrap_or_else(|_| panic!("no {question}: {text}"))
            .unwrap();
        if read == 0 {
            return text;
        }
        text += &String::from_utf8_lossy(&buffer[..read]);
        if !is_typed && !question.is_empty() && text.contains(question) {
            is_typed = true;
            if question == SECRET_QUESTION {
                echo_is_off(text.split_whitespace().next().unwrap()).await;
            }
            if typed.starts_with('-') {
                let pid = text.split('=').nth(1).unwrap();
                let sent = Command::new("kill").args([typed, pid]).status();
                assert!(sent.unwrap().success());
                continue;
            }
            script
                .stdin
                .as_mut()
                .unwrap()
                .write_all(typed.as_bytes())
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn contexts_are_verified_and_private() {
    let machine = Machine::start();
    let url = machine.up.address("http_url").to_owned();
    let key = machine.up.address("api_key").to_owned();
    let file = machine
        .home
        .path()
        .join(".config/switchboard/contexts.json");
    let nothing = printed(&mut machine.bare(&["devices", "list"]), "", 64);
    assert!(nothing.contains("switchboard login"), "{nothing}");

    let wrong = printed(
        &mut machine.bare(&["login", &url, "--key-stdin"]),
        "sb_wrong\n",
        1,
    );
    assert!(
        wrong.contains("nothing was stored") && !file.exists(),
        "{wrong}"
    );
    let login = ["login", &url, "--key-stdin", "--context", "lab"];
    let stored = printed(&mut machine.bare(&login), &format!("{key}\n"), 0);
    assert!(stored.starts_with("context lab: "), "{stored}");
    assert!(!stored.contains(&key), "{stored}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));

    let mut status = machine.bare(&["status"]);
    let status: Value = serde_json::from_str(&printed(&mut status, "", 0)).unwrap();
    assert_eq!(status["address"], format!("{url} (context lab)"));
    // The variable is read, and the name is that of the address.
    printed(
        machine
            .bare(&["login", &url])
            .env("SWITCHBOARD_API_KEY", &key),
        "",
        0,
    );
    let host = url.strip_prefix("http://").unwrap();
    let list = printed(&mut machine.bare(&["contexts", "list"]), "", 0);
    assert_eq!(list, format!("{host}\ttrue\t{url}\nlab\tfalse\t{url}"));
    assert!(!list.contains(&key));

    // Flags win, and an error names the place of the address.
    let dead = "http://127.0.0.1:1";
    let flag = ["status", "--url", dead, "--api-key", "sb_x"];
    let error = printed(&mut machine.bare(&flag), "", 1);
    assert!(
        error.contains("http://127.0.0.1:1 (--url or SWITCHBOARD_URL)"),
        "{error}"
    );
    // A stored key is not sent to another address.
    let error = printed(&mut machine.bare(&["status", "--url", dead]), "", 64);
    assert!(error.contains("no API key"), "{error}");
    let unknown = printed(&mut machine.bare(&["status", "--context", "nope"]), "", 64);
    assert!(
        unknown.contains("no context nope: there are ") && unknown.contains("lab"),
        "{unknown}"
    );
    let of_up = machine.json(&["status"]);
    let place = of_up["address"].as_str().unwrap();
    assert!(place.contains("`up` on"), "{place}");

    printed(&mut machine.bare(&["contexts", "use", "lab"]), "", 0);
    printed(&mut machine.bare(&["contexts", "remove", "lab"]), "", 0);
    printed(&mut machine.bare(&["contexts", "use", "lab"]), "", 64);
    printed(&mut machine.bare(&["status"]), "", 64);
    printed(&mut machine.bare(&["status", "--context", host]), "", 0);
}

#[tokio::test]
async fn key_is_typed_without_being_shown() {
    let machine = Machine::start();
    let url = machine.up.address("http_url").to_owned();
    let key = machine.up.address("api_key").to_owned();
    let shown = on_terminal(
        &machine,
        &["login", &url],
        SECRET_QUESTION,
        &format!("{key}\r"),
    )
    .await;
    assert!(shown.contains("context 127.0.0.1:"), "{shown}");
    assert!(!shown.contains(&key), "{shown}");
}

/// The shell survives, and prints the exit code and the settings of the terminal.
#[tokio::test]
async fn terminal_shows_what_is_typed_after_every_way_out_of_a_question() {
    let machine = Machine::start();
    let url = machine.up.address("http_url").to_owned();
    let key = machine.up.address("api_key").to_owned();
    let answer = format!("{key}\r");
    // Ctrl-C, Ctrl-\, Ctrl-D, an empty line, and an answer.
    for (typed, code) in [
        ("\u{3}", 130),
        ("\u{1c}", 131),
        ("\u{4}", 64),
        ("\r", 64),
        (&*answer, 0),
    ] {
        let command =
            format!("trap : INT QUIT; tty; {PROGRAM} login {url}; echo ended=$?; stty -a");
        let shown = shell_on_terminal(&machine, &command, SECRET_QUESTION, typed).await;
        assert!(
            shown.contains(&format!("ended={code}")),
            "{typed:?}: {shown}"
        );
        let settings = shown.rsplit("ended=").next().unwrap();
        assert!(
            settings.contains(" echo ") && !settings.contains("-echo "),
            "{typed:?}: {shown}"
        );
    }
    for (signal, code) in [("-TERM", 143), ("-HUP", 129)] {
        let command = format!(
            "tty; (echo pid=$BASHPID=; exec {PROGRAM} login {url}); echo ended=$?; stty -a"
        );
        let command = format!("exec bash -c {}", shlex::try_quote(&command).unwrap());
        let shown = shell_on_terminal(&machine, &command, SECRET_QUESTION, signal).await;
        assert!(
            shown.contains(&format!("ended={code}")),
            "{signal}: {shown}"
        );
        let settings = shown.rsplit("ended=").next().unwrap();
        assert!(
            settings.contains(" echo ") && !settings.contains("-echo "),
            "{signal}: {shown}"
        );
    }
}

#[tokio::test]
async fn names_and_beginnings_of_ids_are_enough() {
    let machine = Machine::start();
    let rex = machine.create_npc("Rex");
    assert!(
        machine
            .run(&["npcs", "default", "Rex"], 0)
            .starts_with(&format!("{rex}\tRex\t"))
    );
    let shown = machine.json(&["npcs", "default", &rex[..rex.len() - 1], "-o", "json"]);
    assert_eq!(shown["id"], rex.as_str());
    machine.run(&["npcs", "default", "Bello"], 64);
    assert!(
        !machine
            .run(&["talk", "--npc", "Rex", "--say", "hello"], 0)
            .is_empty()
    );
    machine.run(&["talk", "--npc", "Bello", "--say", "hello"], 64);
    machine.run(&["stdio", "--npc", "Bello"], 64);
    machine.run(&["stdio", "--npc", "Rex"], 0);
}

#[tokio::test]
async fn names_of_templates_and_skills_books_are_enough() {
    let machine = Machine::start();
    let template = machine.home.path().join("dog.json");
    fs::write(
        &template,
        r#"{"name": "Dog", "persona": {"role": "a dog"}}"#,
    )
    .unwrap();
    let template = [
        "templates",
        "create",
        template.to_str().unwrap(),
        "-o",
        "jsonl",
    ];
    let template = machine.json(&template);
    assert_eq!(template["name"], "Dog");
    assert_eq!(
        machine.json(&["templates", "export", "Dog"])["data"]["name"],
        "Dog"
    );
    let npc = [
        "npcs",
        "create",
        r#"{"name": "Bello"}"#,
        "--template",
        "Dog",
        "-o",
        "table",
    ];
    let npc = machine.run(&npc, 0);
    let id = template["id"].as_str().unwrap();
    assert!(
        npc.lines()
            .any(|line| line.starts_with("template_id ") && line.ends_with(id)),
        "{npc}"
    );

    let unknown = machine.run(&["skills", "search", "Manual", "x"], 64);
    assert!(unknown.contains("skills list"), "{unknown}");
    let unknown = machine.run(&["voices", "train", "Anna"], 64);
    assert!(unknown.contains("voices list"), "{unknown}");
    let book = machine.home.path().join("manual.md");
    fs::write(&book, "# Ball\n\nThe ball is red.").unwrap();
    machine.run(
        &[
            "skills",
            "upload",
            book.to_str().unwrap(),
            "--name",
            "Manual",
        ],
        0,
    );
    let found = machine.json(&["skills", "search", "Manual", "ball", "-o", "json"]);
    assert!(
        found["chunks"]
            .as_array()
            .is_some_and(|chunks| !chunks.is_empty()),
        "{found}"
    );
}

#[tokio::test]
async fn times_are_days_durations_or_rfc_3339() {
    let machine = Machine::start();
    machine.create_npc("Rex");
    for since in ["2h", "7d ago", "2020-01-31", "2020-01-31T00:00:00Z"] {
        let audit = machine.run(&["audit", "--since", since, "--resource", "npc"], 0);
        assert_eq!(audit.lines().count(), 1, "{since}: {audit}");
    }
    assert_eq!(machine.run(&["audit", "--until", "2h"], 0), "");
    for arguments in [["usage", "--from", "yesterday"], ["audit", "--since", "x"]] {
        let error = machine.run(&arguments, 64);
        for part in [arguments[1], "2026-01-31T12:00:00Z", "7d"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[tokio::test]
async fn usage_is_a_readable_table() {
    let machine = Machine::start();
    let _device = machine.device("toy-1").await;
    machine.run(&["call", "toy-1", "echo", r#"{"text":"x"}"#], 0);
    let periods = || async { machine.json(&["usage", "--from", "1d"])["periods"].clone() };
    let is_counted = |periods: &Value| {
        periods
            .as_array()
            .is_some_and(|periods| !periods.is_empty())
    };
    eventually(WAIT_TIMEOUT, periods, is_counted).await;
    let table = machine.run(&["usage", "--from", "1d", "-o", "table"], 0);
    let mut lines = table.lines().skip_while(|line| *line != "PERIODS").skip(1);
    let header = lines.next().unwrap();
    assert!(
        header.contains("CALLS") && header.contains("BY OUTCOME.SUCCEEDED"),
        "{table}"
    );
    assert!(lines.next().unwrap().starts_with("20"), "{table}");
    assert!(
        table.lines().any(|line| line.starts_with("now.devices")),
        "{table}"
    );
}

#[tokio::test]
async fn file_over_the_limit_is_refused_with_both_sizes() {
    let machine = Machine::start();
    let sample = machine.home.path().join("long.wav");
    fs::File::create(&sample)
        .unwrap()
        .set_len(10_485_761)
        .unwrap();
    let sample = sample.to_str().unwrap();
    let upload = [
        "voices",
        "upload",
        sample,
        "--consent",
        "yes",
        "--consent-by",
        "Anna",
    ];
    let error = machine.run(&upload, 64);
    let sizes = "long.wav has 10485761 bytes; at most 10485760 bytes are accepted";
    assert!(error.contains(sizes), "{error}");
}

#[tokio::test]
async fn organisations_keys_and_tokens_have_commands() {
    let machine = Machine::start();
    let org = machine.json(&["org", "show"]);
    let orgs = machine.run(&["orgs", "list"], 0);
    assert!(orgs.contains(org["org_id"].as_str().unwrap()), "{orgs}");
    let created = machine.json(&["orgs", "create", "Toys"]);
    assert!(created["api_key"].as_str().unwrap().starts_with("sb_"));
    let suspended = machine.json(&["orgs", "edit", "Toys", "--suspended", "true"]);
    assert_eq!(suspended["suspended"], true);

    let key = machine.json(&["keys", "create", "ci", "--scope", "call,read"]);
    assert_eq!(key["scopes"], json!(["call", "read"]));
    let other = machine.json(&["keys", "create", "ci", "--scope", "read"]);
    let ambiguous = machine.run(&["keys", "revoke", "ci"], 64);
    for id in [&key, &other].map(|key| key["api_key_id"].as_str().unwrap()) {
        assert!(ambiguous.contains(id), "{ambiguous}");
    }
    // The beginning of an id is enough if it is unique: all but the last digit are.
    let id = other["api_key_id"].as_str().unwrap();
    machine.run(&["keys", "revoke", &id[..id.len() - 1]], 0);
    let keys: Vec<Value> =
        serde_json::from_str(&machine.run(&["keys", "list", "-o", "json"], 0)).unwrap();
    let revoked = |key: &Value| !key["revoked_at"].is_null();
    assert_eq!(
        keys.iter().filter(|key| revoked(key)).count(),
        1,
        "{keys:?}"
    );

    let token = machine.json(&["token", "--device", "toy-1", "--json"]);
    let table = machine.run(&["token", "--device", "toy-1", "-o", "table"], 0);
    assert!(
        table.contains("token_id") && table.contains("Bearer"),
        "{table}"
    );
    machine.run(
        &["tokens", "revoke", token["token_id"].as_str().unwrap()],
        0,
    );
    assert!(machine.json(&["tokens", "public-keys"])["keys"].is_array());
}

#[tokio::test]
async fn npcs_and_memories_have_commands() {
    let machine = Machine::start();
    let npc = machine.create_npc("Rex");
    assert_eq!(machine.json(&["npcs", "show", "Rex"])["id"], npc.as_str());
    assert!(
        machine
            .run(&["npcs", "show", "Bello"], 64)
            .contains("npcs list")
    );
    // Neither is the beginning of an id.
    for mistake in ["", "n", "npc_"] {
        machine.run(&["npcs", "delete", mistake], 64);
    }
    assert_eq!(machine.json(&["npcs", "show", "Rex"])["id"], npc.as_str());
    let memory = machine.home.path().join("memory.json");
    fs::write(&memory, r#"{"text": "likes\tballs", "kind": "fact"}"#).unwrap();
    let made = [
        "memories",
        "create",
        "--npc",
        "Rex",
        memory.to_str().unwrap(),
    ];
    assert!(machine.run(&made, 0).contains("mem_"));
    let memories = machine.run(&["memories", "list", "--npc", "Rex"], 0);
    assert!(memories.ends_with("\tfact\t-\tlikes balls"), "{memories}");
    machine.run(&["memories", "list"], 64);
    let memory = memories.split('\t').next().unwrap();
    machine.run(&["memories", "delete", memory], 0);
    assert_eq!(machine.run(&["memories", "list", "--npc", &npc], 0), "");
}

#[tokio::test]
async fn webhooks_usage_and_audit_have_commands() {
    let machine = Machine::start();
    let hook = [
        "webhooks",
        "create",
        "https://hooks.example/hook",
        "--event",
        "device.online,call.finished",
    ];
    let hook = machine.json(&hook);
    assert_eq!(hook["events"], json!(["device.online", "call.finished"]));
    let rotated = machine.json(&["webhooks", "rotate-secret", "https://hooks.example/hook"]);
    assert_ne!(rotated["secret"], hook["secret"]);
    let delivery = machine.json(&["webhooks", "test", hook["id"].as_str().unwrap()]);
    let shown = machine.json(&["deliveries", "show", delivery["id"].as_str().unwrap()]);
    assert_eq!(shown["webhook_id"], hook["id"]);
    machine.run(&["webhooks", "delete", "https://hooks.example/hook"], 0);

    assert!(machine.json(&["usage", "--granularity", "hour"])["periods"].is_array());
    let audit = machine.run(
        &["audit", "--resource", "webhook", "--action", "removed"],
        0,
    );
    assert!(audit.contains(hook["id"].as_str().unwrap()), "{audit}");
    assert_eq!(
        machine.json(&["recordings", "clear", "--yes"])["deleted"],
        0
    );
}

#[tokio::test]
async fn lists_have_formats_limits_and_all_pages() {
    let machine = Machine::start();
    // One more than a page.
    for number in 0..21 {
        machine.create_npc(&format!("n{number}"));
    }
    let lines = |arguments: &[&str]| machine.run(arguments, 0).lines().count();
    assert_eq!(lines(&["npcs", "list"]), 21);
    assert_eq!(lines(&["npcs", "list", "--limit", "2"]), 2);
    assert_eq!(lines(&["npcs", "list", "--json"]), 21);
    let all = machine.json(&["npcs", "list", "-o", "json"]);
    assert_eq!(all.as_array().unwrap().len(), 21);
    let table = machine.run(&["npcs", "list", "-o", "table", "--limit", "1"], 0);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["ID", "NAME", "TEMPLATE", "DEVICES"]);
    assert_eq!(rows[1][1..], ["n0", "-"]);
    let wide = machine.run(&["npcs", "list", "-o", "wide", "--limit", "1"], 0);
    assert!(wide.lines().next().unwrap().contains("UPDATED"), "{wide}");
    let shown = on_terminal(&machine, &["npcs", "list", "--limit", "1"], "", "").await;
    assert!(
        shown.contains("TEMPLATE") && shown.contains("n0"),
        "{shown}"
    );
}

#[tokio::test]
async fn watch_prints_devices_as_they_come() {
    let machine = Machine::start();
    let mut watch =
        tokio::process::Command::from(machine.folder.command(&["devices", "list", "--watch"]));
    let mut watch = watch
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let _device = machine.device("toy-1").await;
    let line = timeout(WAIT_TIMEOUT, lines.next_line())
        .await
        .unwrap()
        .unwrap();
    let line = line.unwrap();
    assert!(line.starts_with("toy-1\ttrue\t"), "{line}");
    assert!(line.contains("echo"), "{line}");
}

#[tokio::test]
async fn events_continue_where_their_connection_was_lost() {
    let machine = Machine::start();
    let url = machine.up.address("http_url");
    let address = url.trim_start_matches("http://").parse().unwrap();
    let proxy = TcpProxy::start(address).await;
    let arguments = ["events", "-o", "jsonl", "--types", "device.online"];
    let mut events = tokio::process::Command::from(machine.bare(&arguments));
    let mut events = events
        .env("SWITCHBOARD_URL", format!("http://{}", proxy.address()))
        .env("SWITCHBOARD_API_KEY", machine.up.address("api_key"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(events.stdout.take().unwrap()).lines();
    let mut notes = BufReader::new(events.stderr.take().unwrap()).lines();
    let mut next = async || {
        let line = lines.next_line().await.unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    // The first event of a device that connected after the stream began.
    let (mut devices, mut first) = (Vec::new(), None);
    while first.is_none() && devices.len() < 30 {
        let id = format!("first-{}", devices.len());
        devices.push(machine.device(&id).await);
        first = timeout(POLL_TIMEOUT, next()).await.ok();
    }
    assert_eq!(first.unwrap()["type"], "device.online");
    proxy.close();
    let note = timeout(WAIT_TIMEOUT, notes.next_line()).await.unwrap();
    assert!(note.unwrap().unwrap().contains("connecting again"));
    let _missed = machine.device("missed").await;
    proxy.pass();
    // Others of the first devices may come before it.
    let is_missed = |event: &Value| event["device_id"] == "missed";
    timeout(WAIT_TIMEOUT, async { while !is_missed(&next().await) {} })
        .await
        .unwrap();
}

#[tokio::test]
async fn device_is_disconnected_by_its_id() {
    let machine = Machine::start();
    let _device = machine.device("toy-1").await;
    assert_eq!(machine.run(&["devices", "disconnect", "toy-1"], 0), "");
    machine.run(&["devices", "disconnect", "toy-2"], 1);
}

#[tokio::test]
async fn queued_call_is_listed_and_cancelled() {
    let machine = Machine::start();
    let id = machine.run(&["call", "toy-2", "echo", r#"{"text":"x"}"#, "--queued"], 0);
    let listed = machine.run(&["calls", "list", "--state", "queued"], 0);
    assert!(
        listed.starts_with(&format!("{id}\ttoy-2\techo\tqueued\t")),
        "{listed}"
    );
    let beginning = &id[..id.len() - 1];
    machine.run(&["calls", "cancel", beginning], 0);
    // The exit code is the outcome.
    for arguments in [
        &["calls", "wait", beginning, "-o", "table"][..],
        &["calls", "show", &id],
    ] {
        let ended = machine
            .bare(arguments)
            .env("SWITCHBOARD_DATA_DIR", machine.folder.path())
            .output();
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(6), "{ended:?}");
        let text = String::from_utf8(ended.stdout).unwrap();
        let is_table = text
            .lines()
            .any(|line| line.starts_with("outcome ") && line.ends_with(" cancelled"));
        assert_eq!(is_table, arguments.len() > 3, "{text}");
    }
    machine.run(&["calls", "show", "call_ffffff"], 64);
}

#[tokio::test]
async fn terminal_is_asked_before_a_deletion() {
    let machine = Machine::start();
    let rex = machine.create_npc("Rex");
    let question = "and its memories? [y/N] ";
    let kept = on_terminal(&machine, &["npcs", "delete", "Rex"], question, "n\r").await;
    assert!(
        kept.contains(&rex) && kept.contains("nothing was changed"),
        "{kept}"
    );
    machine.run(&["npcs", "show", &rex], 0);
    on_terminal(&machine, &["npcs", "delete", "Rex"], question, "y\r").await;
    machine.run(&["npcs", "show", &rex], 1);
    let bello = machine.create_npc("Bello");
    on_terminal(&machine, &["npcs", "delete", "Bello", "--yes"], "", "").await;
    machine.run(&["npcs", "show", &bello], 1);
    let hint = on_terminal(&machine, &["templates", "create"], "until Ctrl-D", "\u{4}").await;
    assert!(
        hint.contains("reading the input from the terminal"),
        "{hint}"
    );
}

#[tokio::test]
async fn bash_completes_connected_devices() {
    let machine = Machine::start();
    let first = machine.device("toy-1").await;
    let _second = machine.device("car-2").await;
    let complete = |words: &str, current: &str| {
        let script = format!(
            r#"source <({PROGRAM} completions bash)
            COMP_WORDS=(switchboard {words} "{current}")
            COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _clap_complete_switchboard switchboard "{current}" "" 2>/dev/null
            printf '%s\n' "${{COMPREPLY[@]}}""#
        );
        let output = Command::new("bash")
            .args(["--norc", "-c", &script])
            .env("HOME", machine.home.path())
            .env("SWITCHBOARD_DATA_DIR", machine.folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words = text.lines().map(|line| line.trim().to_owned());
        words
            .filter(|word| !word.is_empty() && !word.starts_with('-'))
            .collect::<Vec<_>>()
    };
    assert_eq!(complete("call", ""), ["car-2", "toy-1"]);
    assert_eq!(complete("call", "to"), ["toy-1"]);
    assert_eq!(complete("calls list --device-id", ""), ["car-2", "toy-1"]);
    assert_eq!(complete("stdio --device", ""), ["car-2", "toy-1"]);
    assert_eq!(complete("token --device", ""), ["car-2", "toy-1"]);
    let rex = machine.create_npc("Rex");
    for command in ["npcs show", "npcs default", "talk --npc", "stdio --npc"] {
        assert_eq!(complete(command, ""), [&*rex], "{command}");
    }
    let url = machine.up.address("http_url").to_owned();
    let login = ["login", &url, "--context", "lab", "--key-stdin"];
    printed(&mut machine.bare(&login), &machine.up.address("api_key"), 0);
    assert_eq!(complete("contexts use", ""), ["lab"]);
    assert_eq!(complete("status --context", ""), ["lab"]);
    assert_eq!(complete("", "dev"), ["device", "devices"]);
    let elsewhere = format!("--data-dir {}", machine.home.path().display());
    assert_eq!(
        complete(&format!("call {elsewhere}"), ""),
        Vec::<String>::new()
    );
    // One that has left can be shown, and cannot be called.
    drop(first);
    let connected = || async { complete("call", "") };
    eventually(WAIT_TIMEOUT, connected, |devices| *devices == ["car-2"]).await;
    assert_eq!(complete("devices show", ""), ["car-2", "toy-1"]);
    assert_eq!(complete("devices disconnect", ""), ["car-2"]);
}

#[test]
fn every_shell_has_a_script_and_every_command_a_page() {
    let run = |arguments: &[&str]| printed(Command::new(PROGRAM).args(arguments), "", 0);
    for shell in ["bash", "zsh", "fish", "powershell"] {
        assert!(
            run(&["completions", shell]).contains("SWITCHBOARD_COMPLETE"),
            "{shell}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    run(&["man", folder.path().to_str().unwrap()]);
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    assert!(page("switchboard.1").contains(".TH switchboard 1"));
    let show = page("switchboard-npcs-show.1");
    assert!(
        show.contains("Shows an NPC") && show.contains("Examples"),
        "{show}"
    );
    assert!(!show.contains("deletes"), "{show}");
}
