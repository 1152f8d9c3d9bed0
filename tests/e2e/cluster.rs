//! A cluster for one test: Redis, database and nodes of its own, not shared with another test.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_store::testing::TestDatabase;

use crate::device::Device;
use secrecy::ExposeSecret;
use switchboard_test_support::{
    eventually::eventually, redis_server::RedisServer, switchboard::Program,
};

pub const OPERATOR_KEY: &str = "operator-key-of-this-test";
pub const ANY_PORT: &str = "127.0.0.1:0";

pub struct TestCluster {
    pub redis: RedisServer,
    pub database: TestDatabase,
    pub control: Program,
    pub edges: Vec<Program>,
    pub gateway: Program,
    pub org: Org,
    pub http: reqwest::Client,
}

/// An organisation and its API key.
#[derive(Clone)]
pub struct Org {
    pub id: String,
    pub key: String,
}

impl TestCluster {
    /// Starts one control plane, one gateway, and this many edges.
    pub async fn start(edges: usize) -> Self {
        Self::start_with(edges, &[]).await
    }

    /// Starts the cluster with these settings for every process.
    pub async fn start_with(edges: usize, settings: &[(&str, &str)]) -> Self {
        let database = TestDatabase::create().await.expect("a database");
        Self::start_at((RedisServer::start(), database), edges, settings).await
    }

    /// Starts the cluster at these servers. Settings replace those of the cluster.
    pub async fn start_at(
        (redis, database): (RedisServer, TestDatabase),
        edges: usize,
        settings: &[(&str, &str)],
    ) -> Self {
        let environment = environment(&redis.url(), &database, settings);
        let control = Program::start(&["control", "--http-listen", ANY_PORT], &environment);
        let gateway = Program::start(&["gateway", "--http-listen", ANY_PORT], &environment);
        let edges = (0..edges).map(|_| start_edge(&environment)).collect();
        let http = reqwest::Client::new();
        let org = create_org(&http, &control.address("http_url"), "first").await;
        let cluster = Self {
            redis,
            database,
            control,
            edges,
            gateway,
            org,
            http,
        };
        cluster.wait_ready().await;
        cluster
    }

    /// Waits until every node has the token keys, which are published in the background.
    pub async fn wait_ready(&self) {
        for program in self.edges.iter().chain([&self.gateway]) {
            self.await_ready(program).await;
        }
    }

    /// Waits until a process is ready.
    pub async fn await_ready(&self, program: &Program) {
        let url = format!("{}/readyz", program.address("admin_url"));
        let status = async || self.http.get(&url).send().await.unwrap().status();
        let is_ready = |status: &StatusCode| *status == StatusCode::OK;
        eventually(Duration::from_secs(10), status, is_ready).await;
    }

