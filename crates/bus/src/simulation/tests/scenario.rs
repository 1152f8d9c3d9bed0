//! A scenario: what a seed makes of nodes, devices, calls and faults.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use switchboard_protocol::outcome::Outcome;
use tokio::time::Instant;

use super::{
    actors::{Connection, Device, Host, Move},
    ledger::Ledger,
    network::Redis,
    process::{Status, pass, start_clock, stop_clock},
};

const EDGES: usize = 3;
const CALLERS: usize = 2;
/// Of these the last one leaves for good.
const DEVICES: usize = 5;
/// How long the faults last, together.
const FAULTS_DURATION: Duration = Duration::from_secs(14);
/// After the last fault, before the directory is compared with the devices (I8).
const RECOVERY: Duration = Duration::from_secs(10);
/// How long a call of a check may take.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a device that has registered may not be callable (I8).
const CALLABLE: Duration = Duration::from_secs(1);
/// How long a call waits for an edge that is dark for [`RECOVERY`].
const OUTLASTING: Duration = Duration::from_millis(11_500);

struct World {
    redis: Arc<Redis>,
    ledger: Arc<Ledger>,
    hosts: Mutex<Vec<Arc<Host>>>,
    devices: Vec<Arc<Device>>,
}

type Action = fn(&World);

/// What may happen, and how often: of all weights together.
const ACTIONS: [(u64, Action); 9] = [
    (30, World::call_any),
    (6, World::move_any),
    (3, |world| {
        let stop = |host: &Host| host.process.set(Status::Stopped);
        world.fault(
            world.any_host(),
            "stops",
            (stop, Host::resume),
            1_000,
            12_000,
        );
    }),
    (3, |world| {
        world.fault(world.any_host(), "is cut off", CUT, 100, 9_000);
    }),
    (3, |world| {
        world.fault(world.any_host(), "is disconnected", CLOSED, 1, 3_000);
    }),
    (1, |world| {
        world.fault(world.hosts(), "lose redis", CLOSED, 0, 3_000)
    }),
    (1, |world| {
        world.fault(world.hosts(), "have a silent redis", CUT, 0, 8_000)
    }),
    (3, World::step_clock),
    (3, World::kill_any),
];

/// How a fault begins and ends at a node.
type Fault = (fn(&Host), fn(&Host));
const CUT: Fault = (|host| host.link.cut(false), |host| host.link.heal());
const CLOSED: Fault = (|host| host.link.cut(true), |host| host.link.heal());

/// Runs the scenario of a seed. Returns what was observed.
pub(super) async fn run(seed: u64) -> Arc<Ledger> {
    start_clock();
    let redis = Redis::new(seed);
    let ledger = Arc::<Ledger>::default();
    let host = |number: usize| {
        let (name, is_edge) = name(number);
        Host::start(&redis, &ledger, &name, is_edge)
    };
    let world = Arc::new(World {
        hosts: Mutex::new((0..EDGES + CALLERS).map(host).collect()),
        devices: (0..DEVICES).map(Device::new).collect(),
        redis: Arc::clone(&redis),
        ledger: Arc::clone(&ledger),
    });
    for device in &world.devices {
        let (device, edges) = (Arc::clone(device), Arc::clone(&world));
        let edges = move || edges.edges();
        redis.tasks.spawn(device.run(Arc::clone(&redis), edges));
    }
    world.inject_faults().await;
    world.recover().await;
    world.check_all().await;
    world.check_move().await;
    pass(Duration::from_secs(2)).await;
    ledger.check();
    redis.close();
    stop_clock();
    ledger
}

fn name(number: usize) -> (String, bool) {
    let is_edge = number < EDGES;
    (
        format!("{}-{number}", if is_edge { "edge" } else { "gateway" }),
        is_edge,
    )
}

impl World {
    fn hosts(&self) -> Vec<Arc<Host>> {
        self.hosts.lock().clone()
    }

    fn edges(&self) -> Vec<Arc<Host>> {
        let mut hosts = self.hosts();
        hosts.retain(|host| host.is_edge);
        hosts
    }

    fn any_host(&self) -> Vec<Arc<Host>> {
        let mut hosts = self.hosts();
        vec![hosts.swap_remove(self.redis.draw(hosts.len() as u64) as usize)]
    }

    fn any_device(&self) -> &Arc<Device> {
        &self.devices[self.redis.draw(self.devices.len() as u64) as usize]
    }

    async fn inject_faults(&self) {
        pass(Duration::from_millis(500)).await;
        *self.redis.has_faults.lock() = true;
        let began = Instant::now();
        let weights: u64 = ACTIONS.iter().map(|(weight, _)| weight).sum();
        while began.elapsed() < FAULTS_DURATION {
            let mut drawn = self.redis.draw(weights);
            for (weight, act) in ACTIONS {
                if drawn < weight {
                    act(self);
                    break;
                }
                drawn -= weight;
            }
            pass(self.redis.draw_ms(0, 250)).await;
        }
    }

    fn call_any(&self) {
        let limit = self.redis.draw_ms(50, 12_000);
        let is_dropped = self.redis.draw(10) == 0;
        let dropped_after = if is_dropped { limit / 2 } else { limit * 4 };
        for host in self.any_host() {
            drop(host.call(&self.any_device().key, limit, dropped_after));
        }
    }

