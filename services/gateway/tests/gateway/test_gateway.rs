//! The test fixture: one gateway with a database and a local bus, and an edge node with devices.

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
    Answer, Bus, BusConfig, ConnectionOwner, DisconnectReason, Epoch, InboundCall, LiveConnection,
    LocalHub, Notification, NotificationKind, QuotaLimits, ReplyTo, Text,
};
use switchboard_gateway::{Config, Deps, Forwarding};
use switchboard_identity::{ApiKeySecret, Authenticator};
use switchboard_protocol::{
    id::{ApiKeyId, CallId, DeviceKey, OrgId, TokenId},
    outcome::{Outcome, Refusal, Violation},
    schema::Digest,
    token::{Claims, Scope, SigningKey, Subject},
};
use switchboard_runtime::{budget::Budgets, http, problem, shutdown::Shutdown};
use switchboard_store::{
    ApiKeyLimits, DeviceEvent, DeviceEventKind, NewApiKey, Objects, Store, testing::TestDatabase,
};
use switchboard_test_support::eventually::eventually_true;
use uuid::Uuid;

/// Limits every wait in a test.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const SERVICES: &str = r#"{"echo":{"description":"回声","parameters":{}}}"#;

pub(crate) struct TestGateway {
    pub(crate) database: TestDatabase,
    /// Has an object store for pictures.
    pub(crate) store: Store,
    _objects: tempfile::TempDir,
    pub(crate) org: OrgId,
    /// The gateway's node.
    pub(crate) bus: Bus,
    pub(crate) edge: Arc<TestEdge>,
    pub(crate) registry: prometheus::Registry,
    pub(crate) budgets: Budgets,
    base: String,
    pub(crate) key: ApiKeySecret,
    client: reqwest::Client,
    shutdown: Shutdown,
}

/// The owner node of all devices. The name of a service selects what the device does.
pub(crate) struct TestEdge {
    pub(crate) bus: Bus,
    /// Calls that reached a device.
    pub(crate) received: Mutex<Vec<CallId>>,
    /// The registration that each of these calls is for.
    pub(crate) registrations: Mutex<Vec<Option<Digest>>>,
    /// The devices that they reached, in order.
    pub(crate) called: Mutex<Vec<String>>,
    /// Calls that their callers cancelled.
    pub(crate) cancelled: Mutex<Vec<CallId>>,
    /// Calls of `silent`, which the device does not answer.
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

impl TestGateway {
    /// Asserts that a line of the metrics begins with `prefix`.
    #[track_caller]
    pub(crate) fn assert_metric(&self, prefix: &str) {
        let text = self.metrics();
        let found = text.lines().any(|line| line.starts_with(prefix));
        assert!(found, "{prefix} is not in {text}");
    }

    pub(crate) fn metrics(&self) -> String {
        let families = self.registry.gather();
        let encoder = prometheus::TextEncoder::new();
        encoder.encode_to_string(&families).unwrap()
    }

    pub(crate) async fn start() -> Self {
        Self::with_flags(&[]).await
    }

    pub(crate) async fn with_flags(flags: &[&str]) -> Self {
        Self::on_local_bus(flags, Forwarding::default()).await
    }

    /// A gateway that forwards requests.
    pub(crate) async fn with_forwarding(flags: &[&str], forwarding: Forwarding) -> Self {
        Self::on_local_bus(flags, forwarding).await
    }

    /// A gateway on a bus of its own, and an edge node on the local hub.
    pub(crate) async fn with_bus(hub: &LocalHub, config: BusConfig) -> Self {
        Self::build(hub, config, &[], Forwarding::default()).await
    }

    /// A gateway and an edge node on one bus; the gateway knows what the edge node publishes.
    async fn on_local_bus(flags: &[&str], forwarding: Forwarding) -> Self {
        let hub = LocalHub::default();
        let config = BusConfig::local(&hub, "gateway").watching_catalog();
        let gateway = Self::build(&hub, config, flags, forwarding).await;
        let is_known = || gateway.bus.requires_approvals(gateway.org).is_some();
        eventually_true("what is published is known", is_known).await;
        gateway
    }

