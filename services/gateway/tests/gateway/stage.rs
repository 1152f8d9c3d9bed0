//! Everything around one gateway, and an edge whose services do what their names say.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use chrono::Utc;
use parking_lot::Mutex;
use reqwest::{Method, RequestBuilder, StatusCode};
use secrecy::ExposeSecret;
use serde_json::Value;
use switchboard_bus::{
    Answer, Bus, BusConfig, Epoch, Holding, Host, InboundCall, LeftReason, LocalHub, Notice,
    NoticeKind, ReplyTo, Text,
};
use switchboard_gateway::Config;
use switchboard_identity::{ApiKeySecret, Authenticator};
use switchboard_protocol::{
    access::{Claims, Scope, SigningKey, Subject},
    id::{ApiKeyId, CallId, DeviceKey, OrgId, TokenId},
    outcome::{Outcome, Refusal, Violation},
    schema::Digest,
};
use switchboard_runtime::{http, problem, shutdown::Shutdown};
use switchboard_store::{DeviceFact, DeviceNews, NewApiKey, Objects, Store, testing::TestDatabase};
use uuid::Uuid;

/// How long anything in a test may take.
pub(crate) const LONG: Duration = Duration::from_secs(10);
pub(crate) const SERVICES: &str = r#"{"echo":{"description":"回声","parameters":{}}}"#;

/// One gateway with all it needs.
pub(crate) struct Stage {
    pub(crate) database: TestDatabase,
    /// With a place for pictures.
    pub(crate) store: Store,
    _objects: tempfile::TempDir,
    pub(crate) org: OrgId,
    pub(crate) edge: Arc<Edge>,
    pub(crate) registry: prometheus::Registry,
    base: String,
    key: ApiKeySecret,
    client: reqwest::Client,
    shutdown: Shutdown,
}

