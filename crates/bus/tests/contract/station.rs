//! Nodes for tests: some call, some hold devices that behave as they are told.
//! Never: a device that is not entered through the bus.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::Registry;
use switchboard_bus::{
    Answer, Bus, BusConfig, BusError, Call, Epoch, Holding, Host, InboundCall, LocalHub, NodeId,
    ReplyTo, Text,
};
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::shutdown::Shutdown;
use uuid::Uuid;

use crate::{eventually::eventually, redis_server::RedisServer};

/// What the nodes of one test share.
pub struct Site {
    reach: Reach,
    pub shutdown: Shutdown,
}

enum Reach {
    Local(LocalHub),
    Redis {
        url: String,
        prefix: String,
        server: Option<RedisServer>,
    },
}

/// What keys begin with where nobody else has any.
const PREFIX: &str = "test";

impl Site {
    pub fn local() -> Self {
        Self {
            reach: Reach::Local(LocalHub::default()),
            shutdown: Shutdown::new(),
        }
    }

    pub async fn redis() -> Self {
        let server = RedisServer::start();
        Self {
            reach: Reach::Redis {
                url: server.url(),
                prefix: PREFIX.to_owned(),
                server: Some(server),
            },
            shutdown: Shutdown::new(),
        }
    }

    /// Nodes that reach Redis by another way than its own port.
    pub fn through(url: String) -> Self {
        Self {
            reach: Reach::Redis {
                url,
                prefix: PREFIX.to_owned(),
                server: None,
            },
            shutdown: Shutdown::new(),
        }
    }

    /// Nodes that share a Redis with those of other tests.
    pub fn among_others(url: String) -> Self {
        Self {
            reach: Reach::Redis {
                url,
                prefix: format!("test-{}", Uuid::now_v7().simple()),
                server: None,
            },
            shutdown: Shutdown::new(),
        }
    }

    pub fn server(&mut self) -> &mut RedisServer {
        match &mut self.reach {
            Reach::Redis {
                server: Some(server),
                ..
            } => server,
            _ => panic!("this site has no Redis of its own"),
        }
    }

    pub fn redis_address(&self) -> SocketAddr {
        match &self.reach {
            Reach::Redis {
                server: Some(server),
                ..
            } => server.address(),
            _ => panic!("this site has no Redis of its own"),
        }
    }

    /// Lets a node's lease be one that ended long ago, until its next beat.
    pub async fn end_lease(&self, node: &NodeId) {
        let mut end = redis::cmd("ZADD");
        end.arg("test:{nodes}").arg(1).arg(node.as_str());
        self.ask::<()>(&end).await;
    }

