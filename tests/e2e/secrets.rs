//! No secret is in a log, a metric, a span, a response or an error: a system with known secrets is
//! used and misused, and everything that it writes is searched.

mod leaks;
mod services;

use std::{process::Command, time::Duration};

use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, TaskId};
use switchboard_store::{MasterKeys, testing::TestDatabase};
use switchboard_test_support::{
    eventually::{eventually, eventually_true},
    redis_server::RedisServer,
    switchboard::{Program, executable},
};

use self::{
    leaks::Witness,
    services::{Services, VOICES},
};
use crate::{
    cluster::{OPERATOR_KEY, TestCluster},
    collector::Collector,
    device::Device,
    webhooks::LOOPBACK,
};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const TASK: TaskId = TaskId(*b"task0001");
const SAMPLE: &[u8] = include_bytes!("../../services/control/tests/control/voices/tone.mp3");

/// A secret that nothing else contains.
fn random(prefix: &str) -> String {
    format!("{prefix}{:032x}", rand::random::<u128>())
}

/// A system all of whose secrets are known, and what it has written so far.
struct Fixture {
    cluster: TestCluster,
    chat: Program,
    settings: Vec<(&'static str, String)>,
    services: Services,
    collector: Collector,
    witness: Witness,
    _objects: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let mut witness = Witness::default();
        let (services, collector) = (Services::start().await, Collector::start().await);
        let objects = tempfile::tempdir().unwrap();
        let password = random("");
        let redis = RedisServer::start_with(&["--requirepass", &password]);
        let redis_url = redis
            .url()
            .replace("redis://", &format!("redis://:{password}@"));
        witness.keep_secret("the password of Redis", &password);
        let database = TestDatabase::create().await.unwrap();
        let password = random("");
        let database_url = with_password(database.url().expose_secret(), &password);
        witness.keep_secret("the password of the database", &password);
        let master_key = MasterKeys::generate();
        let of = |path: &str| format!("{}{path}", services.url);
        let mut settings = vec![
            ("REDIS_URL", redis_url),
            ("DATABASE_URL", database_url),
            (LOOPBACK.0, LOOPBACK.1.to_owned()),
            ("SWITCHBOARD_LOG", "trace".to_owned()),
            (
                "SWITCHBOARD_OBJECTS",
                format!("file://{}", objects.path().display()),
            ),
            ("SWITCHBOARD_OTLP_ENDPOINT", collector.url.clone()),
            ("SWITCHBOARD_TRACE_SAMPLE_RATIO", "1".to_owned()),
            ("SWITCHBOARD_COMPLETIONS_ENDPOINT", of("/models")),
            ("SWITCHBOARD_COMPLETIONS_MODEL", "large".to_owned()),
            ("SWITCHBOARD_EMBEDDINGS_ENDPOINT", of("/vectors")),
            ("SWITCHBOARD_EMBEDDINGS_MODEL", "small".to_owned()),
            ("SWITCHBOARD_VOICES_ENDPOINT", of(VOICES)),
            ("SWITCHBOARD_VOICES_OPENAI_ENDPOINT", of("/speech")),
        ];
        for (variable, secret) in [
            (
                "SWITCHBOARD_MASTER_KEY",
                master_key.expose_secret().to_owned(),
            ),
            ("SWITCHBOARD_COMPLETIONS_KEY", random("sk-")),
            ("SWITCHBOARD_EMBEDDINGS_KEY", random("sk-")),
            ("SWITCHBOARD_VOICES_KEY", random("sk-")),
            ("SWITCHBOARD_VOICES_OPENAI_KEY", random("sk-")),
        ] {
            witness.keep_secret(variable, &secret);
            settings.push((variable, secret));
        }
        // The first word is the name of a flag.
        witness.keep_secret("the operator's key", &OPERATOR_KEY["operator-".len()..]);
        let given: Vec<_> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let cluster = TestCluster::start_at((redis, database), 1, &given).await;
        witness.keep_secret("an API key", &cluster.org.key["sb_".len() + 8..]);
        let environment = [cluster.environment(), settings.clone()].concat();
        let chat = Program::start(&["chat", "--http-listen", "127.0.0.1:0"], &environment);
        Self {
            cluster,
            chat,
            settings,
            services,
            collector,
            witness,
            _objects: objects,
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        [self.cluster.environment(), self.settings.clone()].concat()
    }

    /// A command with all settings, which is ended if it runs for long.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("30").arg(executable()).args(arguments);
        command.envs(self.environment());
        command
    }