    /// All running processes.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.edges.iter().chain([&self.control, &self.gateway])
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        environment(&self.redis.url(), &self.database, &[])
    }

    pub async fn another_org(&self, name: &str) -> Org {
        create_org(&self.http, &self.control.address("http_url"), name).await
    }

    /// Suspends an organisation, or lifts that.
    pub async fn set_suspended(&self, org: &Org, suspended: bool) {
        let url = format!("{}/v1/orgs/{}", self.control.address("http_url"), org.id);
        let request = self.http.patch(url).bearer_auth(OPERATOR_KEY);
        let changed = request.json(&json!({"suspended": suspended})).send();
        assert_eq!(changed.await.unwrap().status(), StatusCode::OK);
    }

    /// Starts another edge.
    pub async fn add_edge(&mut self) {
        let edge = start_edge(&self.environment());
        self.edges.push(edge);
        self.wait_ready().await;
    }

    pub async fn token(&self, org: &Org, subject: &str, scopes: &[&str]) -> Value {
        let control = self.control.address("http_url");
        issue_token(&self.http, &control, org, subject, scopes).await
    }

    pub async fn device_token(&self, id: &str) -> String {
        let token = self
            .token(&self.org, &format!("device:{id}"), &["device"])
            .await;
        token["access_token"].as_str().unwrap().to_owned()
    }

    /// A device of the first organisation, connected to one of the edges.
    pub async fn device(&self, edge: usize, id: &str) -> Device {
        let token = self.device_token(id).await;
        Device::connect(&self.edges[edge].address("device_addr"), &token).await
    }

    /// A device of an organisation, connected to the first edge.
    pub async fn device_of(&self, org: &Org, id: &str) -> Device {
        let token = self.token(org, &format!("device:{id}"), &["device"]).await;
        let token = token["access_token"].as_str().unwrap();
        Device::connect(&self.edges[0].address("device_addr"), token).await
    }

    /// A connected device with an `echo` service. The test answers its calls.
    pub async fn echo(&self, edge: usize, id: &str) -> Device {
        let mut device = self.device(edge, id).await;
        device.register(&echo_services()).await;
        device
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.gateway.address("http_url"))
    }

    pub async fn call(&self, device: &str, body: &Value) -> (StatusCode, Value) {
        self.call_as(&self.org, device, body).await
    }

    pub async fn call_as(&self, org: &Org, device: &str, body: &Value) -> (StatusCode, Value) {
        let url = self.url(&format!("/v1/devices/{device}/calls"));
        let answer = self
            .http
            .post(url)
            .bearer_auth(&org.key)
            .json(body)
            .send()
            .await
            .unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        let answer = self
            .http
            .get(self.url(path))
            .bearer_auth(&self.org.key)
            .send()
            .await
            .unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    /// Waits until an echo call to this device succeeds.
    pub async fn answers(&self, device: &str, within: Duration) {
        let body = json!({"service": "echo", "params": {"text": "again"}, "timeout_ms": 1000});
        let outcome = async || self.call(device, &body).await.1["outcome"].clone();
        eventually(within, outcome, |outcome| *outcome == "succeeded").await;
    }
}

fn environment(
    redis: &str,
    database: &TestDatabase,
    settings: &[(&str, &str)],
) -> Vec<(&'static str, String)> {
    let mut environment = vec![
        ("REDIS_URL", redis.to_owned()),
        ("DATABASE_URL", database.url().expose_secret().to_owned()),
        ("SWITCHBOARD_OPERATOR_KEY", OPERATOR_KEY.to_owned()),
        ("SWITCHBOARD_ADMIN_LISTEN", ANY_PORT.to_owned()),
        ("SWITCHBOARD_DEVICE_LISTEN", ANY_PORT.to_owned()),
        ("SWITCHBOARD_LOG", "info".to_owned()),
    ];
    environment.extend(
        settings
            .iter()
            .map(|(name, value)| (leak(name), (*value).to_owned())),
    );
    environment
}

/// Leaks the name of a setting. Test programs are short-lived.
fn leak(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}

fn start_edge(environment: &[(&str, String)]) -> Program {
    Program::start(&["edge"], environment)
}

pub async fn create_org(http: &reqwest::Client, control: &str, name: &str) -> Org {
    let created = http
        .post(format!("{control}/v1/orgs"))
        .bearer_auth(OPERATOR_KEY)
        .json(&json!({"name": name}))
        .send()
        .await
        .unwrap();
    assert_eq!(created.status(), StatusCode::CREATED);
    let created: Value = created.json().await.unwrap();
    let text = |field: &str| created[field].as_str().unwrap().to_owned();
    Org {
        id: text("org_id"),
        key: text("api_key"),
    }
}

pub async fn issue_token(
    http: &reqwest::Client,
    control: &str,
    org: &Org,
    subject: &str,
    scopes: &[&str],
) -> Value {
    let body = json!({"subject": subject, "scopes": scopes, "ttl_s": 600});
    let request = http.post(format!("{control}/v1/tokens"));
    let answer = request.bearer_auth(&org.key).json(&body).send();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    answer.json().await.unwrap()
}

pub fn echo_services() -> String {
    let parameters = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "maxLength": 64},
            "times": {"type": "integer", "minimum": 1, "maximum": 9},
            "mood": {"enum": ["calm", "loud"]},
        },
        "required": ["text"],
    });
    json!({"echo": {"description": "Returns its text", "parameters": parameters}}).to_string()
}
