//! Fixtures with a fake language-model provider, and the HTTP API as an administrator uses it.

use std::{fmt::Write as _, time::Duration};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use switchboard_bus::{Bus, BusConfig};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_test_support::{
    data_folder::DataFolder, eventually::eventually, switchboard::Program,
};

use crate::{cluster::TestCluster, device::Device, provider::Provider};

/// The model name of the fake provider.
pub const MODEL: &str = "stand-in-1";
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The addresses of a system, and the API key of its organisation.
pub struct TestSystem {
    pub http: reqwest::Client,
    pub key: String,
    /// The URL of the control plane.
    pub settings: String,
    /// The URL of the chat service.
    pub talk: String,
    /// The admin URL of the chat process.
    pub admin: String,
    /// The addresses of the edges.
    pub devices: Vec<String>,
}

/// A system with one process for each service.
pub struct ChatFixture {
    pub cluster: TestCluster,
    pub provider: Provider,
    pub chat: Program,
    pub system: TestSystem,
    settings: Vec<(&'static str, String)>,
}

/// A system in one process.
pub struct UpFixture {
    pub provider: Provider,
    pub system: TestSystem,
    _up: Program,
    _folder: DataFolder,
}

/// The settings that make a process use this provider.
pub fn provider_settings(provider: &Provider) -> [(&'static str, String); 2] {
    [
        ("SWITCHBOARD_COMPLETIONS_ENDPOINT", provider.url.clone()),
        ("SWITCHBOARD_COMPLETIONS_MODEL", MODEL.to_owned()),
    ]
}

/// Starts a chat process.
pub fn start_chat(cluster: &TestCluster, settings: &[(&'static str, String)]) -> Program {
    let environment = [cluster.environment(), settings.to_vec()].concat();
    Program::start(&["chat", "--http-listen", "127.0.0.1:0"], &environment)
}

impl ChatFixture {
    /// Starts this many edges and one chat process with these settings.
    pub async fn start(edges: usize, settings: &[(&'static str, &str)]) -> Self {
        Self::start_with(Provider::start().await, edges, settings).await
    }

    /// Starts the system with this provider.
    pub async fn start_with(
        provider: Provider,
        edges: usize,
        settings: &[(&'static str, &str)],
    ) -> Self {
        Self::with_cluster(TestCluster::start(edges).await, provider, settings)
    }

    /// Starts a chat process with an existing cluster.
    pub fn with_cluster(
        cluster: TestCluster,
        provider: Provider,
        settings: &[(&'static str, &str)],
    ) -> Self {
        let own = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let settings: Vec<_> = provider_settings(&provider)
            .into_iter()
            .chain(own)
            .collect();
        let chat = start_chat(&cluster, &settings);
        let system = TestSystem::new(&cluster, &chat);
        Self {
            cluster,
            provider,
            chat,
            system,
            settings,
        }
    }

    /// A bus of the cluster that acts as an edge.
    pub async fn edge_bus(&self) -> (Bus, Shutdown) {
        let (shutdown, registry) = (Shutdown::new(), prometheus::Registry::new());
        let redis = BusConfig::redis(&self.cluster.redis.url().into(), "edge", "sb");
        let edge = Bus::start(redis, &registry, &shutdown).unwrap();
        edge.wait_ready(WAIT_TIMEOUT).await.unwrap();
        (edge, shutdown)
    }

    /// Starts another chat process.
    pub fn another_chat(&self) -> Program {
        start_chat(&self.cluster, &self.settings)
    }
}

impl UpFixture {
    pub async fn start() -> Self {
        let provider = Provider::start().await;
        let folder = DataFolder::new();
        let up = Program::start(&folder.up_arguments(&[]), &provider_settings(&provider));
        let system = TestSystem {
            http: reqwest::Client::new(),
            key: up.address("api_key"),
            settings: up.address("http_url"),
            talk: up.address("http_url"),
            admin: up.address("admin_url"),
            devices: vec![up.address("device_addr")],
        };
        Self {
            provider,
            system,
            _up: up,
            _folder: folder,
        }
    }
}

impl TestSystem {
    /// The addresses of a cluster and its chat process.
    pub fn new(cluster: &TestCluster, chat: &Program) -> Self {
        let devices = cluster.edges.iter().map(|edge| edge.address("device_addr"));
        Self {
            http: cluster.http.clone(),
            key: cluster.org.key.clone(),
            settings: cluster.control.address("http_url"),
            talk: chat.address("http_url"),
            admin: chat.address("admin_url"),
            devices: devices.collect(),
        }
    }

    /// Waits until this number of turns has ended with this outcome.
    pub async fn turns_ended(&self, how: &str, count: u32) {
        let line = format!("switchboard_chat_turns_total{{end=\"{how}\"}} {count}\n");
        self.metric(&line).await;
    }

    /// Waits until the chat process has this line among its metrics.
    pub async fn metric(&self, line: &str) {
        let url = format!("{}/metrics", self.admin);
        let metrics = async || {
            let answer = self.http.get(&url).send().await.unwrap();
            answer.text().await.unwrap()
        };
        eventually(WAIT_TIMEOUT, metrics, |text| text.contains(line)).await;
    }

    pub async fn ask(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into()
        };
        self.send(method, path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
        let request = self
            .http
            .request(method, format!("{}{path}", self.settings));
        let request = request.header("content-type", "application/json");
        let answer = request.bearer_auth(&self.key).body(body).send();
        let answer = answer.await.unwrap();
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    async fn create(&self, path: &str, body: &Value) -> String {
        let (status, created) = self.ask(Method::POST, path, body).await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        created["id"].as_str().unwrap_or_default().to_owned()
    }

    /// Connects a device to one of the edges.
    pub async fn device(&self, address: usize, id: &str) -> Device {
        Device::connect(&self.devices[address], &self.token(id).await).await
    }

    /// Connects a device whose users speak this language.
    pub async fn device_in(&self, address: usize, id: &str, locale: &str) -> Device {
        let token = self.token(id).await;
        let mut device = Device::dial(&self.devices[address]).await;
        let hello = json!({"token": token, "locale": locale});
        let answer = device.introduce(&hello).await;
        assert_eq!(answer["data"]["success"], true, "{answer}");
        device
    }

    async fn token(&self, id: &str) -> String {
        let body = json!({"subject": format!("device:{id}"), "scopes": ["device"], "ttl_s": 600});
        let (status, token) = self.ask(Method::POST, "/v1/tokens", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{token}");
        token["access_token"].as_str().unwrap().to_owned()
    }

    /// Creates an NPC with these settings and devices. Returns its id.
    pub async fn npc(&self, settings: &Value, devices: &[&str]) -> String {
        let document = json!({"overrides": settings, "device_ids": devices});
        self.create("/v1/npcs", &document).await
    }

    /// Adds a memory about a user to an NPC.
    pub async fn remind(&self, npc: &str, subject: &str, text: &str) {
        let memory = json!({"text": text, "subject": subject});
        self.create(&format!("/v1/npcs/{npc}/memories"), &memory)
            .await;
    }

    /// The memories of an NPC.
    pub async fn memories(&self, npc: &str) -> Vec<Value> {
        let path = format!("/v1/npcs/{npc}/memories");
        let (status, found) = self.ask(Method::GET, &path, &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{found}");
        found["memories"].as_array().unwrap().clone()
    }

    /// The memories of an NPC, as soon as there are this many.
    pub async fn memories_when(&self, npc: &str, count: usize) -> Vec<Value> {
        let found = async || self.memories(npc).await;
        eventually(WAIT_TIMEOUT, found, |found| found.len() >= count).await
    }

    /// Creates a skills book and waits until it is ingested. Returns its id.
    pub async fn book(&self, name: &str, text: &str) -> String {
        let id = self.upload_book(name, text).await;
        self.ready_book(&id).await;
        id
    }

    /// A skills book, as soon as it is ingested.
    pub async fn ready_book(&self, id: &str) -> Value {
        let book = async || self.show_book(id).await;
        eventually(WAIT_TIMEOUT, book, |book| book["state"] == "ready").await
    }

    pub async fn show_book(&self, id: &str) -> Value {
        let path = format!("/v1/skills-books/{id}");
        let (_, book) = self.send(Method::GET, &path, Vec::new()).await;
        book
    }

    /// Creates a skills book, which is ingested afterwards. Returns its id.
    pub async fn upload_book(&self, name: &str, text: &str) -> String {
        let digest = Sha256::digest(text);
        let sha256 = digest.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        let book = json!({"name": name, "mime_type": "text/plain", "size_bytes": text.len(), "sha256": sha256});
        let id = self.create("/v1/skills-books", &book).await;
        let path = format!("/v1/skills-books/{id}");
        let part = format!("{path}/parts/1");
        let (status, sent) = self.send(Method::PUT, &part, text.into()).await;
        assert_eq!(status, StatusCode::OK, "{sent}");
        let finish = format!("{path}/finish");
        let (status, sent) = self.send(Method::POST, &finish, Vec::new()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{sent}");
        id
    }

    /// Makes an NPC the default for devices without an NPC.
    pub async fn set_default_npc(&self, npc: &str) {
        self.change_org(&json!({"default_npc_id": npc})).await;
    }

    /// Changes settings of the organisation.
    pub async fn change_org(&self, patch: &Value) {
        let url = format!("{}/v1/org", self.settings);
        let shown = self.http.get(&url).bearer_auth(&self.key).send();
        let shown = shown.await.unwrap();
        let change = self.http.patch(&url).bearer_auth(&self.key);
        let change = change.header("if-match", &shown.headers()["etag"]);
        let change = change.header("content-type", "application/merge-patch+json");
        let change = change.body(patch.to_string());
        let changed = change.send().await.unwrap();
        assert_eq!(changed.status(), StatusCode::OK);
    }
}
