//! The nodes of a simulation, and the devices that connect to them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::Registry;
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId},
    outcome::Outcome,
    schema::Digest,
};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    ledger::{Ledger, result_of},
    network::{Link, Redis},
    process::{Process, Status, pass, unique_id},
};
use crate::{
    Answer, Bus, BusConfig, Call, ConnectionOwner, DisconnectReason, Epoch, InboundCall,
    LiveConnection, LocalHub, ReplyTo, Text, background::spawn_task,
};

/// How long a device waits until it is connected.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn org() -> OrgId {
    OrgId::from_uuid(Uuid::nil())
}

/// A node with its process.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) process: Arc<Process>,
    pub(super) link: Arc<Link>,
    pub(super) bus: Bus,
    pub(super) is_edge: bool,
    stop: Shutdown,
    pub(super) redis: Arc<Redis>,
    ledger: Arc<Ledger>,
    connections: Mutex<BTreeMap<(DeviceKey, Epoch), Arc<Connection>>>,
    /// When the process was continued last.
    continued_at: Mutex<Option<Instant>>,
}

/// A connection of a device to an edge.
pub(super) struct Connection {
    pub(super) key: DeviceKey,
    pub(super) edge: Arc<Host>,
    pub(super) epoch: OnceLock<Epoch>,
    registration: (Digest, Bytes),
    /// Whether the connection has the entry, or should have it.
    is_entered: AtomicBool,
    /// The device has left, which its edge may not know.
    has_left: AtomicBool,
    /// The edge has closed the connection.
    closed: CancellationToken,
    pending: Mutex<BTreeMap<CallId, ReplyTo>>,
}

impl Host {
    pub(super) fn start(
        redis: &Arc<Redis>,
        ledger: &Arc<Ledger>,
        name: &str,
        is_edge: bool,
    ) -> Arc<Self> {
        let (process, stop) = (Arc::<Process>::default(), Shutdown::new());
        let mut link = None;
        let bus = process.enter(|| {
            let config = BusConfig::local(&LocalHub::default(), name);
            Bus::start_over(config, &Registry::new(), &stop, |id, inbox, _| {
                let joined = Link::join(redis, &process, &stop, id, inbox);
                Ok(Arc::new(Arc::clone(link.insert(joined))))
            })
        });
        let host = Arc::new(Self {
            name: name.to_owned(),
            process,
            link: link.unwrap(),
            bus: bus.unwrap(),
            is_edge,
            stop,
            redis: Arc::clone(redis),
            ledger: Arc::clone(ledger),
            connections: Mutex::default(),
            continued_at: Mutex::default(),
        });
        if is_edge {
            let owner = Arc::new(Edge(Arc::downgrade(&host)));
            host.process.enter(|| host.bus.attach(owner));
        }
        host
    }

    pub(super) fn is_alive(&self) -> bool {
        self.process.status() != Status::Killed
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.status() == Status::Running
    }

    pub(super) fn was_stopped_since(&self, at: Instant) -> bool {
        !self.is_running() || self.continued_at.lock().is_some_and(|last| last >= at)
    }

    /// Continues the process. Its tasks may run before it reads its sockets.
    pub(super) fn resume(&self) {
        if self.process.status() != Status::Stopped {
            return;
        }
        self.process.set(Status::Running);
        *self.continued_at.lock() = Some(Instant::now());
        let max = if self.redis.draw(4) == 0 { 1_000 } else { 20 };
        let (process, reads_after) = (Arc::clone(&self.process), self.redis.draw_ms(0, max));
        self.redis.tasks.spawn(async move {
            pass(reads_after).await;
            process.receive_waiting();
        });
    }

    pub(super) fn kill(&self) {
        self.process.set(Status::Killed);
        for connection in self.connections.lock().values() {
            connection.closed.cancel();
        }
    }

