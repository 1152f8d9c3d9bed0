//! Nodes for tests: callers, and edges with simulated devices.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::Registry;
use switchboard_bus::{
    Answer, Bus, BusConfig, BusError, Call, ConnectionOwner, DisconnectReason, Epoch, InboundCall,
    LiveConnection, LocalHub, NodeId, ReplyTo, Text,
};
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_test_support::{
    certificates::Authority, eventually::eventually, redis_server::RedisServer,
};
use tokio::task::JoinSet;
use uuid::Uuid;

/// A bus with its nodes, for one test.
pub struct TestSystem {
    backend: BackendKind,
    pub shutdown: Shutdown,
}

enum BackendKind {
    Local(LocalHub),
    Redis {
        url: String,
        prefix: String,
        server: Option<RedisServer>,
        /// The certificate authorities that nodes trust.
        authorities: Option<PathBuf>,
    },
}

/// The key prefix at a private server.
const PREFIX: &str = "test";

impl TestSystem {
    pub fn local() -> Self {
        Self {
            backend: BackendKind::Local(LocalHub::default()),
            shutdown: Shutdown::new(),
        }
    }

    pub async fn redis() -> Self {
        let server = RedisServer::start();
        Self {
            backend: BackendKind::Redis {
                url: server.url(),
                prefix: PREFIX.to_owned(),
                server: Some(server),
                authorities: None,
            },
            shutdown: Shutdown::new(),
        }
    }

    /// Nodes that connect to this URL.
    pub fn with_url(url: String) -> Self {
        Self {
            backend: BackendKind::Redis {
                url,
                prefix: PREFIX.to_owned(),
                server: None,
                authorities: None,
            },
            shutdown: Shutdown::new(),
        }
    }

    /// Nodes that connect to this URL over TLS, and trust this authority.
    pub fn with_tls(url: String, authority: &Authority) -> Self {
        let mut system = Self::with_url(url);
        if let BackendKind::Redis { authorities, .. } = &mut system.backend {
            *authorities = Some(authority.certificate().to_owned());
        }
        system
    }

    /// Nodes that share a Redis with other tests.
    pub fn shared(url: String) -> Self {
        Self {
            backend: BackendKind::Redis {
                url,
                prefix: format!("test-{}", Uuid::now_v7().simple()),
                server: None,
                authorities: None,
            },
            shutdown: Shutdown::new(),
        }
    }

    pub fn server(&mut self) -> &mut RedisServer {
        match &mut self.backend {
            BackendKind::Redis {
                server: Some(server),
                ..
            } => server,
            _ => panic!("this system has no private Redis"),
        }
    }

    pub fn redis_address(&self) -> SocketAddr {
        match &self.backend {
            BackendKind::Redis {
                server: Some(server),
                ..
            } => server.address(),
            _ => panic!("this system has no private Redis"),
        }
    }

    /// Expires a node's lease until its next renewal.
    pub async fn expire_lease(&self, node: &NodeId) {
        let mut expire = redis::cmd("ZADD");
        expire.arg("test:{nodes}").arg(1).arg(node.as_str());
        self.query::<()>(&expire).await;
    }

