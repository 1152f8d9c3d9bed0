//! A scenario: what a seed makes of nodes, devices, calls and faults.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use switchboard_protocol::outcome::Outcome;
use tokio::time::Instant;

use super::{
    actors::{Device, Host, Move},
    ledger::{Counts, Ledger},
    network::Redis,
    process::{pass, start_clock, stop_clock},
};

const EDGES: usize = 3;
const CALLERS: usize = 2;
const DEVICES: usize = 4;
/// How long the faults last, together.
const ROUGH: Duration = Duration::from_secs(14);
/// After the last fault, before the directory is compared with the devices (I8).
const RECOVERY: Duration = Duration::from_secs(10);
/// How long a call of a check may take.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a device that has registered may not be callable (I8).
const CALLABLE: Duration = Duration::from_secs(1);

struct World {
    redis: Arc<Redis>,
    ledger: Arc<Ledger>,
    hosts: Mutex<Vec<Arc<Host>>>,
    devices: Vec<Arc<Device>>,
}

type Action = fn(&Arc<World>);

/// What may happen, and how often: of all weights together.
const ACTIONS: [(u64, Action); 9] = [
    (10, |world| world.call_any()),
    (2, |world| world.move_any()),
    (1, |world| {
        world.fault("stops", |host| host.process.stop(), 1_000, 12_000)
    }),
    (1, |world| {
        world.fault("is cut off", |host| host.link.cut(false), 100, 9_000)
    }),
    (1, |world| {
        world.fault("is disconnected", |host| host.link.cut(true), 1, 3_000)
    }),
    (1, |world| {
        world.all("redis is away", |host| host.link.cut(true), 3_000)
    }),
    (1, |world| {
        world.all("redis stands still", |host| host.link.cut(false), 8_000)
    }),
    (1, |world| world.step_clock()),
    (1, |world| world.kill_any()),
];

/// Runs the scenario of a seed. Returns the number of calls with each outcome, and what is wrong.
pub(super) async fn run(seed: u64) -> (Counts, Option<String>) {
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
        let edges = Arc::clone(&world);
        let edges = move || edges.edges();
        redis
            .tasks
            .spawn(Arc::clone(device).run(Arc::clone(&redis), edges));
    }
    world.rough().await;
    world.recover().await;
    world.check_all().await;
    world.check_move().await;
    pass(Duration::from_secs(2)).await;
    let verdict = ledger.verdict();
    redis.close();
    stop_clock();
    (ledger.counts(), verdict)
}

fn name(number: usize) -> (String, bool) {
    let is_edge = number < EDGES;
    (
        format!("{}-{number}", if is_edge { "edge" } else { "gateway" }),
        is_edge,
    )
}

impl World {
    fn edges(&self) -> Vec<Arc<Host>> {
        let hosts = self.hosts.lock();
        hosts.iter().filter(|host| host.is_edge).cloned().collect()
    }

    fn any_host(&self) -> Arc<Host> {
        let hosts = self.hosts.lock();
        Arc::clone(&hosts[self.redis.draw(hosts.len() as u64) as usize])
    }

    fn any_device(&self) -> &Arc<Device> {
        &self.devices[self.redis.draw(self.devices.len() as u64) as usize]
    }

