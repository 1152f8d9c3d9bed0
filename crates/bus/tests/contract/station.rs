//! Nodes for tests: some call, some hold devices that behave as they are told.
//! Never: a device that is not entered through the bus.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_bus::{
    Answer, Bus, BusConfig, BusError, Call, Epoch, Holding, Host, InboundCall, LocalHub, ReplyTo,
};
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::shutdown::Shutdown;
use uuid::Uuid;

use crate::redis_server::RedisServer;

/// What the nodes of one test share.
pub struct Site {
    reach: Reach,
    pub shutdown: Shutdown,
}

enum Reach {
    Local(LocalHub),
    Redis {
        url: String,
        server: Option<RedisServer>,
    },
}

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
                server: Some(server),
            },
            shutdown: Shutdown::new(),
        }
    }

    /// Nodes that reach Redis by another way than its own port.
    pub fn through(url: String) -> Self {
        Self {
            reach: Reach::Redis { url, server: None },
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

    /// A node that only calls.
    pub async fn caller(&self, name: &str) -> Bus {
        self.node(name, &self.shutdown).await
    }

    /// A node that holds devices.
    pub async fn station(&self, name: &str) -> Arc<Station> {
        let shutdown = self.shutdown.child();
        let bus = self.node(name, &shutdown).await;
        let station = Arc::new(Station {
            bus,
            shutdown,
            state: Mutex::default(),
        });
        station.bus.attach(Arc::clone(&station) as Arc<dyn Host>);
        station
    }

    async fn node(&self, name: &str, shutdown: &Shutdown) -> Bus {
        let config = match &self.reach {
            Reach::Local(hub) => BusConfig::local(hub, name),
            Reach::Redis { url, .. } => BusConfig::redis(&url.clone().into(), name, "test"),
        };
        let bus = Bus::start(config, &prometheus::Registry::new(), shutdown).unwrap();
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
}

impl Station {
    pub async fn connect(&self, device: &DeviceKey) -> Epoch {
        let epoch = self.bus.claim(device).await.unwrap();
        self.state.lock().held.insert(device.clone(), (epoch, None));
        epoch
    }

    pub async fn register(&self, device: &DeviceKey, services: &'static str) -> Digest {
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
            .await
            .unwrap();
        digest
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
            self.bus.answer(
                &reply,
                Answer::result(true, Bytes::from_static(b"{\"success\":true}")),
            );
        }
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

    pub fn cancelled(&self) -> Vec<CallId> {
        self.state.lock().cancelled.clone()
    }
}

impl Host for Station {
    fn deliver(&self, call: InboundCall) {
        let mut state = self.state.lock();
        let here = state.held.iter().any(|(key, (epoch, _))| {
            key.org == call.org && key.device.as_str() == &*call.device && *epoch == call.epoch
        });
        if !here {
            drop(state);
            return self.bus.not_here(&call.reply);
        }
        state.delivered.push(call.id);
        if state.mute {
            state.unanswered.push(call.reply);
            return;
        }
        drop(state);
        let params = std::str::from_utf8(&call.params).unwrap();
        let body = format!("{{\"success\":true,\"data\":{params}}}");
        self.bus
            .answer(&call.reply, Answer::result(true, body.into()));
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

    fn held(&self) -> Vec<Holding> {
        let state = self.state.lock();
        let held = state.held.iter();
        held.map(|(device, (epoch, registration))| Holding {
            device: device.clone(),
            epoch: *epoch,
            registration: registration.clone(),
        })
        .collect()
    }
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
    }
}

pub async fn call(bus: &Bus, device: &DeviceKey) -> Result<Answer, BusError> {
    bus.call(call_for(device, "{}")).await
}