/// Plays the node that holds the devices.
pub(crate) struct Edge {
    pub(crate) bus: Bus,
    /// Calls that reached a device.
    pub(crate) seen: Mutex<Vec<CallId>>,
    /// The devices that they reached.
    pub(crate) called: Mutex<Vec<String>>,
    /// Calls that their callers gave up.
    pub(crate) cancelled: Mutex<Vec<CallId>>,
    /// Calls of `silent`, which the device is still at.
    pub(crate) unanswered: Mutex<Vec<(CallId, ReplyTo)>>,
    /// How often `busy` refuses before it answers.
    pub(crate) refusals: Mutex<usize>,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Stage {
    /// Fails unless this begins a line of what is counted.
    #[track_caller]
    pub(crate) fn must_show(&self, beginning: &str) {
        let families = self.registry.gather();
        let shown = prometheus::TextEncoder::new().encode_to_string(&families);
        let shown = shown.unwrap();
        let is_there = shown.lines().any(|line| line.starts_with(beginning));
        assert!(is_there, "{beginning} is not in {shown}");
    }

    pub(crate) async fn set() -> Self {
        let hub = LocalHub::default();
        let bus = BusConfig::local(&hub, "gateway").following_offers();
        Self::with_bus(&hub, bus).await
    }

    /// A gateway with settings of its own.
    pub(crate) async fn with_flags(flags: &[&str]) -> Self {
        let hub = LocalHub::default();
        let bus = BusConfig::local(&hub, "gateway").following_offers();
        Self::build(&hub, bus, flags).await
    }

    /// A gateway whose way to the bus is given; the edge is at the hub.
    pub(crate) async fn with_bus(hub: &LocalHub, config: BusConfig) -> Self {
        Self::build(hub, config, &[]).await
    }

    async fn build(hub: &LocalHub, config: BusConfig, flags: &[&str]) -> Self {
        let shutdown = Shutdown::new();
        let bus = Bus::start(config, &prometheus::Registry::new(), &shutdown).unwrap();
        let edge_bus = BusConfig::local(hub, "edge");
        let edge_bus = Bus::start(edge_bus, &prometheus::Registry::new(), &shutdown).unwrap();
        let edge = Arc::new(Edge {
            bus: edge_bus,
            seen: Mutex::default(),
            called: Mutex::default(),
            cancelled: Mutex::default(),
            unanswered: Mutex::default(),
            refusals: Mutex::default(),
        });
        edge.bus.attach(edge.clone());
        let database = TestDatabase::create().await.unwrap();
        let objects = tempfile::tempdir().unwrap();
        let kept = Objects::in_folder(objects.path()).unwrap();
        let store = database.store().clone().with_objects(Some(kept));
        let store_kept = store.clone();
        let authenticator = Authenticator::new(store.clone(), bus.clone());
        let registry = prometheus::Registry::new();
        let config = config_of(flags);
        let limits = config.http_limits();
        let router =
            switchboard_gateway::router(&config, store, bus, authenticator, &registry, &shutdown)
                .unwrap();
        let listener = http::listen("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = router.fallback(problem::not_found);
        shutdown.spawn(http::serve(listener, router, limits, shutdown.clone()));
        let org = OrgId::from_uuid(Uuid::now_v7());
        let key = ApiKeySecret::generate();
        let first = api_key(&key, &[Scope::Call, Scope::Read]);
        database
            .store()
            .create_org(org, "test", &first)
            .await
            .unwrap();
        // The client is built to speak TLS too, and wants to know how; a second answer changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::new();
        Self {
            database,
            store: store_kept,
            _objects: objects,
            org,
            edge,
            registry,
            base,
            key,
            client,
            shutdown,
        }
    }

    /// Tells the gateway to finish.
    pub(crate) fn drain(&self) {
        self.shutdown.drain();
    }

    pub(crate) fn device(&self, id: &str) -> DeviceKey {
        DeviceKey {
            org: self.org,
            device: id.parse().unwrap(),
        }
    }

    /// Puts a device into the directory, with services.
    pub(crate) async fn connect(&self, id: &str) -> Epoch {
        self.connect_with(id, SERVICES).await
    }

    pub(crate) async fn connect_with(&self, id: &str, services: &str) -> Epoch {
        let device = self.device(id);
        let epoch = self.edge.bus.claim(&device).await.unwrap();
        self.register(id, epoch, services).await;
        epoch
    }

    /// Puts a set of services in place of what a device registered before.
    pub(crate) async fn register(&self, id: &str, epoch: Epoch, services: &str) {
        let json = Bytes::from(services.to_owned());
        let registration = (Digest::of(&json), &json);
        let device = self.device(id);
        let announced = self.edge.bus.announce(&device, epoch, None, registration);
        announced.await.unwrap();
    }

    pub(crate) fn disconnect(&self, id: &str, epoch: Epoch) {
        let digest = Digest::of(SERVICES.as_bytes());
        self.edge
            .bus
            .release(self.device(id), epoch, Some(digest), LeftReason::Closed);
    }

    /// Puts a device on record that was there once.
    pub(crate) async fn remember(&self, id: &str) {
        let fact = |news| DeviceFact {
            device: self.device(id),
            epoch: 1,
            at: Utc::now(),
            news,
        };
        let digest = Digest::of(SERVICES.as_bytes());
        let facts = [
            fact(DeviceNews::Connected),
            fact(DeviceNews::Registered {
                digest,
                services: Some(SERVICES.to_owned()),
            }),
            fact(DeviceNews::Left {
                reason: LeftReason::IdleTimeout.as_str(),
            }),
        ];
        self.database.store().record(&facts).await.unwrap();
    }

    /// A key of another organisation of the same installation.
    pub(crate) async fn another_org(&self) -> ApiKeySecret {
        let secret = ApiKeySecret::generate();
        let first = api_key(&secret, &[Scope::Call, Scope::Read]);
        let org = OrgId::from_uuid(Uuid::now_v7());
        let store = self.database.store();
        store.create_org(org, "another", &first).await.unwrap();
        secret
    }

    /// Another key of the same organisation.
    pub(crate) async fn add_key(&self, scopes: &[Scope]) -> ApiKeySecret {
        let secret = ApiKeySecret::generate();
        let key = api_key(&secret, scopes);
        self.database
            .store()
            .create_api_key(self.org, &key)
            .await
            .unwrap();
        secret
    }

    /// A key of another organisation, which may do everything.
    pub(crate) async fn foreign_key(&self) -> ApiKeySecret {
        let secret = ApiKeySecret::generate();
        let org = OrgId::from_uuid(Uuid::now_v7());
        let first = api_key(&secret, &Scope::ALL);
        let made = self
            .database
            .store()
            .create_org(org, "foreign", &first)
            .await;
        made.unwrap();
        secret
    }

    pub(crate) async fn revoke_key(&self, key: &ApiKeySecret) {
        let store = self.database.store();
        let known = store.api_key_by_hash(&key.hash()).await.unwrap().unwrap();
        store.revoke_api_key(self.org, known.id).await.unwrap();
    }

    /// An access token of a client of the organisation, good for this long, and its id.
    pub(crate) async fn issue_token(&self, good_for: Duration) -> (String, TokenId, u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let claims = Claims {
            id: TokenId::from_uuid(Uuid::now_v7()),
            org: self.org,
            subject: Subject::Client("agent".parse().unwrap()),
            scopes: [Scope::Call].into_iter().collect(),
            issued_at: now.as_secs(),
            expires_at: (now + good_for).as_secs(),
        };
        let signing = SigningKey::from_seed(&[7; 32]);
        let keys = vec![signing.verifying_key()];
        self.edge.bus.publish_trust(keys, vec![]).await.unwrap();
        (signing.sign(&claims).unwrap(), claims.id, claims.expires_at)
    }

    pub(crate) fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_as(&self.key, method, path)
    }

    /// A request of somebody without any credential.
    pub(crate) fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        request.timeout(LONG)
    }