    async fn rough(self: &Arc<Self>) {
        pass(Duration::from_millis(500)).await;
        *self.redis.is_rough.lock() = true;
        let began = Instant::now();
        let weights: u64 = ACTIONS.iter().map(|(weight, _)| weight).sum();
        while began.elapsed() < ROUGH {
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
        drop(
            self.any_host()
                .call(&self.any_device().key, limit, dropped_after),
        );
    }

    fn move_any(&self) {
        let how = self.redis.draw(3);
        let next = Move {
            to: None,
            keeps_connection: how == 0,
            vanishes: how == 1,
        };
        let device = self.any_device();
        self.ledger
            .log(|| format!("{} moves: {next:?}", device.key.device));
        device.move_to(next);
    }

    /// Something happens to a node, and ends after a while.
    fn fault(self: &Arc<Self>, what: &'static str, begin: fn(&Host), from: u64, to: u64) {
        let (host, lasts) = (self.any_host(), self.redis.draw_ms(from, to));
        self.ledger
            .log(|| format!("{} {what} for {lasts:?}", host.name));
        begin(&host);
        let redis = Arc::clone(&self.redis);
        self.redis.tasks.spawn(async move {
            pass(lasts).await;
            if *redis.is_rough.lock() {
                host.link.heal();
                host.resume().await;
            }
        });
    }

    fn all(self: &Arc<Self>, what: &'static str, begin: fn(&Host), max: u64) {
        if self.redis.draw(3) > 0 {
            return;
        }
        let (hosts, lasts) = (self.hosts.lock().clone(), self.redis.draw_ms(0, max));
        self.ledger.log(|| format!("{what} for {lasts:?}"));
        hosts.iter().for_each(|host| begin(host));
        self.redis.tasks.spawn(async move {
            pass(lasts).await;
            hosts.iter().for_each(|host| host.link.heal());
        });
    }

    fn step_clock(&self) {
        let (host, step) = (self.any_host(), self.redis.draw(7_200));
        host.process
            .step_clock(i64::try_from(step).unwrap() - 3_600);
    }

    fn kill_any(self: &Arc<Self>) {
        let number = self.redis.draw((EDGES + CALLERS) as u64) as usize;
        let (name, is_edge) = name(number);
        self.ledger.log(|| format!("{name} is killed"));
        let next = Host::start(&self.redis, &self.ledger, &name, is_edge);
        let killed = std::mem::replace(&mut self.hosts.lock()[number], next);
        killed.kill();
        // Nobody closes the sockets of a host that is gone.
        if self.redis.draw(2) == 0 {
            killed.link.unsubscribe();
        }
    }

    /// Ends all faults.
    async fn recover(&self) {
        self.ledger.log(|| "the faults end".to_owned());
        *self.redis.is_rough.lock() = false;
        let hosts = self.hosts.lock().clone();
        for host in hosts {
            host.link.heal();
            host.resume().await;
        }
        pass(RECOVERY).await;
    }

    /// I8, I9: every device is connected, found by all nodes, and callable from all.
    async fn check_all(&self) {
        let hosts = self.hosts.lock().clone();
        for device in &self.devices {
            self.check(device, &hosts).await;
        }
    }

    async fn check(&self, device: &Device, hosts: &[Arc<Host>]) {
        let name = &device.key.device;
        let Some((connection, _)) = device.current() else {
            return self
                .ledger
                .violation(&format!("I8: {name} is not connected"));
        };
        for host in hosts {
            let found = host.bus.find(&device.key).await.ok().flatten();
            let expected = (connection.edge.bus.node(), connection.epoch.get());
            let found = found
                .as_ref()
                .map(|found| (&found.node, Some(&found.epoch)));
            if found != Some(expected) {
                self.ledger
                    .violation(&format!("I8: {name} is at {expected:?}, found {found:?}"));
            }
            self.expect(host, device, Outcome::Succeeded).await;
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
        let device = self.any_device();
        let Some((connection, _)) = device.current() else {
            return;
        };
        let dark = &connection.edge;
        self.ledger
            .log(|| format!("{} goes dark, {} leaves", dark.name, device.key.device));
        dark.process.stop();
        let to = self
            .edges()
            .into_iter()
            .find(|edge| !Arc::ptr_eq(edge, dark));
        device.move_to(Move {
            to,
            ..Move::default()
        });
        pass(CALLABLE).await;
        let mut hosts = self.hosts.lock().clone();
        hosts.retain(|host| !Arc::ptr_eq(host, dark));
        self.check(device, &hosts).await;
        // The devices of the dark edge are offline when its lease has ended.
        pass(RECOVERY - CALLABLE).await;
        for device in &self.devices {
            let current = device.current().map(|(connection, _)| connection);
            if current.is_some_and(|connection| Arc::ptr_eq(&connection.edge, dark)) {
                for host in &hosts {
                    self.expect(host, device, Outcome::Offline).await;
                }
            }
        }
        dark.resume().await;
    }
}