    fn move_any(&self) {
        let how = self.redis.draw(3);
        let next = Move {
            to: None,
            keeps_connection: how == 0,
            vanishes: how == 1,
            is_last: false,
        };
        let device = self.any_device();
        self.ledger
            .log(|| format!("{} moves: {next:?}", device.key.device));
        device.move_to(next);
    }

    /// Something happens to nodes, and ends after a while.
    fn fault(
        &self,
        hosts: Vec<Arc<Host>>,
        what: &str,
        (begin, end): Fault,
        from_ms: u64,
        to_ms: u64,
    ) {
        let lasts = self.redis.draw_ms(from_ms, to_ms);
        self.ledger
            .log(|| format!("{hosts:?} {what} for {lasts:?}"));
        hosts.iter().for_each(|host| begin(host));
        let redis = Arc::clone(&self.redis);
        self.redis.tasks.spawn(async move {
            pass(lasts).await;
            if *redis.has_faults.lock() {
                hosts.iter().for_each(|host| end(host));
            }
        });
    }

    fn step_clock(&self) {
        let step = i64::try_from(self.redis.draw(7_200)).unwrap() - 3_600;
        for host in self.any_host() {
            host.process.step_clock(step);
        }
    }

    fn kill_any(&self) {
        let number = self.redis.draw((EDGES + CALLERS) as u64) as usize;
        let (name, is_edge) = name(number);
        self.ledger.log(|| format!("{name} is killed"));
        let next = Host::start(&self.redis, &self.ledger, &name, is_edge);
        let killed = std::mem::replace(&mut self.hosts.lock()[number], next);
        killed.kill();
        // Nothing closes the sockets of a host that is gone.
        if self.redis.draw(2) == 0 {
            killed.link.unsubscribe();
        }
    }

    /// Ends all faults.
    async fn recover(&self) {
        self.devices[DEVICES - 1].move_to(Move {
            is_last: true,
            ..Move::default()
        });
        self.ledger.log(|| "the faults end".to_owned());
        *self.redis.has_faults.lock() = false;
        for host in self.hosts() {
            host.link.heal();
            host.resume();
        }
        pass(RECOVERY).await;
    }

    /// I8, I9: every device but the last one is connected, found by all nodes, and callable from all.
    async fn check_all(&self) {
        let hosts = self.hosts();
        for (number, device) in self.devices.iter().enumerate() {
            let name = &device.key.device;
            if device.current().is_some() == (number == DEVICES - 1) {
                self.ledger
                    .violation(&format!("I8: {name} is not where it was sent"));
            }
            self.check(device, &hosts).await;
        }
    }

    async fn check(&self, device: &Device, hosts: &[Arc<Host>]) {
        let place = |connection: Arc<Connection>| {
            let epoch = connection.epoch.get().copied();
            (connection.edge.bus.node().clone(), epoch)
        };
        let expected = device.current().map(place);
        let outcome = match expected {
            Some(_) => Outcome::Succeeded,
            None => Outcome::Offline,
        };
        for host in hosts {
            let found = host.bus.find(&device.key).await.ok().flatten();
            let found = found.map(|found| (found.node, Some(found.epoch)));
            if found != expected {
                let name = &device.key.device;
                self.ledger
                    .violation(&format!("I8: {name} is at {expected:?}, found {found:?}"));
            }
            self.expect(host, device, outcome).await;
        }
    }

    async fn expect(&self, host: &Arc<Host>, device: &Device, expected: Outcome) {
        let call = host.call(&device.key, CALL_TIMEOUT, CALL_TIMEOUT * 2);
        let outcome = call.await.ok().flatten();
        if outcome != Some(expected) {
            let (name, device) = (&host.name, &device.key.device);
            self.ledger
                .violation(&format!("I8: {name} calls {device}: {outcome:?}"));
        }
    }

    /// I8: a device that leaves a node that stands still is callable soon.
    async fn check_move(&self) {
        let device = &self.devices[self.redis.draw(DEVICES as u64 - 1) as usize];
        let Some(connection) = device.current() else {
            return;
        };
        let dark = &connection.edge;
        self.ledger
            .log(|| format!("{} goes dark, {} leaves", dark.name, device.key.device));
        dark.process.set(Status::Stopped);
        let to = self
            .edges()
            .into_iter()
            .find(|edge| !Arc::ptr_eq(edge, dark));
        device.move_to(Move {
            to,
            ..Move::default()
        });
        let mut hosts = self.hosts();
        hosts.retain(|host| !Arc::ptr_eq(host, dark));
        // Those to the dark edge end as lost with its lease, and must not be executed when it continues.
        let calls = hosts.iter().flat_map(|host| {
            let call =
                move |device: &Arc<Device>| host.call(&device.key, OUTLASTING, OUTLASTING * 2);
            self.devices.iter().map(call)
        });
        let mut calls: Vec<_> = calls.collect();
        pass(CALLABLE).await;
        self.check(device, &hosts).await;
        // The devices of the dark edge are offline when its lease has ended.
        pass(RECOVERY - CALLABLE).await;
        if calls.iter_mut().any(|call| call.try_recv().is_err()) {
            self.ledger.violation("I1: calls wait for a dark edge");
        }
        for device in &self.devices {
            if device
                .current()
                .is_some_and(|connection| Arc::ptr_eq(&connection.edge, dark))
            {
                for host in &hosts {
                    self.expect(host, device, Outcome::Offline).await;
                }
            }
        }
        dark.resume();
    }
}