    async fn build(
        hub: &LocalHub,
        config: BusConfig,
        flags: &[&str],
        forwarding: Forwarding,
    ) -> Self {
        let shutdown = Shutdown::new();
        let bus = Bus::start(config, &prometheus::Registry::new(), &shutdown).unwrap();
        let edge_bus = BusConfig::local(hub, "edge");
        let edge_bus = Bus::start(edge_bus, &prometheus::Registry::new(), &shutdown).unwrap();
        let edge = Arc::new(TestEdge {
            bus: edge_bus,
            received: Mutex::default(),
            registrations: Mutex::default(),
            called: Mutex::default(),
            cancelled: Mutex::default(),
            unanswered: Mutex::default(),
            refusals: Mutex::default(),
        });
        edge.bus.attach(edge.clone());
        let quotas = QuotaLimits {
            approving: Some(Vec::new()),
            ..QuotaLimits::default()
        };
        edge.bus.publish_quotas(&quotas).await.unwrap();
        let database = TestDatabase::create().await.unwrap();
        let objects = tempfile::tempdir().unwrap();
        let folder = Objects::in_folder(objects.path()).unwrap();
        let store = database.store().clone().with_objects(Some(folder));
        let registry = prometheus::Registry::new();
        let budgets = Budgets::new(&registry).unwrap();
        let deps = Deps {
            store: store.clone(),
            authenticator: Authenticator::new(store.clone(), bus.clone(), &budgets),
            bus: bus.clone(),
            registry: registry.clone(),
            budgets: budgets.clone(),
            forwarding,
        };
        let config = parse_config(flags);
        let limits = config.http_limits();
        let router = switchboard_gateway::run(&config, deps, &shutdown).unwrap();
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
        // reqwest needs a TLS provider. Further attempts to install one fail, and are ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::new();
        Self {
            database,
            store,
            _objects: objects,
            org,
            bus,
            edge,
            registry,
            budgets,
            base,
            key,
            client,
            shutdown,
        }
    }

    pub(crate) fn drain(&self) {
        self.shutdown.drain();
    }

    pub(crate) fn device(&self, id: &str) -> DeviceKey {
        DeviceKey {
            org: self.org,
            device: id.parse().unwrap(),
        }
    }

    /// Connects a device with [`SERVICES`].
    pub(crate) async fn connect(&self, id: &str) -> Epoch {
        self.connect_with(id, SERVICES).await
    }

    pub(crate) async fn connect_with(&self, id: &str, services: &str) -> Epoch {
        let device = self.device(id);
        let epoch = self.edge.bus.claim(&device).await.unwrap().epoch;
        self.register(id, epoch, services).await;
        epoch
    }

    /// Replaces the services of a connected device.
    pub(crate) async fn register(&self, id: &str, epoch: Epoch, services: &str) {
        let json = Bytes::from(services.to_owned());
        let registration = (Digest::compute(&json), &json);
        let device = self.device(id);
        let announced = self.edge.bus.register(&device, epoch, None, registration);
        announced.await.unwrap();
    }

    pub(crate) fn disconnect(&self, id: &str, epoch: Epoch) {
        let digest = Digest::compute(SERVICES.as_bytes());
        self.edge.bus.release(
            self.device(id),
            epoch,
            Some(digest),
            DisconnectReason::Closed,
        );
    }