    fn programs(&self) -> impl Iterator<Item = (&'static str, &Program)> {
        let TestCluster {
            edges,
            control,
            gateway,
            ..
        } = &self.cluster;
        let others = [
            ("control", control),
            ("gateway", gateway),
            ("chat", &self.chat),
        ];
        others
            .into_iter()
            .chain(edges.iter().map(|edge| ("edge", edge)))
    }

    /// A request of the administrator, whose response may have secrets.
    async fn create(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.cluster.control.address("http_url"));
        let request = self
            .cluster
            .http
            .post(url)
            .bearer_auth(&self.cluster.org.key);
        let created = request.json(body).send().await.unwrap();
        let (status, created) = (created.status(), created.json::<Value>().await.unwrap());
        assert_eq!(status, 201, "{path}: {created}");
        created
    }

    /// A request of the administrator whose response may have no secret.
    async fn ask(&mut self, service: &str, method: Method, path: &str, body: Value) -> u16 {
        let program = self
            .programs()
            .find(|(name, _)| *name == service)
            .unwrap()
            .1;
        let url = format!("{}{path}", program.address("http_url"));
        let request = self.cluster.http.request(method, url);
        let mut request = request
            .bearer_auth(&self.cluster.org.key)
            .header("accept", "application/json, text/event-stream");
        if !body.is_null() {
            request = request.json(&body);
        }
        self.witness
            .send(&format!("{service} {path}"), request)
            .await
    }

    /// Creates the token of a device, which is a secret up to its claims.
    async fn device_token(&mut self, id: &str) -> String {
        let token = self.cluster.device_token(id).await;
        for (name, part) in ["header", "claims", "signature"]
            .iter()
            .zip(token.split('.'))
        {
            if *name != "header" {
                self.witness
                    .keep_secret(&format!("{name} of the token of {id}"), part);
            }
        }
        token
    }
}

/// A URL with this password, which the server of tests does not check, unless it has one.
fn with_password(url: &str, password: &str) -> String {
    let (user, host) = url.rsplit_once('@').expect("a URL with a user");
    let has_password = user.matches(':').count() > 1;
    assert!(!has_password, "the server of tests checks no password");
    format!("{user}:{password}@{host}")
}

/// A secret with another character near its end.
fn altered(secret: &str) -> String {
    let (head, tail) = secret.split_at(secret.len() - 5);
    let other = if tail.starts_with('x') { 'y' } else { 'x' };
    format!("{head}{other}{}", &tail[1..])
}

const CALLS: &str = "/v1/devices/toy-1/calls";

fn echo_call() -> Value {
    json!({"service": "echo", "params": {"text": "hi"}, "timeout_ms": 1000})
}

/// Requests with a valid key, whose responses may have no secret.
async fn use_http(fixture: &mut Fixture) {
    for path in [
        "/v1/api-keys",
        "/v1/audit-log",
        "/v1/usage",
        "/v1/org",
        "/v1/webhooks",
    ] {
        assert_eq!(
            fixture.ask("control", Method::GET, path, Value::Null).await,
            200,
            "{path}"
        );
    }
    let called = fixture.ask("gateway", Method::POST, CALLS, echo_call());
    assert_eq!(called.await, 200);
    let listed = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    fixture
        .ask("gateway", Method::POST, "/mcp/devices/toy-1", listed)
        .await;
}