    pub async fn configure(&self, setting: &str, value: &str) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(setting).arg(value);
        self.query::<()>(&set).await;
    }

    /// Runs a command at this system's Redis.
    pub async fn query<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let BackendKind::Redis { url, .. } = &self.backend else {
            panic!("this system does not use Redis");
        };
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    /// A node without devices.
    pub async fn start_node(&self, name: &str) -> Bus {
        self.node(self.config(name), &Registry::new(), &self.shutdown)
            .await
    }

    /// A node without devices, and its metrics.
    pub async fn start_node_with_metrics(&self, name: &str) -> (Bus, Registry) {
        let registry = Registry::new();
        let bus = self
            .node(self.config(name), &registry, &self.shutdown)
            .await;
        (bus, registry)
    }

    /// Two nodes without devices.
    pub async fn start_nodes(&self, one: &str, other: &str) -> (Bus, Bus) {
        (self.start_node(one).await, self.start_node(other).await)
    }

    /// A node without devices, and a node with devices.
    pub async fn start_with_edge(&self, name: &str) -> (Bus, Arc<TestEdge>) {
        (self.start_node(name).await, self.start_edge("edge").await)
    }

    /// Two nodes with devices.
    pub async fn start_edges(&self, one: &str, other: &str) -> (Arc<TestEdge>, Arc<TestEdge>) {
        (self.start_edge(one).await, self.start_edge(other).await)
    }

    /// A node that watches the catalog.
    pub async fn start_watcher(&self, name: &str) -> Bus {
        let config = self.config(name).watching_catalog();
        self.node(config, &Registry::new(), &self.shutdown).await
    }

    /// The same, without waiting until it is ready.
    pub fn spawn_watcher(&self, name: &str) -> Bus {
        let config = self.config(name).watching_catalog();
        Bus::start(config, &Registry::new(), &self.shutdown).unwrap()
    }

    /// A node with devices.
    pub async fn start_edge(&self, name: &str) -> Arc<TestEdge> {
        self.start_edge_with(self.config(name)).await
    }

    /// A node with devices and this configuration.
    pub async fn start_edge_with(&self, config: BusConfig) -> Arc<TestEdge> {
        let shutdown = self.shutdown.child();
        let bus = self.node(config, &Registry::new(), &shutdown).await;
        let edge = Arc::new(TestEdge {
            bus,
            shutdown,
            state: Mutex::default(),
        });
        edge.bus
            .attach(Arc::clone(&edge) as Arc<dyn ConnectionOwner>);
        edge
    }

    pub fn config(&self, name: &str) -> BusConfig {
        match &self.backend {
            BackendKind::Local(hub) => BusConfig::local(hub, name),
            BackendKind::Redis {
                url,
                prefix,
                authorities,
                ..
            } => {
                BusConfig::redis(&url.clone().into(), name, prefix).trusting(authorities.as_deref())
            }
        }
    }

    async fn node(&self, config: BusConfig, registry: &Registry, shutdown: &Shutdown) -> Bus {
        let bus = Bus::start(config, registry, shutdown).unwrap();
        bus.wait_ready(Duration::from_secs(10)).await.unwrap();
        bus
    }
}

impl Drop for TestSystem {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

/// A node with simulated devices, which answer or hold their answers.
pub struct TestEdge {
    pub bus: Bus,
    pub shutdown: Shutdown,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connections: HashMap<DeviceKey, (Epoch, Option<(Digest, Bytes)>)>,
    holds_answers: bool,
    is_dark: bool,
    held_calls: Vec<ReplyTo>,
    delivered: Vec<(CallId, Instant)>,
    cancelled: Vec<CallId>,
    replies: String,
    /// How often the connections were listed, and which one ends after the next time.
    listings: usize,
    disconnecting: Option<DeviceKey>,
}

impl TestEdge {
    pub async fn connect(&self, device: &DeviceKey) -> Epoch {
        let epoch = self.bus.claim(device).await.unwrap().epoch;
        self.state
            .lock()
            .connections
            .insert(device.clone(), (epoch, None));
        epoch
    }

    /// Connects a device of the organisation.
    pub async fn connect_device(&self, id: &str) -> DeviceKey {
        let device = device(id);
        self.connect(&device).await;
        device
    }

    pub async fn register(&self, device: &DeviceKey, services: &'static str) -> Digest {
        self.try_register(device, services).await.unwrap()
    }

