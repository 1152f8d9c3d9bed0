//! Two edges and two gateways behind a real haproxy, each replaced in turn under load. No call is
//! lost, and devices reconnect by themselves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::{
    child::free_port, eventually::eventually, haproxy::HaProxy, switchboard::Program,
};
use tokio::{task::JoinSet, time::Instant};

use crate::cluster::TestCluster;

/// Devices that answer immediately, and their callers.
const DEVICES: usize = 4;
const CALLERS: usize = 8;
/// Devices with a delay and one caller each; such a device can move between two of its calls.
const THINKERS: usize = 3;
/// Their service: it returns its params after two seconds.
const THINKING: &str = r#"{"services": {"think": {"description": "Says it after a while", "command": ["sh", "-c", "sleep 2; cat"]}}}"#;
/// Number of calls between two replacements.
const BETWEEN: u64 = 200;
/// How long a call is retried until its device is back.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const ONLINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that is replaced on the same ports.
struct Place {
    command: &'static str,
    listen: &'static str,
    port: u16,
    admin: u16,
    program: Program,
}

impl Place {
    fn start(command: &'static str, listen: &'static str, cluster: &TestCluster) -> Self {
        let (port, admin) = (free_port(), free_port());
        let program = Self::program(command, listen, (port, admin), cluster);
        Self {
            command,
            listen,
            port,
            admin,
            program,
        }
    }

    fn program(
        command: &str,
        listen: &str,
        (port, admin): (u16, u16),
        cluster: &TestCluster,
    ) -> Program {
        let (port, admin) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{admin}"));
        let mut arguments = vec![command, listen, &port, "--admin-listen", &admin];
        // Longer than the health check of the balancer.
        arguments.extend(["--leave-ms", "1500"]);
        if command == "edge" {
            arguments.extend(["--proxy-protocol-from", "127.0.0.1/32"]);
        }
        Program::start(&arguments, &cluster.environment())
    }

    /// Stops the process with SIGTERM, as an orchestrator does, and starts its replacement.
    async fn replace(&mut self, cluster: &TestCluster) {
        self.program.terminate();
        assert_eq!(
            self.program.exit_code(ONLINE_TIMEOUT).await,
            Some(0),
            "{}",
            self.command
        );
        let ports = (self.port, self.admin);
        self.program = Self::program(self.command, self.listen, ports, cluster);
    }
}

/// The addresses for callers and devices.
struct Balancer {
    http: String,
    devices: String,
    _haproxy: HaProxy,
}

impl Balancer {
    fn start(edges: &[Place], gateways: &[Place]) -> Self {
        let (http, devices) = (free_port(), free_port());
        let mut config = String::from(
            "defaults\n timeout connect 3s\n timeout client 2m\n timeout server 2m\n retries 3\n option redispatch\n retry-on conn-failure\n \
             default-server check inter 200ms fall 1 rise 1\n",
        );
        let servers = |places: &[Place], extra: &str| {
            let lines = places.iter().enumerate().map(|(n, place)| {
                format!(
                    " server s{n} 127.0.0.1:{} port {} {extra}\n",
                    place.port, place.admin
                )
            });
            lines.collect::<String>()
        };
        let check = " option httpchk GET /readyz\n";
        config += &format!(
            "listen devices\n mode tcp\n balance leastconn\n bind 127.0.0.1:{devices}\n{check}"
        );
        config += &servers(edges, "send-proxy-v2");
        config += &format!(
            "listen http\n mode http\n bind 127.0.0.1:{http}\n option http-server-close\n{check}"
        );
        config += &servers(gateways, "");
        Self {
            http: format!("http://127.0.0.1:{http}"),
            devices: format!("127.0.0.1:{devices}"),
            _haproxy: HaProxy::start(&config),
        }
    }
}

/// Results of all callers.
#[derive(Default)]
struct Met {
    succeeded: AtomicU64,
    /// Succeeded calls that take seconds.
    thought: AtomicU64,
    /// Slow calls during which a process received SIGTERM.
    survived: AtomicU64,
    /// Calls that were not delivered and were retried.
    again: AtomicU64,
    /// Processes that received SIGTERM.
    ended: AtomicU64,
    is_over: AtomicBool,
}

impl Met {
    /// Devices connect to the other edge before they leave the one that drains.
    fn assert_devices_stayed_callable(&self) {
        let [succeeded, again] =
            [&self.succeeded, &self.again].map(|count| count.load(Ordering::Relaxed));
        assert!(
            again * 1000 <= succeeded,
            "{again} of {succeeded} calls were not delivered"
        );
    }

    fn report(&self) {
        let [succeeded, thought, survived, again] =
            [&self.succeeded, &self.thought, &self.survived, &self.again]
                .map(|count| count.load(Ordering::Relaxed));
        println!(
            "{succeeded} calls succeeded, {thought} of them took 2 s, and {survived} of these were \
             under way when a process was told to end; {again} times one was not delivered and made \
             again"
        );
    }
}

/// A caller and its devices.
struct Calling {
    http: reqwest::Client,
    url: String,
    key: String,
    caller: String,
    service: &'static str,
    devices: Vec<String>,
    met: Arc<Met>,
}

