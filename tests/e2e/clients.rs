//! MCP clients of other makers against a gateway, an edge and a device: what they list, call, hear and give up.
//! Never: a client that is not there and a test that says so by passing.

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

use crate::{device::Device, plant::Plant};

mod inspector;
mod npcs;

/// How long a client may take for one step; it starts an interpreter first.
const PATIENCE: Duration = Duration::from_secs(30);
/// One pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";
/// Beyond the basic plane too.
const CHINESE: &str = "把灯调成暖黄色，𠮷祥如意";
const NEWEST: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const DEVICE: &str = "toy-1";

/// A client under test: its program, and what it is told on its command line.
struct Maker {
    interpreter: PathBuf,
    script: PathBuf,
    arguments: Vec<OsString>,
    /// The revision that it should agree on with us.
    revision: &'static str,
    /// Where scripts find their packages; removed with the test.
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
        // Node looks for packages beside the script.
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

    fn http(self, plant: &Plant) -> Self {
        self.at(plant, &format!("/mcp/devices/{DEVICE}"))
    }

    fn at(mut self, plant: &Plant, endpoint: &str) -> Self {
        self.arguments.push(plant.url(endpoint).into());
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

    async fn connect(self, plant: &Plant) -> Client {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(&self.interpreter)
            .arg(&self.script)
            .args(&self.arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SWITCHBOARD_URL", plant.gateway.address("http_url"))
            .env("SWITCHBOARD_API_KEY", &plant.org.key)
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

/// A client that is connected, and what it says on stdout.
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

    /// What it finds next, which must be this.
    async fn found(&mut self, what: &str) -> Value {
        let line = timeout(PATIENCE, self.stdout.next_line())
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

    /// Ends its input; it must end by itself, and content.
    async fn end(mut self) {
        self.stdin = None;
        let status = timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
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

/// A plant, and a device with tools of every kind.
async fn stage() -> (Plant, Device) {
    let plant = Plant::start(1).await;
    let mut device = plant.device(0, DEVICE).await;
    device.register(&services().to_string()).await;
    (plant, device)
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

/// Lists, calls with Chinese both ways, gets an image, a tool's error and one of the protocol.
async fn talks(maker: Maker, plant: &Plant, device: &mut Device) {
    let mut client = maker.connect(plant).await;

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
    let said = format!("好的：{CHINESE}");
    device
        .answer(&call, &json!({"success": true, "data": said}))
        .await;
    let result = client.found("result").await["result"].take();
    assert_eq!(result["content"][0], json!({"type": "text", "text": said}));
    assert_eq!(result["structuredContent"]["data"], said);
    assert_ne!(result["isError"], true, "{result}");

    // A name in Chinese is called by the one that stands for it.
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

/// Gives up a call that runs; the device is told to stop, and the connection is as good as before.
async fn cancels(maker: Maker, plant: &Plant, device: &mut Device) {
    let mut client = maker.connect(plant).await;
    client.call("say", &json!({"text": "one moment"})).await;
    let (call, ..) = device.next_call().await;
    client.command(&json!({"do": "cancel"})).await;
    client.found("cancelled").await;
    let told = device.next(Kind::Control).await.json();
    assert_eq!(
        (&told["type"], &told["data"]["call_id"]),
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

/// Is told that the device offers something else, and lists that.
async fn hears(maker: Maker, plant: &Plant, device: &mut Device) {
    let mut client = maker.connect(plant).await;
    // What it lists is what it may remember until it is told.
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
    ($client:ident, |$plant:ident| $maker:expr) => {
        mod $client {
            use super::*;

            #[tokio::test]
            async fn talks() {
                let ($plant, mut device) = stage().await;
                super::talks($maker, &$plant, &mut device).await;
            }

            #[tokio::test]
            async fn cancels() {
                let ($plant, mut device) = stage().await;
                super::cancels($maker, &$plant, &mut device).await;
            }

            #[tokio::test]
            async fn hears_of_changes() {
                let ($plant, mut device) = stage().await;
                super::hears($maker, &$plant, &mut device).await;
            }
        }
    };
}

behaves!(python_2_3_0, |plant| Maker::python(
    "2.3.0",
    NEWEST,
    &["auto"]
)
.http(&plant));
behaves!(python_2_3_0_legacy, |plant| Maker::python(
    "2.3.0",
    LEGACY,
    &["legacy"]
)
.http(&plant));
behaves!(python_1_30_0, |plant| Maker::python(
    "1.30.0",
    LEGACY,
    &["http"]
)
.http(&plant));
behaves!(python_1_30_0_stdio, |plant| Maker::python(
    "1.30.0",
    LEGACY,
    &["stdio"]
)
.stdio());
behaves!(client_2_4_0, |plant| Maker::node(
    "client.mjs",
    NEWEST,
    &["modern"]
)
.http(&plant));
behaves!(client_2_4_0_legacy, |plant| Maker::node(
    "client.mjs",
    LEGACY,
    &["legacy"]
)
.http(&plant));
behaves!(sdk_1_32_2, |plant| Maker::node(
    "sdk.mjs",
    LEGACY,
    &["http"]
)
.http(&plant));
behaves!(sdk_1_32_2_stdio, |plant| Maker::node(
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
fn installed(path: &str) -> PathBuf {
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