/// Requests with wrong and misplaced credentials, at every service with HTTP.
async fn misuse_http(fixture: &mut Fixture, token: &str) {
    let (key, call) = (fixture.cluster.org.key.clone(), echo_call());
    let credentials = [
        format!("Bearer {}", altered(&key)),
        format!("Bearer {key}{key}"),
        format!("Bearer {}", &key[..key.len() - 3]),
        format!("Bearer {}", altered(token)),
        format!("Bearer {}", &token[..token.len() - 9]),
        format!("Bearer {token}"),
        format!("Basic {key}"),
        key.clone(),
    ];
    let services: Vec<_> = fixture
        .programs()
        .filter(|(name, _)| *name != "edge")
        .collect();
    let urls = services
        .iter()
        .map(|(name, program)| (*name, program.address("http_url")));
    let paths = [
        "/v1/api-keys",
        "/v1/devices",
        "/mcp",
        "/v1/npcs/npc_1/chat",
        CALLS,
    ];
    for (service, url) in urls.collect::<Vec<_>>() {
        for path in paths {
            for credential in &credentials {
                let request = fixture.cluster.http.post(format!("{url}{path}"));
                let request = request.header("authorization", credential).json(&call);
                let status = fixture
                    .witness
                    .send(&format!("{service} {path}"), request)
                    .await;
                assert!(status >= 400, "{service} {path}: {status}");
            }
            let misplaced = format!("{url}{path}?api_key={key}&access_token={token}");
            let request = fixture
                .cluster
                .http
                .get(misplaced)
                .header("x-api-key", &key);
            let status = fixture
                .witness
                .send(&format!("{service} {path}"), request)
                .await;
            assert!(status >= 400, "{service} {path}: {status}");
        }
    }
}

/// Connections of devices whose AUTH is refused.
async fn misuse_edge(fixture: &mut Fixture, token: &str) {
    let address = fixture.cluster.edges[0].address("device_addr");
    let hello =
        |token: &str, client: &str| format!("{{\"token\": \"{token}\", \"client\": {client}}}");
    let name = r#"{"name": "test", "version": "1"}"#;
    let misplaced = format!("\"{token}\"");
    let whole = hello(token, name);
    for payload in [
        hello(&altered(token), name),
        hello(&token[..token.len() - 9], name),
        hello(&fixture.cluster.org.key, name),
        hello(token, &misplaced),
        format!("{{\"token\": [\"{token}\"]}}"),
        whole[..whole.len() - 1].to_owned(),
        token.to_owned(),
    ] {
        let mut device = Device::dial(&address).await;
        device.send(Kind::Auth, &payload).await;
        for received in device.closes().await {
            fixture
                .witness
                .saw("the response to AUTH", received.payload);
        }
    }
}

/// Webhooks whose deliveries are rejected, and webhooks that nobody answers.
async fn fail_webhooks(fixture: &mut Fixture) {
    let refused = format!("{}/hook", fixture.services.url);
    for url in [refused.as_str(), "http://127.0.0.1:1/hook"] {
        let created = fixture
            .create(
                "/v1/webhooks",
                &json!({"url": url, "events": ["device.online"]}),
            )
            .await;
        let id = created["id"].as_str().unwrap();
        fixture.witness.keep_secret(
            "the secret of a webhook",
            &created["secret"].as_str().unwrap()["whsec_".len()..],
        );
        let path = format!("/v1/webhooks/{id}");
        assert_eq!(
            fixture
                .ask(
                    "control",
                    Method::POST,
                    &format!("{path}/test"),
                    Value::Null
                )
                .await,
            201
        );
        let deliveries = format!(
            "{}{path}/deliveries",
            fixture.cluster.control.address("http_url")
        );
        let (http, key) = (
            fixture.cluster.http.clone(),
            fixture.cluster.org.key.clone(),
        );
        let failed = async || {
            let listed = http
                .get(&deliveries)
                .bearer_auth(&key)
                .send()
                .await
                .unwrap();
            listed.text().await.unwrap()
        };
        let attempted = |listed: &String| listed.contains("\"attempts\":1");
        let listed = eventually(WAIT_TIMEOUT, failed, attempted).await;
        fixture.witness.saw("deliveries", listed);
        assert_eq!(
            fixture
                .ask("control", Method::GET, &path, Value::Null)
                .await,
            200
        );
    }
    for received in fixture.services.received("/hook") {
        fixture.witness.saw("a delivery", received);
    }
}