    pub(crate) fn request_as(
        &self,
        key: &ApiKeySecret,
        method: Method,
        path: &str,
    ) -> RequestBuilder {
        let request = self.anonymous(method, path);
        request.bearer_auth(key.expose_secret())
    }

    pub(crate) fn calling(&self, device: &str, body: &str) -> RequestBuilder {
        let request = self.request(Method::POST, &format!("/v1/devices/{device}/calls"));
        request
            .header("content-type", "application/json")
            .body(body.to_owned())
    }

    pub(crate) async fn call(&self, device: &str, body: &str) -> Response {
        send(self.calling(device, body)).await
    }

    /// What became of a call, once it has ended or after a while.
    pub(crate) async fn end_of(&self, id: &Value) -> Response {
        let path = format!("/v1/calls/{}?wait_ms=9000", id.as_str().unwrap());
        self.get(&path).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        send(self.request(Method::GET, path)).await
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

pub(crate) async fn send(request: RequestBuilder) -> Response {
    let response = request.send().await.unwrap();
    let status = response.status();
    let headers = response.headers().clone();
    let text = response.text().await.unwrap();
    let json = if status == StatusCode::NO_CONTENT {
        Value::Null
    } else {
        let media_type = if status.is_success() {
            "application/json"
        } else {
            "application/problem+json"
        };
        assert_eq!(headers["content-type"], media_type, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    Response {
        status: status.as_u16(),
        headers,
        text,
        json,
    }
}

/// Asks until the answer is the one waited for.
pub(crate) async fn until(mut there: impl FnMut() -> bool) {
    let patient = async {
        while !there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, patient).await.unwrap();
}

fn api_key(secret: &ApiKeySecret, scopes: &[Scope]) -> NewApiKey {
    NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "test".to_owned(),
        prefix: secret.shown_prefix().to_owned(),
        secret_hash: secret.hash(),
        scopes: scopes.iter().copied().collect(),
    }
}

fn config_of(flags: &[&str]) -> Config {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        gateway: Config,
    }
    let flags = ["gateway"].iter().chain(flags);
    <Flags as clap::Parser>::parse_from(flags).gateway
}

/// A device's result that asks for more.
const QUESTION: &str = r#"{"success":false,"error":"who are you?","input_required":{"requests":{
    "name":{"method":"elicitation/create","params":{"message":"Who\u200b?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}},
    "roots":{"method":"roots/list","params":{}}
},"state":{"step":1}}}"#;
/// A device's result with an image in it.
const PICTURE: &str = r#"{"success":true,"content":[{"type":"text","text":"看"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]}"#;

impl Edge {
    /// Where the answer to the next call of `silent` goes, once it is there.
    pub(crate) async fn next_unanswered(&self) -> (CallId, ReplyTo) {
        until(|| !self.unanswered.lock().is_empty()).await;
        self.unanswered.lock().remove(0)
    }