    /// Spawns a task of this process.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.process.enter(|| spawn_task(&self.stop, task));
    }

    /// Calls a device, and records the outcome.
    pub(super) fn call(
        self: &Arc<Self>,
        device: &DeviceKey,
        limit: Duration,
        dropped_after: Duration,
    ) -> oneshot::Receiver<Option<Outcome>> {
        let (ended, end) = oneshot::channel();
        if !self.is_running() {
            return end;
        }
        let call = Call {
            device: device.clone(),
            id: CallId::from_uuid(unique_id()),
            service: "echo".into(),
            params: "{}".into(),
            input: Bytes::new(),
            registration: None,
            timeout: limit,
            notifications: None,
            cancel_key: None,
        };
        let (id, host) = (call.id, Arc::clone(self));
        self.spawn(async move {
            // The process may have been stopped before this task ran.
            host.ledger.begin(id, &host, limit, dropped_after < limit);
            host.ledger.log(|| {
                let device = &call.device.device;
                format!("{id}: {} calls {device} for {limit:?}", host.name)
            });
            if let Ok(result) = timeout(dropped_after, host.bus.call(call)).await {
                let outcome = result.as_ref().ok().map(|answer| answer.outcome);
                host.ledger.end(id, result);
                let _ = ended.send(outcome);
            }
        });
        end
    }

    /// Accepts a connection: claims its epoch, and enters its registration.
    async fn accept(self: Arc<Self>, connection: Arc<Connection>, registered: oneshot::Sender<()>) {
        let key = &connection.key;
        let Ok(claimed) = self.bus.claim(key).await else {
            return connection.closed.cancel();
        };
        let epoch = claimed.epoch;
        connection.epoch.get_or_init(|| epoch);
        connection
            .is_entered
            .store(claimed.is_entered, Ordering::Relaxed);
        let place = (key.clone(), epoch);
        self.connections
            .lock()
            .insert(place, Arc::clone(&connection));
        if claimed.is_entered {
            self.close_older(key, epoch);
        }
        if connection.has_left.load(Ordering::Relaxed) || self.bus.is_superseded(key, epoch) {
            return self.close(&connection, DisconnectReason::Closed);
        }
        connection.is_entered.store(true, Ordering::Relaxed);
        let (digest, json) = &connection.registration;
        // After an error it is entered later.
        let _ = self.bus.register(key, epoch, None, (*digest, json)).await;
        self.close_older(key, epoch);
        let _ = registered.send(());
    }

    fn close_older(&self, key: &DeviceKey, epoch: Epoch) {
        let places = (key.clone(), Epoch(0))..(key.clone(), epoch);
        let older = || {
            let connections = self.connections.lock();
            let mut older = connections.range(places.clone());
            older.next().map(|(_, connection)| Arc::clone(connection))
        };
        while let Some(connection) = older() {
            self.close(&connection, DisconnectReason::Takeover);
        }
    }

    /// Closes a connection, at this side.
    fn close(&self, connection: &Arc<Connection>, reason: DisconnectReason) {
        connection.closed.cancel();
        let Some(epoch) = connection.epoch.get() else {
            return;
        };
        let place = (connection.key.clone(), *epoch);
        if self.connections.lock().remove(&place).is_none() {
            return;
        }
        let digest = Some(connection.registration.0);
        self.bus
            .release(connection.key.clone(), *epoch, digest, reason);
        let pending = std::mem::take(&mut *connection.pending.lock());
        for reply in pending.into_values() {
            self.bus.answer(
                &reply,
                Answer::ended(Outcome::Lost, "the connection closed"),
            );
        }
    }

    fn execute(self: &Arc<Self>, connection: &Arc<Connection>, inbound: InboundCall) {
        let call = inbound.id;
        connection.pending.lock().insert(call, inbound.reply);
        if connection.has_left.load(Ordering::Relaxed) {
            return;
        }
        self.ledger.execute(call, inbound.deadline.into());
        if self.redis.one_in(10) {
            return;
        }
        let max = if self.redis.one_in(5) { 3_000 } else { 20 };
        let time = self.redis.draw_ms(0, max);
        let (host, connection) = (Arc::clone(self), Arc::clone(connection));
        self.redis.tasks.spawn(async move {
            pass(time).await;
            if connection.has_left.load(Ordering::Relaxed) {
                return;
            }
            let process = Arc::clone(&host.process);
            process.receive(move || {
                let reply = connection.pending.lock().remove(&call);
                if let Some(reply) = reply {
                    host.bus
                        .answer(&reply, Answer::result(true, result_of(call)));
                }
            });
        });
    }
}

/// The connections of an edge, as its bus sees them.
struct Edge(Weak<Host>);

impl ConnectionOwner for Edge {
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo> {
        let Some(host) = self.0.upgrade() else {
            return Err(call.reply);
        };
        let device = call.device.parse().map(|device| DeviceKey {
            org: call.org,
            device,
        });
        let connection = device.ok().and_then(|key| {
            let connections = host.connections.lock();
            connections.get(&(key, call.epoch)).cloned()
        });
        let Some(connection) = connection else {
            return Err(call.reply);
        };
        host.execute(&connection, call);
        Ok(())
    }

    fn cancel(&self, _: OrgId, _: &str, _: CallId) {}

    fn take_over(&self, org: OrgId, device: &str, epoch: Epoch) {
        if let (Some(host), Ok(device)) = (self.0.upgrade(), device.parse()) {
            host.close_older(&DeviceKey { org, device }, epoch);
        }
    }