/// A turn that a model answers, and work of which every provider rejects the key.
async fn fail_providers(fixture: &mut Fixture, device: &mut Device) {
    assert!(device.ask(TASK, "Hello?").await.contains("Hello."));
    let npc = fixture
        .create(
            "/v1/npcs",
            &json!({"overrides": {"name": "Bello"}, "device_ids": ["toy-1"]}),
        )
        .await;
    let path = format!("/v1/npcs/{}", npc["id"].as_str().unwrap());
    fixture
        .create(
            &format!("{path}/memories"),
            &json!({"text": "The toy is blue.", "subject": "device:toy-1"}),
        )
        .await;
    let apology = device.ask(TASK, "And now?").await;
    fixture.witness.saw("the answer without a model", apology);
    let said = json!({"message": "Hello?"});
    fixture
        .ask("chat", Method::POST, &format!("{path}/chat"), said)
        .await;
    for provider in ["http", "openai"] {
        let url = format!(
            "{}/v1/voices?name=Anna&consent_by=Anna&consent_statement=Yes&provider={provider}",
            fixture.cluster.control.address("http_url")
        );
        let upload = fixture
            .cluster
            .http
            .post(url)
            .bearer_auth(&fixture.cluster.org.key);
        let uploaded = fixture.witness.send("a voice", upload.body(SAMPLE)).await;
        assert_eq!(uploaded, 201);
    }
    for path in [
        "/models/chat/completions",
        "/vectors/embeddings",
        VOICES,
        "/speech/audio/voices",
    ] {
        eventually_true(path, || fixture.services.count(path) > 0).await;
    }
    let (http, key) = (
        fixture.cluster.http.clone(),
        fixture.cluster.org.key.clone(),
    );
    let url = format!("{}/v1/voices", fixture.cluster.control.address("http_url"));
    let voices = async || {
        let listed = http.get(&url).bearer_auth(&key).send().await.unwrap();
        listed.text().await.unwrap()
    };
    let listed = eventually(WAIT_TIMEOUT, voices, |listed| listed.contains("\"kind\"")).await;
    fixture.witness.saw("voices", listed);
}

/// Settings that a command rejects, with `SECRET` for a secret.
const REJECTED: [(&str, &str, &str); 12] = [
    ("edge", "REDIS_URL", "http://:SECRET@127.0.0.1"),
    ("edge", "REDIS_URL", "redis://:SECRET@127.0.0.1:port/"),
    ("edge", "REDIS_URL", "redis+sentinel://:SECRET@127.0.0.1"),
    (
        "edge",
        "SWITCHBOARD_EDGE_READINESS_URL",
        "http://u:SECRET@h",
    ),
    ("gateway", "DATABASE_URL", "mysql://u:SECRET@127.0.0.1/x"),
    ("gateway", "DATABASE_URL", "postgres://u:SECRET@h:port/x"),
    ("gateway", "SWITCHBOARD_MASTER_KEY", "SECRET"),
    ("control", "SWITCHBOARD_MASTER_KEY", "SECRET"),
    (
        "control",
        "SWITCHBOARD_EMBEDDINGS_ENDPOINT",
        "http://u:SECRET@h",
    ),
    (
        "control",
        "SWITCHBOARD_VOICES_ENDPOINT",
        "http://u:SECRET@h",
    ),
    (
        "chat",
        "SWITCHBOARD_COMPLETIONS_ENDPOINT",
        "http://u:SECRET@h",
    ),
    (
        "migrate",
        "DATABASE_URL",
        "postgres://u:SECRET@127.0.0.1:1/x",
    ),
];