    pub async fn try_register(
        &self,
        device: &DeviceKey,
        services: impl Into<Bytes>,
    ) -> Result<Digest, BusError> {
        let json = services.into();
        let digest = Digest::compute(&json);
        let (epoch, previous) = {
            let mut state = self.state.lock();
            let connection = state.connections.get_mut(device).unwrap();
            let previous = connection.1.replace((digest, json.clone()));
            (connection.0, previous)
        };
        let previous_digest = previous.as_ref().map(|(digest, _)| *digest);
        let registered = self
            .bus
            .register(device, epoch, previous_digest, (digest, &json))
            .await;
        if let Err(BusError::RegistrationsFull { .. }) = registered {
            let mut state = self.state.lock();
            state.connections.get_mut(device).unwrap().1 = previous;
        }
        registered.map(|()| digest)
    }

    pub fn disconnect(&self, device: &DeviceKey) {
        self.leave(device, DisconnectReason::Closed);
    }

    pub fn leave(&self, device: &DeviceKey, reason: DisconnectReason) {
        let (epoch, registration) = self.state.lock().connections.remove(device).unwrap();
        let digest = registration.map(|(digest, _)| digest);
        self.bus.release(device.clone(), epoch, digest, reason);
    }

    /// Disconnects a device right after the next listing of the connections.
    pub fn disconnect_after_listing(&self, device: &DeviceKey) {
        self.state.lock().disconnecting = Some(device.clone());
    }

    pub fn listings(&self) -> usize {
        self.state.lock().listings
    }

    /// Waits until this node, which has just started, compares entries and connections no more.
    pub async fn await_comparison(&self) {
        let (mut listings, mut since) = (self.listings(), Instant::now());
        // A comparison has two parts, 3 s apart.
        while since.elapsed() < Duration::from_secs(4) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if self.listings() != listings {
                (listings, since) = (self.listings(), Instant::now());
            }
        }
    }

    /// The node receives calls, and does nothing with them, as one whose host stands still.
    pub fn go_dark(&self) {
        self.state.lock().is_dark = true;
    }

    /// Devices do not answer until `release_answers`.
    pub fn hold_answers(&self) {
        self.state.lock().holds_answers = true;
    }

    /// Answers the calls that were held, and later calls immediately.
    pub fn release_answers(&self) {
        let held_calls = {
            let mut state = self.state.lock();
            state.holds_answers = false;
            std::mem::take(&mut state.held_calls)
        };
        for reply in held_calls {
            self.bus.answer(&reply, done());
        }
    }

    /// Waits until this many calls are held, and takes them.
    pub async fn held_calls(&self, count: usize) -> Vec<ReplyTo> {
        let waiting = async || self.state.lock().held_calls.len();
        eventually(Duration::from_secs(5), waiting, |waiting| *waiting == count).await;
        std::mem::take(&mut self.state.lock().held_calls)
    }

    pub fn owns(&self, device: &DeviceKey) -> bool {
        self.state.lock().connections.contains_key(device)
    }

    pub fn live_epochs(&self) -> Vec<(DeviceId, Epoch)> {
        let state = self.state.lock();
        let connections = state.connections.iter();
        connections
            .map(|(key, (epoch, _))| (key.device.clone(), *epoch))
            .collect()
    }

    pub fn delivered(&self) -> Vec<CallId> {
        let state = self.state.lock();
        state.delivered.iter().map(|(call, _)| *call).collect()
    }

    /// The calls that were delivered, each with the time.
    pub fn deliveries(&self) -> Vec<(CallId, Instant)> {
        self.state.lock().delivered.clone()
    }

    /// The replies that the devices received: `|` ends a complete reply, `!` an incomplete one,
    /// `~` is a keep-alive, `^` a restart.
    pub fn replies(&self) -> String {
        self.state.lock().replies.clone()
    }

    /// Waits until exactly these replies were received, and clears them.
    pub async fn expect_replies(&self, expected: &str) {
        let replies = async || self.replies();
        eventually(Duration::from_secs(5), replies, |replies| {
            replies == expected
        })
        .await;
        self.state.lock().replies.clear();
    }