    /// Stores a device that was connected before.
    pub(crate) async fn store_device(&self, id: &str) {
        let event = |kind| DeviceEvent {
            device: self.device(id),
            epoch: 1,
            at: Utc::now(),
            kind,
        };
        let digest = Digest::compute(SERVICES.as_bytes());
        let events = [
            event(DeviceEventKind::Connected),
            event(DeviceEventKind::Registered {
                digest,
                services: Some(SERVICES.to_owned()),
            }),
            event(DeviceEventKind::Disconnected {
                reason: DisconnectReason::IdleTimeout.as_str(),
            }),
        ];
        self.database
            .store()
            .record_device_events(&events)
            .await
            .unwrap();
    }

    /// Sets the labels of a device in the database.
    pub(crate) async fn label(&self, id: &str, labels: &[&str]) {
        let mut labels: Vec<_> = labels.iter().map(|label| label.parse().unwrap()).collect();
        labels.sort();
        let device = self.device(id).device;
        let set = self
            .store
            .set_device_notes(self.org, &device, Some(&labels), None);
        set.await.unwrap();
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

    /// A key with all scopes that reaches these devices and services.
    pub(crate) async fn restricted_key(
        &self,
        prefix: Option<&str>,
        services: Option<&[&str]>,
    ) -> ApiKeySecret {
        self.key_within(ApiKeyLimits {
            device_prefix: prefix.map(str::to_owned),
            services: services.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
            ..ApiKeyLimits::default()
        })
        .await
    }

    /// A key with all scopes that reaches the devices with this label.
    pub(crate) async fn key_of_label(&self, label: &str) -> ApiKeySecret {
        self.key_within(ApiKeyLimits {
            device_label: Some(label.to_owned()),
            ..ApiKeyLimits::default()
        })
        .await
    }

    async fn key_within(&self, limits: ApiKeyLimits) -> ApiKeySecret {
        let secret = ApiKeySecret::generate();
        let key = api_key(&secret, &Scope::ALL);
        let mut creation = self.store.begin(self.org).await.unwrap();
        let created = creation.create_api_key(self.org, &key, &limits).await;
        created.unwrap();
        creation.commit().await.unwrap();
        secret
    }

    /// A key of another organisation, with all scopes.
    pub(crate) async fn foreign_key(&self) -> ApiKeySecret {
        let secret = ApiKeySecret::generate();
        let org = OrgId::from_uuid(Uuid::now_v7());
        let first = api_key(&secret, &Scope::ALL);
        let created = self
            .database
            .store()
            .create_org(org, "foreign", &first)
            .await;
        created.unwrap();
        secret
    }

    pub(crate) async fn revoke_key(&self, key: &ApiKeySecret) {
        let store = self.database.store();
        let known = store.api_key_by_hash(&key.hash()).await.unwrap().unwrap();
        store.revoke_api_key(self.org, known.id).await.unwrap();
    }

    /// An access token of a client of the organisation, its ID and its expiry.
    pub(crate) async fn issue_token(&self, ttl: Duration) -> (String, TokenId, u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let claims = Claims {
            id: TokenId::from_uuid(Uuid::now_v7()),
            org: self.org,
            subject: Subject::Client("agent".parse().unwrap()),
            scopes: [Scope::Call].into_iter().collect(),
            restrictions: None,
            issued_at: now.as_secs(),
            expires_at: (now + ttl).as_secs(),
        };
        let signing = SigningKey::from_seed(&[7; 32]);
        let keys = vec![signing.verifying_key()];
        self.edge.bus.publish_keys(keys, vec![]).await.unwrap();
        (signing.sign(&claims).unwrap(), claims.id, claims.expires_at)
    }

    pub(crate) fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_as(&self.key, method, path)
    }

    /// A request without a credential.
    pub(crate) fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        request.timeout(TEST_TIMEOUT)
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

    pub(crate) fn call_request(&self, device: &str, body: &str) -> RequestBuilder {
        let request = self.request(Method::POST, &format!("/v1/devices/{device}/calls"));
        request
            .header("content-type", "application/json")
            .body(body.to_owned())
    }

    pub(crate) async fn call(&self, device: &str, body: &str) -> Response {
        send(self.call_request(device, body)).await
    }