    fn send_text(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: Text) {}

    fn keep_alive(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {}

    fn finish_reply(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: bool) {}

    fn connections(&self) -> Vec<LiveConnection> {
        let Some(host) = self.0.upgrade() else {
            return Vec::new();
        };
        let connections = host.connections.lock();
        let entered = connections
            .iter()
            .filter(|(_, connection)| connection.is_entered.load(Ordering::Relaxed));
        let live = entered.map(|((device, epoch), connection)| LiveConnection {
            device: device.clone(),
            epoch: *epoch,
            registration: Some(connection.registration.clone()),
        });
        live.collect()
    }
}

/// A device, which stays connected to some edge.
pub(super) struct Device {
    pub(super) key: DeviceKey,
    /// The connection on which the device has registered.
    current: Mutex<Option<Arc<Connection>>>,
    next: Mutex<Move>,
    plan: Notify,
}

/// How a device leaves its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Move {
    /// To which edge, if not to any.
    pub(super) to: Option<Arc<Host>>,
    /// Whether it stays connected until the next connection is registered.
    pub(super) keeps_connection: bool,
    /// Whether its edge does not notice for a while that it has left.
    pub(super) vanishes: bool,
    /// Whether it does not connect again.
    pub(super) is_last: bool,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Device {
    pub(super) fn new(number: usize) -> Arc<Self> {
        let device = format!("toy-{number}").parse().unwrap();
        Arc::new(Self {
            key: DeviceKey { org: org(), device },
            current: Mutex::default(),
            next: Mutex::default(),
            plan: Notify::new(),
        })
    }

    pub(super) fn move_to(&self, next: Move) {
        *self.next.lock() = next;
        self.plan.notify_one();
    }

    /// The connection that the device has.
    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        let current = self.current.lock().clone();
        current.filter(|connection| !connection.closed.is_cancelled())
    }

    /// Connects until its last move.
    pub(super) async fn run(
        self: Arc<Self>,
        redis: Arc<Redis>,
        edges: impl Fn() -> Vec<Arc<Host>>,
    ) {
        let mut former: Option<Arc<Connection>> = None;
        loop {
            let next = std::mem::take(&mut *self.next.lock());
            if next.is_last {
                return Self::leave(&redis, former.take(), next.vanishes);
            }
            let edges = edges();
            let any = redis.draw(edges.len() as u64) as usize;
            let edge = next.to.unwrap_or_else(|| Arc::clone(&edges[any]));
            if !next.keeps_connection {
                Self::leave(&redis, former.take(), next.vanishes);
            }
            let (connection, registered) = self.dial(edge, &redis);
            let registered = timeout(DIAL_TIMEOUT, registered).await;
            Self::leave(&redis, former.take(), false);
            if matches!(registered, Ok(Ok(()))) {
                *self.current.lock() = Some(Arc::clone(&connection));
                tokio::select! {
                    biased;
                    () = connection.closed.cancelled() => {}
                    () = self.plan.notified() => {
                        former = Some(connection);
                        continue;
                    }
                }
            }
            Self::leave(&redis, Some(connection), false);
            pass(redis.draw_ms(50, 600)).await;
        }
    }

    fn dial(&self, edge: Arc<Host>, redis: &Redis) -> (Arc<Connection>, oneshot::Receiver<()>) {
        let json = Bytes::from(format!("{{\"version\":{}}}", redis.draw(3)));
        let connection = Arc::new(Connection {
            key: self.key.clone(),
            epoch: OnceLock::new(),
            registration: (Digest::compute(&json), json),
            is_entered: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            closed: CancellationToken::new(),
            pending: Mutex::default(),
            edge: Arc::clone(&edge),
        });
        let (registered, receiver) = oneshot::channel();
        let (accepted, process) = (Arc::clone(&connection), Arc::clone(&edge.process));
        process.receive(move || {
            let accept = Arc::clone(&edge).accept(accepted, registered);
            edge.spawn(accept);
        });
        (connection, receiver)
    }

    fn leave(redis: &Redis, connection: Option<Arc<Connection>>, vanishes: bool) {
        let Some(connection) = connection else { return };
        connection.has_left.store(true, Ordering::Relaxed);
        let noticed_after = if vanishes { 6_000 } else { 1 };
        redis.tasks.spawn(async move {
            pass(Duration::from_millis(noticed_after)).await;
            let edge = Arc::clone(&connection.edge);
            let process = Arc::clone(&edge.process);
            process.receive(move || edge.close(&connection, DisconnectReason::Closed));
        });
    }
}