    /// Waits until this many calls were delivered.
    pub async fn await_delivered(&self, count: usize) {
        let delivered = async || self.delivered().len();
        eventually(Duration::from_secs(5), delivered, |now| *now == count).await;
    }

    pub fn cancelled(&self) -> Vec<CallId> {
        self.state.lock().cancelled.clone()
    }
}

impl ConnectionOwner for TestEdge {
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo> {
        let mut state = self.state.lock();
        if state.is_dark {
            return Ok(());
        }
        let is_here = state.connections.iter().any(|(key, (epoch, _))| {
            key.org == call.org && key.device.as_str() == &*call.device && *epoch == call.epoch
        });
        if !is_here {
            return Err(call.reply);
        }
        state.delivered.push((call.id, Instant::now()));
        if state.holds_answers {
            state.held_calls.push(call.reply);
            return Ok(());
        }
        drop(state);
        let params = std::str::from_utf8(&call.params).unwrap();
        let body = format!("{{\"success\":true,\"data\":{params}}}");
        self.bus
            .answer(&call.reply, Answer::result(true, body.into()));
        Ok(())
    }

    fn cancel(&self, _org: OrgId, _device: &str, call: CallId) {
        self.state.lock().cancelled.push(call);
    }

    fn take_over(&self, org: OrgId, device: &str, epoch: Epoch) {
        let mut state = self.state.lock();
        state.connections.retain(|key, (own, _)| {
            key.org != org || key.device.as_str() != device || *own >= epoch
        });
    }

    fn send_text(&self, _: OrgId, device: &str, _: Epoch, task: [u8; 8], text: Text) {
        let task = str::from_utf8(&task).unwrap();
        let text = format!("[{device} {task} {}]", &*text);
        self.state.lock().replies.push_str(&text);
    }

    fn restart_reply(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {
        self.state.lock().replies.push('^');
    }

    fn keep_alive(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {
        self.state.lock().replies.push('~');
    }

    fn finish_reply(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], complete: bool) {
        let end = if complete { '|' } else { '!' };
        self.state.lock().replies.push(end);
    }

    fn connections(&self) -> Vec<LiveConnection> {
        let mut state = self.state.lock();
        state.listings += 1;
        let live = state.connections.iter();
        let live = live.map(|(device, (epoch, registration))| LiveConnection {
            device: device.clone(),
            epoch: *epoch,
            registration: registration.clone(),
        });
        let (live, disconnecting) = (live.collect(), state.disconnecting.take());
        drop(state);
        if let Some(device) = disconnecting {
            self.disconnect(&device);
        }
        live
    }
}

/// A device's success without data.
pub fn done() -> Answer {
    Answer::result(true, Bytes::from_static(b"{\"success\":true}"))
}

pub fn org() -> OrgId {
    OrgId::from_uuid(Uuid::from_u128(0x5eed))
}

pub fn device(id: &str) -> DeviceKey {
    DeviceKey {
        org: org(),
        device: id.parse().unwrap(),
    }
}

pub fn call_for(device: &DeviceKey, params: impl Into<Bytes>) -> Call {
    Call {
        device: device.clone(),
        id: CallId::from_uuid(Uuid::now_v7()),
        service: "echo".into(),
        params: params.into(),
        timeout: Duration::from_secs(5),
        input: Bytes::new(),
        registration: None,
        notifications: None,
        cancel_key: None,
    }
}

/// Calls concurrently, each in a task of its own.
pub fn spawn_calls(
    caller: &Bus,
    calls: impl IntoIterator<Item = Call>,
) -> JoinSet<Result<Answer, BusError>> {
    let call = |call| {
        let caller = caller.clone();
        async move { caller.call(call).await }
    };
    calls.into_iter().map(call).collect()
}

pub async fn call(bus: &Bus, device: &DeviceKey) -> Result<Answer, BusError> {
    bus.call(call_for(device, "{}")).await
}