    /// The call, when it has ended or after 9 s.
    pub(crate) async fn wait_for_end(&self, id: &Value) -> Response {
        let path = format!("/v1/calls/{}?wait_ms=9000", id.as_str().unwrap());
        self.get(&path).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        send(self.request(Method::GET, path)).await
    }
}

impl Drop for TestGateway {
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

fn api_key(secret: &ApiKeySecret, scopes: &[Scope]) -> NewApiKey {
    NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "test".to_owned(),
        prefix: secret.display_prefix().to_owned(),
        secret_hash: secret.hash(),
        scopes: scopes.iter().copied().collect(),
    }
}

fn parse_config(flags: &[&str]) -> Config {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        gateway: Config,
    }
    let flags = ["gateway"].iter().chain(flags);
    <Flags as clap::Parser>::parse_from(flags).gateway
}

/// A result that requires input.
const INPUT_REQUIRED: &str = r#"{"success":false,"error":"who are you?","input_required":{"requests":{
    "name":{"method":"elicitation/create","params":{"message":"Who\u200b?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}},
    "roots":{"method":"roots/list","params":{}}
},"state":{"step":1}}}"#;
/// A result with an image.
const PICTURE: &str = r#"{"success":true,"content":[{"type":"text","text":"看"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]}"#;

impl TestEdge {
    /// Waits for a call of `silent`, and returns where its answer goes.
    pub(crate) async fn next_unanswered(&self) -> (CallId, ReplyTo) {
        eventually_true("a call without an answer", || {
            !self.unanswered.lock().is_empty()
        })
        .await;
        self.unanswered.lock().remove(0)
    }

    fn refuses(&self) -> bool {
        let mut left = self.refusals.lock();
        let refuses = *left > 0;
        *left = left.saturating_sub(1);
        refuses
    }

    /// Sends notifications before the answer.
    fn send_notifications(&self, call: &InboundCall) {
        let notifications = [
            (
                NotificationKind::Progress,
                r#"{"progress":1,"total":2,"message":"半"}"#,
            ),
            (
                NotificationKind::Log,
                r#"{"level":"debug","message":"quiet"}"#,
            ),
            (NotificationKind::Log, r#"{"level":"warn","message":"hot"}"#),
            (NotificationKind::Progress, r#"{"progress":1}"#),
            (NotificationKind::Progress, r#"{"progress":2,"total":2}"#),
        ];
        for (kind, data) in notifications {
            let data = Bytes::from_static(data.as_bytes());
            self.bus.notify(&call.reply, Notification { kind, data });
        }
    }
}

impl ConnectionOwner for TestEdge {
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
                self.received.lock().push(call.id);
                self.registrations.lock().push(call.registration);
                self.called.lock().push(call.device.to_string());
                match service {
                    "silent" => {
                        self.unanswered.lock().push((call.id, call.reply));
                        return Ok(());
                    }
                    "talk" => {
                        self.send_notifications(&call);
                        Answer::result(true, Bytes::from_static(b"{\"success\":true}"))
                    }
                    "ask" if call.input.is_empty() => {
                        Answer::result(false, Bytes::from_static(INPUT_REQUIRED.as_bytes()))
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

    fn take_over(&self, _org: OrgId, _device: &str, _epoch: Epoch) {}

    fn disconnect(&self, org: OrgId, device: &str, epoch: Epoch) {
        let device = device.parse().unwrap();
        let (key, digest) = (
            DeviceKey { org, device },
            Digest::compute(SERVICES.as_bytes()),
        );
        let reason = DisconnectReason::DisconnectRequested;
        self.bus.release(key, epoch, Some(digest), reason);
    }

    fn send_text(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: Text) {}

    fn keep_alive(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {}

    fn finish_reply(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: bool) {}

    fn connections(&self) -> Vec<LiveConnection> {
        Vec::new()
    }
}