/// Runs commands whose settings have secrets.
fn misconfigure(fixture: &mut Fixture) {
    let secret = random("");
    fixture.witness.keep_secret("a rejected setting", &secret);
    for (name, variable, value) in REJECTED {
        let value = value.replace("SECRET", &secret);
        let mut command = fixture.command(&[name]);
        command.env(variable, value);
        let place = format!("{name} with {variable}");
        let code = fixture.witness.run(&place, &mut command);
        assert!(code.is_some_and(|code| code != 0), "{place}: {code:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for arguments in [
        &["doctor", "--data-dir", folder][..],
        &["control", "--help"],
    ] {
        let mut command = fixture.command(arguments);
        fixture.witness.run(arguments[0], &mut command);
    }
}

/// Records what the admin ports show.
async fn read_admin_ports(fixture: &mut Fixture) {
    let ports: Vec<_> = fixture
        .programs()
        .map(|(name, program)| (name, program.address("admin_url")))
        .collect();
    for (name, url) in ports {
        for path in ["/metrics", "/debug/budgets", "/readyz", "/healthz"] {
            let request = fixture.cluster.http.get(format!("{url}{path}"));
            let request = request.header("accept", "application/openmetrics-text");
            fixture
                .witness
                .send(&format!("{name} {path}"), request)
                .await;
        }
    }
}

/// Redis accepts the password no longer, and closes all connections.
async fn revoke_redis_password(fixture: &Fixture) {
    let url = fixture
        .settings
        .iter()
        .find(|(name, _)| *name == "REDIS_URL");
    let client = redis::Client::open(url.unwrap().1.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for command in [
        ["CONFIG", "SET", "requirepass", "another"].as_slice(),
        &["CLIENT", "KILL", "TYPE", "pubsub"],
        &["CLIENT", "KILL", "TYPE", "normal"],
    ] {
        let mut sent = redis::cmd(command[0]);
        sent.arg(&command[1..])
            .query_async::<redis::Value>(&mut connection)
            .await
            .unwrap();
    }
    for program in [&fixture.cluster.edges[0], &fixture.cluster.gateway] {
        let url = format!("{}/readyz", program.address("admin_url"));
        let http = &fixture.cluster.http;
        let status = async || http.get(&url).send().await.unwrap().status();
        eventually(WAIT_TIMEOUT, status, |status| *status == 503).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_no_secret_is_written_anywhere() {
    let mut fixture = Fixture::start().await;
    let token = fixture.device_token("toy-1").await;
    let address = fixture.cluster.edges[0].address("device_addr");
    let mut talking = Device::connect(&address, &token).await;
    fail_providers(&mut fixture, &mut talking).await;
    talking.register(&crate::cluster::echo_services()).await;
    let _served = talking.serve();
    let other = fixture.device_token("toy-2").await;
    let mut environment = fixture.environment();
    environment.push(("SWITCHBOARD_TOKEN", other));
    let device = Program::launch(
        &["device", "--id", "toy-2", "--addr", &address],
        &environment,
    );
    fixture.cluster.answers("toy-2", WAIT_TIMEOUT).await;
    environment.retain(|(name, _)| *name != "SWITCHBOARD_TOKEN");
    environment.push(("SWITCHBOARD_TOKEN", altered(&token)));
    let refused = Program::launch(
        &["device", "--id", "toy-1", "--addr", &address],
        &environment,
    );
    eventually(
        WAIT_TIMEOUT,
        async || refused.logged(),
        |log| log.contains("rejected"),
    )
    .await;

    use_http(&mut fixture).await;
    misuse_http(&mut fixture, &token).await;
    misuse_edge(&mut fixture, &token).await;
    fail_webhooks(&mut fixture).await;
    tokio::task::block_in_place(|| misconfigure(&mut fixture));
    read_admin_ports(&mut fixture).await;
    revoke_redis_password(&fixture).await;
    read_admin_ports(&mut fixture).await;

    for export in fixture.collector.exports() {
        fixture.witness.saw("spans", export);
    }
    let programs = fixture
        .programs()
        .chain([("device", &device), ("refused device", &refused)]);
    let logs: Vec<_> = programs
        .map(|(name, program)| (name, program.logged()))
        .collect();
    for (name, log) in logs {
        assert!(!log.is_empty(), "{name}");
        fixture.witness.saw(format!("the log of {name}"), log);
    }
    assert!(!fixture.collector.exports().is_empty());
    fixture.witness.assert_nothing_leaked();
}
