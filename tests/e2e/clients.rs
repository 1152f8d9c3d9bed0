//! Third-party MCP clients against a gateway, an edge and a device: list, call, notify and cancel.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{cluster::TestCluster, device::Device};

mod inspector;
mod npcs;

/// Upper bound for one step of a client, including the start of an interpreter.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// A picture of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";
/// Contains characters outside the basic multilingual plane.
const CHINESE: &str = "把灯调成暖黄色，𠮷祥如意";
const NEWEST: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const DEVICE: &str = "toy-1";

/// A client under test: its program and command-line arguments.
struct Maker {
    interpreter: PathBuf,
    script: PathBuf,
    arguments: Vec<OsString>,
    /// The protocol revision that the client must negotiate.
    revision: &'static str,
    /// The folder from which scripts load packages; removed with the test.
    _folder: Option<tempfile::TempDir>,
}

impl Maker {
    fn python(version: &str, revision: &'static str, arguments: &[&str]) -> Self {
        Self {
            interpreter: installed(&format!("python-{version}/bin/python")),
            script: pinned().join(format!("python-{version}.py")),
            arguments: arguments.iter().map(Into::into).collect(),
            revision,
            _folder: None,
        }
    }

    fn node(script: &str, revision: &'static str, arguments: &[&str]) -> Self {
        let packages = installed("node/node_modules");
        let folder = tempfile::tempdir().unwrap();
        // Node resolves packages relative to the script.
        std::os::unix::fs::symlink(&packages, folder.path().join("node_modules")).unwrap();
        for name in [script, "conversation.mjs"] {
            std::fs::copy(pinned().join(name), folder.path().join(name)).unwrap();
        }
        Self {
            interpreter: installed("node/node_modules/node/bin/node"),
            script: folder.path().join(script),
            arguments: arguments.iter().map(Into::into).collect(),
            revision,
            _folder: Some(folder),
        }
    }

    fn http(self, cluster: &TestCluster) -> Self {
        self.at(cluster, &format!("/mcp/devices/{DEVICE}"))
    }

    fn at(mut self, cluster: &TestCluster, endpoint: &str) -> Self {
        self.arguments.push(cluster.url(endpoint).into());
        self
    }

    fn stdio(self) -> Self {
        self.stdio_with(&["--device", DEVICE])
    }

    fn stdio_with(mut self, which: &[&str]) -> Self {
        let ours = env!("CARGO_BIN_EXE_switchboard");
        let command = [ours, "stdio"].into_iter().chain(which.iter().copied());
        self.arguments.extend(command.map(Into::into));
        self
    }

    async fn connect(self, cluster: &TestCluster) -> Client {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(&self.interpreter)
            .arg(&self.script)
            .args(&self.arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SWITCHBOARD_URL", cluster.gateway.address("http_url"))
            .env("SWITCHBOARD_API_KEY", &cluster.org.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut client = Client {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            log,
            maker: self,
        };
        let connected = client.found("connected").await;
        assert_eq!(connected["version"], client.maker.revision, "{connected}");
        assert_eq!(connected["server"], "switchboard");
        client
    }
}

/// A connected client and its stdout.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    log: tempfile::NamedTempFile,
    maker: Maker,
}

impl Client {
    async fn command(&mut self, command: &Value) {
        let line = format!("{command}\n");
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
        stdin.flush().await.unwrap();
    }

    /// The next result, which must be of this kind.
    async fn found(&mut self, what: &str) -> Value {
        let line = timeout(STEP_TIMEOUT, self.stdout.next_line())
            .await
            .unwrap_or_else(|_| panic!("no `{what}` in time"))
            .unwrap()
            .unwrap_or_else(|| panic!("ended before `{what}`"));
        let found: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(found["found"], what, "{found}");
        found
    }

    async fn tools(&mut self) -> Value {
        self.command(&json!({"do": "list"})).await;
        self.found("tools").await["tools"].take()
    }

    async fn call(&mut self, tool: &str, arguments: &Value) {
        self.command(&json!({"do": "call", "name": tool, "arguments": arguments}))
            .await;
    }

    /// Closes the client's stdin. The client must exit with success.
    async fn end(mut self) {
        self.stdin = None;
        let status = timeout(STEP_TIMEOUT, self.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logged = std::fs::read_to_string(self.log.path()).unwrap_or_default();
            eprintln!("--- {} ---\n{logged}", self.maker.script.display());
        }
    }
}

/// A cluster, and a device with tools of every kind.
async fn fixture() -> (TestCluster, Device) {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.device(0, DEVICE).await;
    device.register(&services().to_string()).await;
    (cluster, device)
}

fn services() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"text": {"type": "string", "description": "要说的话"}},
        "required": ["text"],
    });
    json!({
        "say": {"description": "说一句话", "parameters": parameters, "output": {"type": "string"}},
        "draw": {"description": "Draws one pixel"},
        "调光": {"description": "Dims the light"},
    })
}