impl Calling {
    /// Calls the devices one after the other.
    async fn go_on(self) {
        for (n, device) in self.devices.iter().cycle().enumerate() {
            if self.met.is_over.load(Ordering::Relaxed) {
                return;
            }
            self.call(device, &format!("{}-{n}", self.caller)).await;
            self.met.succeeded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls until the call succeeds. Reports a call that was neither answered nor certainly
    /// undelivered.
    async fn call(&self, device: &str, text: &str) {
        let path = format!("{}/v1/devices/{device}/calls", self.url);
        let params = json!({"text": text});
        let body = json!({"service": self.service, "params": params, "timeout_ms": 10_000});
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let deadline = Instant::now() + RETRY_TIMEOUT;
        loop {
            let ended = self.met.ended.load(Ordering::Relaxed);
            let sent = self.http.post(&path).bearer_auth(&self.key).json(&body);
            let answer = sent.send().await;
            let answer = answer.unwrap_or_else(|error| panic!("{text}: no answer: {error:?}"));
            let status = answer.status();
            let answer = answer.text().await.unwrap();
            let answer: Value = serde_json::from_str(&answer)
                .unwrap_or_else(|error| panic!("{text}: {status} {error}: {answer}"));
            if status == StatusCode::OK {
                let data = &answer["result"]["data"];
                assert!(*data == text || *data == params, "{text}: {answer}");
                if self.service == "think" {
                    self.met.thought.fetch_add(1, Ordering::Relaxed);
                    let survived = self.met.ended.load(Ordering::Relaxed) > ended;
                    self.met
                        .survived
                        .fetch_add(survived.into(), Ordering::Relaxed);
                }
                return;
            }
            assert_eq!(answer["delivered"], "no", "{text}: {status} {answer}");
            assert!(Instant::now() < deadline, "{text}: {status} {answer}");
            self.met.again.fetch_add(1, Ordering::Relaxed);
            ticks.tick().await;
        }
    }
}

/// Devices that connect through the balancer and are online.
async fn start_devices(
    ids: &[String],
    more: &[&str],
    balancer: &Balancer,
    cluster: &TestCluster,
) -> Vec<Program> {
    let mut devices = Vec::new();
    for id in ids {
        let token = cluster.device_token(id).await;
        let mut arguments = vec!["device", "--id", id, "--addr", &balancer.devices];
        arguments.extend(["--token", &token]);
        arguments.extend(more);
        devices.push(Program::launch(&arguments, &cluster.environment()));
    }
    for id in ids {
        let path = format!("{}/v1/devices/{id}", balancer.http);
        let online = async || {
            let asked = cluster.http.get(&path).bearer_auth(&cluster.org.key).send();
            let Ok(answer) = asked.await else {
                return false;
            };
            let device = answer.json::<Value>().await;
            device.is_ok_and(|device| device["online"] == true)
        };
        eventually(ONLINE_TIMEOUT, online, |online| *online).await;
    }
    devices
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_rolling_restart_loses_no_call() {
    let cluster = TestCluster::start(0).await;
    let mut edges = [0, 1].map(|_| Place::start("edge", "--device-listen", &cluster));
    let mut gateways = [0, 1].map(|_| Place::start("gateway", "--http-listen", &cluster));
    let balancer = Balancer::start(&edges, &gateways);
    let toys: Vec<_> = (0..DEVICES).map(|n| format!("toy-{n}")).collect();
    let thinkers: Vec<_> = (0..THINKERS).map(|n| format!("thinker-{n}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let services = folder.path().join("services.json");
    std::fs::write(&services, THINKING).unwrap();
    let thinking = ["--services", services.to_str().unwrap()];
    let _toys = start_devices(&toys, &[], &balancer, &cluster).await;
    let _thinkers = start_devices(&thinkers, &thinking, &balancer, &cluster).await;
    let met = Arc::new(Met::default());
    let mut callers = JoinSet::new();
    let mut start = |caller: String, service, devices| {
        let calling = Calling {
            http: reqwest::Client::new(),
            url: balancer.http.clone(),
            key: cluster.org.key.clone(),
            caller,
            service,
            devices,
            met: Arc::clone(&met),
        };
        callers.spawn(calling.go_on());
    };
    for caller in 0..CALLERS {
        let mut devices = toys.clone();
        devices.rotate_left(caller % DEVICES);
        start(caller.to_string(), "echo", devices);
    }
    for thinker in &thinkers {
        start(thinker.clone(), "think", vec![thinker.clone()]);
    }
    let more = async |callers: &mut JoinSet<()>| {
        let now = || [&met.succeeded, &met.thought].map(|count| count.load(Ordering::Relaxed));
        let [succeeded, thought] = now();
        let wanted = [succeeded + BETWEEN, thought + 1];
        let reached = async || now()[0] >= wanted[0] && now()[1] >= wanted[1];
        tokio::select! {
            () = async { eventually(ONLINE_TIMEOUT, reached, |reached| *reached).await; } => {}
            Some(ended) = callers.join_next() => ended.unwrap(),
        }
    };
    more(&mut callers).await;
    let mut replace = async |place: &mut Place| {
        met.ended.fetch_add(1, Ordering::Relaxed);
        place.replace(&cluster).await;
        more(&mut callers).await;
    };
    for place in &mut edges {
        replace(place).await;
    }
    met.assert_devices_stayed_callable();
    for place in &mut gateways {
        replace(place).await;
    }
    met.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    met.report();
    // A slow device has a call in flight almost always.
    let [survived, ended] = [&met.survived, &met.ended].map(|count| count.load(Ordering::Relaxed));
    assert!(survived >= ended, "{survived}");
}