    fn refuses(&self) -> bool {
        let mut left = self.refusals.lock();
        let refuses = *left > 0;
        *left = left.saturating_sub(1);
        refuses
    }

    /// Says a few things about a call before it is answered.
    fn talk(&self, call: &InboundCall) {
        let said = [
            (
                NoticeKind::Progress,
                r#"{"progress":1,"total":2,"message":"半"}"#,
            ),
            (NoticeKind::Log, r#"{"level":"debug","message":"quiet"}"#),
            (NoticeKind::Log, r#"{"level":"warn","message":"hot"}"#),
            (NoticeKind::Progress, r#"{"progress":1}"#),
            (NoticeKind::Progress, r#"{"progress":2,"total":2}"#),
        ];
        for (kind, data) in said {
            let data = Bytes::from_static(data.as_bytes());
            self.bus.notify(&call.reply, Notice { kind, data });
        }
    }
}

impl Host for Edge {
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo> {
        let refused = |outcome| Answer::ended(outcome, "refused by the edge");
        let answer = match &*call.service {
            "not_here" => return Err(call.reply),
            "unknown" => refused(Outcome::UnknownService),
            "overloaded" => refused(Outcome::Overloaded),
            "busy" if self.refuses() => refused(Outcome::Overloaded),
            "lost" => refused(Outcome::Lost),
            "invalid" => {
                let error = Violation {
                    pointer: "/a".to_owned(),
                    detail: "no".to_owned(),
                };
                let detail = "The params do not match.".to_owned();
                Answer::refused(
                    Outcome::Invalid,
                    &Refusal {
                        detail,
                        errors: vec![error],
                    },
                )
            }
            service => {
                self.seen.lock().push(call.id);
                self.called.lock().push(call.device.to_string());
                match service {
                    "silent" => {
                        self.unanswered.lock().push((call.id, call.reply));
                        return Ok(());
                    }
                    "talk" => {
                        self.talk(&call);
                        Answer::result(true, Bytes::from_static(b"{\"success\":true}"))
                    }
                    "ask" if call.input.is_empty() => {
                        Answer::result(false, Bytes::from_static(QUESTION.as_bytes()))
                    }
                    "ask" => {
                        let input = std::str::from_utf8(&call.input).unwrap();
                        Answer::result(true, format!(r#"{{"success":true,"data":{input}}}"#).into())
                    }
                    "picture" => Answer::result(true, Bytes::from_static(PICTURE.as_bytes())),
                    "fail" => Answer::result(
                        false,
                        Bytes::from_static(b"{\"success\":false,\"error\":\"broken\"}"),
                    ),
                    _ => {
                        let params = std::str::from_utf8(&call.params).unwrap();
                        let body = format!("{{ \"success\" : true, \"data\":{params}}}");
                        Answer::result(true, body.into())
                    }
                }
            }
        };
        self.bus.answer(&call.reply, answer);
        Ok(())
    }

    fn cancel(&self, _org: OrgId, _device: &str, call: CallId) {
        self.cancelled.lock().push(call);
    }

    fn takeover(&self, _org: OrgId, _device: &str, _epoch: Epoch) {}

    fn say(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: Text) {}

    fn busy(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {}

    fn finish(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: bool) {}

    fn held(&self) -> Vec<Holding> {
        Vec::new()
    }
}
