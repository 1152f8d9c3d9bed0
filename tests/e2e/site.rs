//! A system whose conversations are answered by a stand-in for a language model, and its HTTP API as an administrator uses it.
//! Never: a model that is somebody else's, or anything shared with another test.

use std::{fmt::Write as _, time::Duration};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    data_folder::Folder, device::Device, eventually::eventually, plant::Plant, program::Program,
    provider::Provider,
};

/// What the stand-in's model is called.
pub const MODEL: &str = "stand-in-1";
const SOON: Duration = Duration::from_secs(30);

/// Where a system is found, and the key of its organisation.
pub struct Site {
    pub http: reqwest::Client,
    pub key: String,
    /// Where settings are made.
    pub settings: String,
    /// Where people talk to NPCs.
    pub talk: String,
    /// The admin port of the process that answers.
    pub admin: String,
    /// Where devices dial in.
    pub devices: Vec<String>,
}

/// Processes of their own for everything.
pub struct Stage {
    pub plant: Plant,
    pub provider: Provider,
    pub chat: Program,
    pub site: Site,
    settings: Vec<(&'static str, String)>,
}

/// One process for everything.
pub struct UpStage {
    pub provider: Provider,
    pub site: Site,
    _up: Program,
    _folder: Folder,
}

/// What makes a process ask this provider.
pub fn asking(provider: &Provider) -> [(&'static str, String); 2] {
    [
        ("SWITCHBOARD_COMPLETIONS_ENDPOINT", provider.url.clone()),
        ("SWITCHBOARD_COMPLETIONS_MODEL", MODEL.to_owned()),
    ]
}

/// A process that answers what people say.
pub fn start_chat(plant: &Plant, settings: &[(&'static str, String)]) -> Program {
    let environment = [plant.environment(), settings.to_vec()].concat();
    Program::start(&["chat", "--http-listen", "127.0.0.1:0"], &environment)
}

impl Stage {
    /// So many edges, and one process that answers, with these settings of its own.
    pub async fn set(edges: usize, settings: &[(&'static str, &str)]) -> Self {
        Self::set_with(Provider::start().await, edges, settings).await
    }

    /// The same, asking this provider.
    pub async fn set_with(
        provider: Provider,
        edges: usize,
        settings: &[(&'static str, &str)],
    ) -> Self {
        Self::on(Plant::start(edges).await, provider, settings)
    }

    /// The same, where there is a plant.
    pub fn on(plant: Plant, provider: Provider, settings: &[(&'static str, &str)]) -> Self {
        let own = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let settings: Vec<_> = asking(&provider).into_iter().chain(own).collect();
        let chat = start_chat(&plant, &settings);
        let site = Site::of(&plant, &chat);
        Self {
            plant,
            provider,
            chat,
            site,
            settings,
        }
    }

    /// Another process that answers, beside the first.
    pub fn another_chat(&self) -> Program {
        start_chat(&self.plant, &self.settings)
    }
}

impl UpStage {
    pub async fn set() -> Self {
        let provider = Provider::start().await;
        let folder = Folder::new();
        let up = Program::start(&folder.up_arguments(&[]), &asking(&provider));
        let site = Site {
            http: reqwest::Client::new(),
            key: up.address("api_key"),
            settings: up.address("http_url"),
            talk: up.address("http_url"),
            admin: up.address("admin_url"),
            devices: vec![up.address("device_addr")],
        };
        Self {
            provider,
            site,
            _up: up,
            _folder: folder,
        }
    }
}

impl Site {
    /// A plant, and a process that answers beside it.
    pub fn of(plant: &Plant, chat: &Program) -> Self {
        let devices = plant.edges.iter().map(|edge| edge.address("device_addr"));
        Self {
            http: plant.http.clone(),
            key: plant.org.key.clone(),
            settings: plant.control.address("http_url"),
            talk: chat.address("http_url"),
            admin: chat.address("admin_url"),
            devices: devices.collect(),
        }
    }

    /// Waits until so many turns have ended so.
    pub async fn turns_ended(&self, how: &str, count: u32) {
        let url = format!("{}/metrics", self.admin);
        let metrics = async || {
            let answer = self.http.get(&url).send().await.unwrap();
            answer.text().await.unwrap()
        };
        let line = format!("switchboard_chat_turns_total{{end=\"{how}\"}} {count}\n");
        eventually(SOON, metrics, |text| text.contains(&line)).await;
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

    async fn made(&self, path: &str, body: &Value) -> String {
        let (status, made) = self.ask(Method::POST, path, body).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        made["id"].as_str().unwrap_or_default().to_owned()
    }

    /// A device at one of the addresses.
    pub async fn device(&self, address: usize, id: &str) -> Device {
        let body = json!({"subject": format!("device:{id}"), "scopes": ["device"], "ttl_s": 600});
        let (status, token) = self.ask(Method::POST, "/v1/tokens", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{token}");
        let token = token["access_token"].as_str().unwrap();
        Device::connect(&self.devices[address], token).await
    }

    /// An NPC with these settings that speaks through these devices; its id.
    pub async fn npc(&self, settings: &Value, devices: &[&str]) -> String {
        let document = json!({"overrides": settings, "device_ids": devices});
        self.made("/v1/npcs", &document).await
    }

    /// Has an NPC remember something about somebody.
    pub async fn remind(&self, npc: &str, subject: &str, text: &str) {
        let memory = json!({"text": text, "subject": subject});
        self.made(&format!("/v1/npcs/{npc}/memories"), &memory)
            .await;
    }

    /// What an NPC remembers.
    pub async fn memories(&self, npc: &str) -> Vec<Value> {
        let path = format!("/v1/npcs/{npc}/memories");
        let (status, found) = self.ask(Method::GET, &path, &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{found}");
        found["memories"].as_array().unwrap().clone()
    }

    /// What an NPC remembers, once it is so much.
    pub async fn memories_when(&self, npc: &str, count: usize) -> Vec<Value> {
        let found = async || self.memories(npc).await;
        eventually(SOON, found, |found| found.len() >= count).await
    }

    /// A skills book that has been read; its id.
    pub async fn book(&self, name: &str, text: &str) -> String {
        let digest = Sha256::digest(text);
        let sha256 = digest.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        let book = json!({"name": name, "mime_type": "text/plain", "size_bytes": text.len(), "sha256": sha256});
        let id = self.made("/v1/skills-books", &book).await;
        let path = format!("/v1/skills-books/{id}");
        let part = format!("{path}/parts/1");
        let (status, sent) = self.send(Method::PUT, &part, text.into()).await;
        assert_eq!(status, StatusCode::OK, "{sent}");
        let finish = format!("{path}/finish");
        let (status, sent) = self.send(Method::POST, &finish, Vec::new()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{sent}");
        let state = async || self.send(Method::GET, &path, Vec::new()).await.1["state"].clone();
        eventually(SOON, state, |state| *state == "ready").await;
        id
    }

    /// The NPC that answers for devices through which none speaks.
    pub async fn answers_for_all(&self, npc: &str) {
        let url = format!("{}/v1/org", self.settings);
        let shown = self.http.get(&url).bearer_auth(&self.key).send();
        let shown = shown.await.unwrap();
        let change = self.http.patch(&url).bearer_auth(&self.key);
        let change = change.header("if-match", &shown.headers()["etag"]);
        let change = change.header("content-type", "application/merge-patch+json");
        let change = change.body(json!({"default_npc_id": npc}).to_string());
        let changed = change.send().await.unwrap();
        assert_eq!(changed.status(), StatusCode::OK);
    }
}