/// Lists tools, calls with Chinese text in both directions, and receives an image, a tool error and
/// a protocol error.
async fn check_calls(maker: Maker, cluster: &TestCluster, device: &mut Device) {
    let mut client = maker.connect(cluster).await;

    let tools = client.tools().await;
    let named = |wanted: &str| {
        let mut tools = tools.as_array().unwrap().iter();
        tools.find(|tool| tool["name"] == wanted || tool["title"] == wanted)
    };
    assert_eq!(tools.as_array().unwrap().len(), 3, "{tools}");
    let say = named("say").unwrap();
    assert_eq!(say["description"], "说一句话");
    assert_eq!(say["inputSchema"], services()["say"]["parameters"]);
    assert!(named("draw").is_some());
    let dim = named("调光").unwrap()["name"].as_str().unwrap().to_owned();

    client.call("say", &json!({"text": CHINESE})).await;
    let (call, service, params) = device.next_call().await;
    assert_eq!(
        (service.as_str(), &params["text"]),
        ("say", &json!(CHINESE))
    );
    let reply = format!("好的：{CHINESE}");
    device
        .answer(&call, &json!({"success": true, "data": reply}))
        .await;
    let result = client.found("result").await["result"].take();
    assert_eq!(result["content"][0], json!({"type": "text", "text": reply}));
    assert_eq!(result["structuredContent"]["data"], reply);
    assert_ne!(result["isError"], true, "{result}");

    // A service with a Chinese name is called by its ASCII alias.
    client.call(&dim, &json!({})).await;
    let (call, service, _) = device.next_call().await;
    assert_eq!(service, "调光");
    device
        .answer(&call, &json!({"success": false, "error": "灯坏了"}))
        .await;
    let result = client.found("result").await["result"].take();
    assert_eq!(result["isError"], true);
    assert_eq!(result["content"][0]["text"], "灯坏了");

    client.call("draw", &json!({})).await;
    let (call, ..) = device.next_call().await;
    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    device
        .answer(&call, &json!({"success": true, "content": [image]}))
        .await;
    let result = client.found("result").await["result"].take();
    let drawn = &result["content"][0];
    assert_eq!(
        (&drawn["type"], &drawn["data"], &drawn["mimeType"]),
        (&json!("image"), &json!(PNG), &json!("image/png"))
    );

    client.call("no-such-tool", &json!({})).await;
    let error = client.found("error").await;
    assert_eq!(error["code"], -32602, "{error}");
    client.end().await;
}

/// Cancels a call in flight. The device receives the cancellation, and the connection stays usable.
async fn check_cancellation(maker: Maker, cluster: &TestCluster, device: &mut Device) {
    let mut client = maker.connect(cluster).await;
    client.call("say", &json!({"text": "one moment"})).await;
    let (call, ..) = device.next_call().await;
    client.command(&json!({"do": "cancel"})).await;
    client.found("cancelled").await;
    let message = device.next(Kind::Control).await.json();
    assert_eq!(
        (&message["type"], &message["data"]["call_id"]),
        (&json!("cancel"), &json!(call))
    );
    client.call("say", &json!({"text": "again"})).await;
    let (call, ..) = device.next_call().await;
    device
        .answer(&call, &json!({"success": true, "data": "again"}))
        .await;
    let result = client.found("result").await;
    assert_eq!(result["result"]["structuredContent"]["data"], "again");
    client.end().await;
}

/// Receives a list-changed notification and lists the new tools.
async fn check_list_change(maker: Maker, cluster: &TestCluster, device: &mut Device) {
    let mut client = maker.connect(cluster).await;
    // A client may cache the list until it is notified.
    assert_eq!(client.tools().await.as_array().unwrap().len(), 3);
    client.command(&json!({"do": "watch"})).await;
    client.found("watching").await;
    device.register(r#"{"other":{}}"#).await;
    client.found("changed").await;
    let tools = client.tools().await;
    assert_eq!(tools.as_array().unwrap().len(), 1, "{tools}");
    assert_eq!(tools[0]["name"], "other");
    client.end().await;
}

/// The three behaviours as tests of one client.
macro_rules! behaves {
    ($client:ident, |$cluster:ident| $maker:expr) => {
        mod $client {
            use super::*;

            #[tokio::test]
            async fn calls_tools() {
                let ($cluster, mut device) = fixture().await;
                super::check_calls($maker, &$cluster, &mut device).await;
            }

            #[tokio::test]
            async fn cancels_calls() {
                let ($cluster, mut device) = fixture().await;
                super::check_cancellation($maker, &$cluster, &mut device).await;
            }

            #[tokio::test]
            async fn lists_changed_tools() {
                let ($cluster, mut device) = fixture().await;
                super::check_list_change($maker, &$cluster, &mut device).await;
            }
        }
    };
}

behaves!(python_2_3_0, |cluster| Maker::python(
    "2.3.0",
    NEWEST,
    &["auto"]
)
.http(&cluster));
behaves!(python_2_3_0_legacy, |cluster| Maker::python(
    "2.3.0",
    LEGACY,
    &["legacy"]
)
.http(&cluster));
behaves!(python_1_30_0, |cluster| Maker::python(
    "1.30.0",
    LEGACY,
    &["http"]
)
.http(&cluster));
behaves!(python_1_30_0_stdio, |cluster| Maker::python(
    "1.30.0",
    LEGACY,
    &["stdio"]
)
.stdio());
behaves!(client_2_4_0, |cluster| Maker::node(
    "client.mjs",
    NEWEST,
    &["modern"]
)
.http(&cluster));
behaves!(client_2_4_0_legacy, |cluster| Maker::node(
    "client.mjs",
    LEGACY,
    &["legacy"]
)
.http(&cluster));
behaves!(sdk_1_32_2, |cluster| Maker::node(
    "sdk.mjs",
    LEGACY,
    &["http"]
)
.http(&cluster));
behaves!(sdk_1_32_2_stdio, |cluster| Maker::node(
    "sdk.mjs",
    LEGACY,
    &["stdio"]
)
.stdio());

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pinned() -> PathBuf {
    root().join("tests/clients").canonicalize().unwrap()
}

/// A path below the folder where the clients are installed.
pub fn installed(path: &str) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let found = root().join(target).join("clients").join(path);
    assert!(
        found.exists(),
        "{} is missing: run `cargo xtask clients`",
        found.display()
    );
    found
}