    pub async fn configure(&self, setting: &str, value: &str) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(setting).arg(value);
        self.ask::<()>(&set).await;
    }

    /// Asks this site's Redis.
    pub async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let Reach::Redis { url, .. } = &self.reach else {
            panic!("this site has no Redis");
        };
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    /// A node that only calls.
    pub async fn caller(&self, name: &str) -> Bus {
        self.node(self.config(name), &Registry::new(), &self.shutdown)
            .await
    }

    /// A node that only calls, and what it counts.
    pub async fn counting_caller(&self, name: &str) -> (Bus, Registry) {
        let registry = Registry::new();
        let bus = self
            .node(self.config(name), &registry, &self.shutdown)
            .await;
        (bus, registry)
    }

    /// A node that hears of every registration.
    pub async fn follower(&self, name: &str) -> Bus {
        let config = self.config(name).following_offers();
        self.node(config, &Registry::new(), &self.shutdown).await
    }

    /// The same, which may never be ready.
    pub fn unready_follower(&self, name: &str) -> Bus {
        let config = self.config(name).following_offers();
        Bus::start(config, &Registry::new(), &self.shutdown).unwrap()
    }

    /// A node that holds devices.
    pub async fn station(&self, name: &str) -> Arc<Station> {
        let shutdown = self.shutdown.child();
        let bus = self
            .node(self.config(name), &Registry::new(), &shutdown)
            .await;
        let station = Arc::new(Station {
            bus,
            shutdown,
            state: Mutex::default(),
        });
        station.bus.attach(Arc::clone(&station) as Arc<dyn Host>);
        station
    }

    fn config(&self, name: &str) -> BusConfig {
        match &self.reach {
            Reach::Local(hub) => BusConfig::local(hub, name),
            Reach::Redis { url, prefix, .. } => BusConfig::redis(&url.clone().into(), name, prefix),
        }
    }

    async fn node(&self, config: BusConfig, registry: &Registry, shutdown: &Shutdown) -> Bus {
        let bus = Bus::start(config, registry, shutdown).unwrap();
        bus.ready(Duration::from_secs(10)).await.unwrap();
        bus
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

/// A node that holds devices and answers by its mood.
pub struct Station {
    pub bus: Bus,
    pub shutdown: Shutdown,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashMap<DeviceKey, (Epoch, Option<(Digest, Bytes)>)>,
    mute: bool,
    unanswered: Vec<ReplyTo>,
    delivered: Vec<CallId>,
    cancelled: Vec<CallId>,
    said: String,
    /// How often it was asked what it holds, and what leaves right after the next time.
    looks: usize,
    leaving: Option<DeviceKey>,
}

impl Station {
    pub async fn connect(&self, device: &DeviceKey) -> Epoch {
        let epoch = self.bus.claim(device).await.unwrap();
        self.state.lock().held.insert(device.clone(), (epoch, None));
        epoch
    }

    pub async fn register(&self, device: &DeviceKey, services: &'static str) -> Digest {
        self.try_register(device, services).await.unwrap()
    }

    pub async fn try_register(
        &self,
        device: &DeviceKey,
        services: &'static str,
    ) -> Result<Digest, BusError> {
        let json = Bytes::from_static(services.as_bytes());
        let digest = Digest::of(&json);
        let (epoch, former) = {
            let mut state = self.state.lock();
            let held = state.held.get_mut(device).unwrap();
            let former = held.1.replace((digest, json.clone()));
            (held.0, former.map(|(digest, _)| digest))
        };
        self.bus
            .announce(device, epoch, former, (digest, &json))
            .await?;
        Ok(digest)
    }

    pub fn disconnect(&self, device: &DeviceKey) {
        let (epoch, registration) = self.state.lock().held.remove(device).unwrap();
        let digest = registration.map(|(digest, _)| digest);
        self.bus.release(
            device.clone(),
            epoch,
            digest,
            switchboard_bus::LeftReason::Closed,
        );
    }

    /// Has a device leave right after the next look at what is held.
    pub fn disconnect_when_seen(&self, device: &DeviceKey) {
        self.state.lock().leaving = Some(device.clone());
    }

    pub fn looks(&self) -> usize {
        self.state.lock().looks
    }

    pub fn mute(&self) {
        self.state.lock().mute = true;
    }

    /// Answers what came while it was mute.
    pub fn speak(&self) {
        let unanswered = {
            let mut state = self.state.lock();
            state.mute = false;
            std::mem::take(&mut state.unanswered)
        };
        for reply in unanswered {
            self.bus.answer(&reply, done());
        }
    }

    /// What came while it was mute, once there is this much of it.
    pub async fn unanswered(&self, count: usize) -> Vec<ReplyTo> {
        let waiting = async || self.state.lock().unanswered.len();
        eventually(Duration::from_secs(5), waiting, |waiting| *waiting == count).await;
        std::mem::take(&mut self.state.lock().unanswered)
    }

    pub fn holds(&self, device: &DeviceKey) -> bool {
        self.state.lock().held.contains_key(device)
    }

    pub fn held_now(&self) -> Vec<(DeviceId, Epoch)> {
        let state = self.state.lock();
        let held = state.held.iter();
        held.map(|(key, (epoch, _))| (key.device.clone(), *epoch))
            .collect()
    }

    pub fn delivered(&self) -> Vec<CallId> {
        self.state.lock().delivered.clone()
    }

    /// Everything that its devices were answered: `|` ends an answer, `!` one with a hole, `~` is a sign of life,
    /// `^` another beginning.
    pub fn said(&self) -> String {
        self.state.lock().said.clone()
    }

    /// Waits until that is all, and forgets it.
    pub async fn has_said(&self, expected: &str) {
        let said = async || self.said();
        eventually(Duration::from_secs(5), said, |said| said == expected).await;
        self.state.lock().said.clear();
    }

    pub fn cancelled(&self) -> Vec<CallId> {
        self.state.lock().cancelled.clone()
    }
}

impl Host for Station {
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo> {
        let mut state = self.state.lock();
        let here = state.held.iter().any(|(key, (epoch, _))| {
            key.org == call.org && key.device.as_str() == &*call.device && *epoch == call.epoch
        });
        if !here {
            return Err(call.reply);
        }
        state.delivered.push(call.id);
        if state.mute {
            state.unanswered.push(call.reply);
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

    fn takeover(&self, org: OrgId, device: &str, epoch: Epoch) {
        let mut state = self.state.lock();
        state.held.retain(|key, (held, _)| {
            key.org != org || key.device.as_str() != device || *held >= epoch
        });
    }

    fn say(&self, _: OrgId, device: &str, _: Epoch, task: [u8; 8], text: Text) {
        let task = str::from_utf8(&task).unwrap();
        let said = format!("[{device} {task} {}]", &*text);
        self.state.lock().said.push_str(&said);
    }

    fn begin_again(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {
        self.state.lock().said.push('^');
    }

    fn busy(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {
        self.state.lock().said.push('~');
    }

    fn finish(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], whole: bool) {
        self.state.lock().said.push(if whole { '|' } else { '!' });
    }

    fn held(&self) -> Vec<Holding> {
        let mut state = self.state.lock();
        state.looks += 1;
        let held = state.held.iter();
        let held = held.map(|(device, (epoch, registration))| Holding {
            device: device.clone(),
            epoch: *epoch,
            registration: registration.clone(),
        });
        let (held, leaving) = (held.collect(), state.leaving.take());
        drop(state);
        if let Some(device) = leaving {
            self.disconnect(&device);
        }
        held
    }
}

/// A device's plain success.
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
        notices: None,
        handle: None,
    }
}

pub async fn call(bus: &Bus, device: &DeviceKey) -> Result<Answer, BusError> {
    bus.call(call_for(device, "{}")).await
}
