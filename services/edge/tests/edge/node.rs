//! An edge under test with its bus, its token key, and a second node that calls.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use prometheus::Registry;
use serde_json::Value;
use switchboard_bus::{Answer, Bus, BusConfig, Call, LocalHub};
use switchboard_edge::{Config, Deps, Listeners};
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId, TokenId},
    outcome::{Delivered, Outcome},
    token::{Claims, Scope, SigningKey, Subject, VerifyingKey},
};
use switchboard_runtime::{budget::Budgets, shutdown::Shutdown};
use switchboard_speech::Speech;
use switchboard_test_support::eventually::eventually_true;
use tokio::{net::TcpListener, task::JoinHandle};
use uuid::Uuid;

use crate::device::Device;

/// Upper bound of everything that is expected to happen.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Node {
    pub addr: SocketAddr,
    pub tls_addr: Option<SocketAddr>,
    /// The edge's bus.
    pub bus: Bus,
    /// The bus of a node without devices.
    pub caller: Bus,
    pub shutdown: Shutdown,
    pub org: OrgId,
    pub registry: Registry,
    /// Those of the edge.
    pub budgets: Budgets,
    /// Tracks the tasks of the edge; shuts down with `shutdown`.
    pub edge: Shutdown,
    key: SigningKey,
}

impl Node {
    pub async fn start(config: Config) -> Self {
        Self::start_with(config, None, true).await
    }

    pub async fn start_with(
        config: Config,
        tls: Option<Arc<rustls::ServerConfig>>,
        publish_keys: bool,
    ) -> Self {
        let hub = LocalHub::default();
        let buses = ["edge", "caller"].map(|name| BusConfig::local(&hub, name));
        let node = Self::start_on(buses, config, tls).await;
        if publish_keys {
            node.publish_keys().await;
        }
        node
    }

    /// An edge whose organisations have room for this many bytes of registrations.
    pub async fn with_registration_bytes(limit: u64) -> Self {
        let hub = LocalHub::default();
        let bus = |name| BusConfig::local(&hub, name).with_registration_bytes(limit);
        let node = Self::start_on(["edge", "caller"].map(bus), Config::default(), None).await;
        node.publish_keys().await;
        node
    }

    /// An edge and a caller with a Redis between them.
    pub async fn start_over(redis_url: &str, config: Config) -> Self {
        let url = redis_url.to_owned().into();
        let buses = ["edge", "caller"].map(|name| BusConfig::redis(&url, name, "test"));
        let node = Self::start_on(buses, config, None).await;
        node.publish_keys().await;
        node
    }

    /// Two edges of one installation, each with a caller, and with the same certificate if any.
    pub async fn start_two(config: Config, tls: Option<&Arc<rustls::ServerConfig>>) -> [Self; 2] {
        let hub = LocalHub::default();
        let start = async |names: [&str; 2]| {
            let buses = names.map(|name| BusConfig::local(&hub, name));
            Self::start_on(buses, config.clone(), tls.cloned()).await
        };
        let nodes = [
            start(["edge-1", "caller-1"]).await,
            start(["edge-2", "caller-2"]).await,
        ];
        nodes[0].publish_keys().await;
        eventually_true("both edges have keys", || nodes[1].bus.has_keys()).await;
        nodes
    }

    async fn start_on(
        [edge, caller]: [BusConfig; 2],
        config: Config,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Self {
        let (shutdown, registry) = (Shutdown::new(), Registry::new());
        let bus = Bus::start(edge, &registry, &shutdown).unwrap();
        let caller = Bus::start(caller, &Registry::new(), &shutdown).unwrap();
        bus.wait_ready(TEST_TIMEOUT).await.unwrap();
        caller.wait_ready(TEST_TIMEOUT).await.unwrap();
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = plain.local_addr().unwrap();
        let tls = match tls {
            Some(config) => Some((TcpListener::bind("127.0.0.1:0").await.unwrap(), config)),
            None => None,
        };
        let tls_addr = tls
            .as_ref()
            .map(|(listener, _)| listener.local_addr().unwrap());
        let listeners = Listeners { plain, tls };
        let edge = shutdown.child();
        let budgets = Budgets::new(&registry).unwrap();
        let deps = Deps {
            listeners,
            bus: bus.clone(),
            registry: registry.clone(),
            budgets: budgets.clone(),
            speech: Speech::from_config(&config.speech, &registry).unwrap(),
        };
        switchboard_edge::run(&config, deps, &edge).unwrap();
        let org = OrgId::from_uuid(Uuid::now_v7());
        let key = SigningKey::from_seed(&[7; 32]);
        Self {
            addr,
            tls_addr,
            bus,
            caller,
            shutdown,
            org,
            registry,
            budgets,
            edge,
            key,
        }
    }

    /// Publishes the key that signs this node's tokens.
    pub async fn publish_keys(&self) {
        self.caller
            .publish_keys(vec![self.key.verifying_key()], Vec::new())
            .await
            .unwrap();
        eventually_true("the edge has keys", || self.bus.has_keys()).await;
    }

    pub fn verifying_key(&self) -> VerifyingKey {
        self.key.verifying_key()
    }

    pub fn claims(&self, device: &str) -> Claims {
        Claims {
            id: TokenId::from_uuid(Uuid::now_v7()),
            org: self.org,
            subject: Subject::Device(device.parse().unwrap()),
            scopes: [Scope::Device].into_iter().collect(),
            restrictions: None,
            issued_at: now_s(),
            expires_at: now_s() + 3_600,
        }
    }

    pub fn sign(&self, claims: &Claims) -> String {
        self.key.sign(claims).unwrap()
    }

    pub fn token(&self, device: &str) -> String {
        self.sign(&self.claims(device))
    }

    /// A connected device without services.
    pub async fn device(&self, id: &str) -> Device {
        let mut device = Device::connect(self.addr).await;
        device.authenticate(&self.token(id)).await;
        device
    }

    /// A connected device with the service `light`, present in the directory.
    pub async fn lamp(&self, id: &str) -> Device {
        let mut device = self.device(id).await;
        device.register(crate::device::LIGHT).await;
        device
    }

    /// A connected device of another organisation.
    pub async fn foreign_device(&self, id: &str) -> (OrgId, Device) {
        let mut claims = self.claims(id);
        claims.org = OrgId::from_uuid(Uuid::now_v7());
        let mut device = Device::connect(self.addr).await;
        device.authenticate(&self.sign(&claims)).await;
        (claims.org, device)
    }

    pub fn device_key(&self, id: &str) -> DeviceKey {
        DeviceKey {
            org: self.org,
            device: id.parse().unwrap(),
        }
    }

    pub fn prepare(&self, device: &str, params: &str) -> Call {
        Call {
            device: self.device_key(device),
            id: CallId::from_uuid(Uuid::now_v7()),
            service: "light".into(),
            params: Bytes::copy_from_slice(params.as_bytes()),
            timeout: TEST_TIMEOUT,
            input: bytes::Bytes::new(),
            registration: None,
            notifications: None,
            cancel_key: None,
        }
    }

    /// Calls in the background.
    pub fn call(&self, call: Call) -> JoinHandle<Answer> {
        let caller = self.caller.clone();
        self.shutdown
            .spawn(async move { caller.call(call).await.unwrap() })
    }

    /// The sum of a metric over all labels, or its value for one label.
    pub fn metric(&self, name: &str, label: Option<&str>) -> f64 {
        self.sum(&format!("switchboard_edge_{name}"), label)
    }

    /// What is held of a budget.
    pub fn budget_used(&self, budget: &str) -> usize {
        self.sum("switchboard_budget_used", Some(budget)) as usize
    }

    /// The sum of a metric of any name, of those with this label if there is one. Of a histogram, the
    /// number of observations.
    pub fn sum(&self, name: &str, label: Option<&str>) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        family.map_or(0.0, |family| {
            let wanted = family.get_metric().iter().filter(|metric| {
                label.is_none_or(|label| metric.get_label().iter().any(|l| l.value() == label))
            });
            wanted
                .map(|m| {
                    let observed = m.get_histogram().get_sample_count() as f64;
                    m.get_counter().get_value() + m.get_gauge().get_value() + observed
                })
                .sum()
        })
    }

    /// Waits until a metric has this value.
    pub async fn metric_is(&self, name: &str, label: Option<&str>, value: f64) {
        let what = format!("{name} {label:?} is {value}");
        eventually_true(&what, || (self.metric(name, label) - value).abs() < 0.5).await;
    }
}

/// Checks the outcome of an answer.
pub fn check(answer: &Answer, outcome: Outcome, delivered: Delivered) {
    let body = String::from_utf8_lossy(&answer.body);
    assert_eq!(
        (answer.outcome, answer.delivered),
        (outcome, delivered),
        "{body}"
    );
}

pub fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

pub fn now_s() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}
