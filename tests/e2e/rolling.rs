//! Two edges and two gateways behind a real haproxy, each replaced in turn while calls flow: none is lost, and devices come
//! back by themselves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    eventually::eventually,
    haproxy::{Haproxy, free_port},
    plant::Plant,
    program::Program,
};

const DEVICES: usize = 4;
const CALLERS: usize = 8;
/// Calls between two replacements.
const BETWEEN: u64 = 200;
/// How long a call may be tried again until its device is back.
const PATIENCE: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);

/// A process that is replaced at the same ports.
struct Place {
    command: &'static str,
    listen: &'static str,
    port: u16,
    admin: u16,
    program: Program,
}

impl Place {
    fn start(command: &'static str, listen: &'static str, plant: &Plant) -> Self {
        let (port, admin) = (free_port(), free_port());
        let program = Self::program(command, listen, (port, admin), plant);
        Self {
            command,
            listen,
            port,
            admin,
            program,
        }
    }

    fn program(command: &str, listen: &str, (port, admin): (u16, u16), plant: &Plant) -> Program {
        let (port, admin) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{admin}"));
        let mut arguments = vec![command, listen, &port, "--admin-listen", &admin];
        // Longer than the balancer takes to notice.
        arguments.extend(["--leave-ms", "1500"]);
        if command == "edge" {
            arguments.extend(["--proxy-protocol-from", "127.0.0.1/32"]);
        }
        Program::start(&arguments, &plant.environment())
    }

    /// Ends it as an orchestrator does, and starts another one in its place.
    async fn replace(&mut self, plant: &Plant) {
        self.program.terminate();
        assert_eq!(
            self.program.exit_code(LONG).await,
            Some(0),
            "{}",
            self.command
        );
        let ports = (self.port, self.admin);
        self.program = Self::program(self.command, self.listen, ports, plant);
    }
}

/// Where callers and devices come in.
struct Balancer {
    http: String,
    devices: String,
    _haproxy: Haproxy,
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
            _haproxy: Haproxy::start(&config),
        }
    }
}

/// What callers met.
#[derive(Default)]
struct Met {
    succeeded: AtomicU64,
    /// Not delivered, and tried again.
    again: AtomicU64,
    is_over: AtomicBool,
}

/// Calls one device after another, and tells of each call that was neither answered nor certainly not delivered.
async fn call_on(url: String, key: String, caller: usize, met: Arc<Met>) {
    let http = reqwest::Client::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    for n in 0.. {
        if met.is_over.load(Ordering::Relaxed) {
            return;
        }
        let path = format!("{url}/v1/devices/toy-{}/calls", (caller + n) % DEVICES);
        let text = format!("{caller}-{n}");
        let body = json!({"service": "echo", "params": {"text": text}, "timeout_ms": 10_000});
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sent = http.post(&path).bearer_auth(&key).json(&body).send().await;
            let answer = sent.unwrap_or_else(|error| panic!("{text}: no answer: {error:?}"));
            let status = answer.status();
            let answer: Value = answer.json().await.unwrap();
            if status == StatusCode::OK {
                assert_eq!(answer["result"]["data"], text, "{answer}");
                met.succeeded.fetch_add(1, Ordering::Relaxed);
                break;
            }
            assert_eq!(answer["delivered"], "no", "{text}: {status} {answer}");
            assert!(Instant::now() < deadline, "{text}: {status} {answer}");
            met.again.fetch_add(1, Ordering::Relaxed);
            ticks.tick().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_each_process_is_replaced_in_turn_and_no_call_is_lost() {
    let plant = Plant::start(0).await;
    let mut edges = [0, 1].map(|_| Place::start("edge", "--device-listen", &plant));
    let mut gateways = [0, 1].map(|_| Place::start("gateway", "--http-listen", &plant));
    let balancer = Balancer::start(&edges, &gateways);
    let mut devices = Vec::new();
    for n in 0..DEVICES {
        let id = format!("toy-{n}");
        let token = plant.device_token(&id).await;
        let arguments = [
            "device",
            "--id",
            &id,
            "--addr",
            &balancer.devices,
            "--token",
            &token,
        ];
        devices.push(Program::launch(&arguments, &plant.environment()));
    }
    for n in 0..DEVICES {
        let path = format!("{}/v1/devices/toy-{n}", balancer.http);
        let online = async || {
            let asked = plant
                .http
                .get(&path)
                .bearer_auth(&plant.org.key)
                .send()
                .await;
            let Ok(answer) = asked else { return false };
            answer
                .json::<Value>()
                .await
                .is_ok_and(|device| device["online"] == true)
        };
        eventually(LONG, online, |online| *online).await;
    }
    let met = Arc::new(Met::default());
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (url, key) = (balancer.http.clone(), plant.org.key.clone());
        callers.spawn(call_on(url, key, caller, Arc::clone(&met)));
    }
    let more = async |callers: &mut JoinSet<()>| {
        let wanted = met.succeeded.load(Ordering::Relaxed) + BETWEEN;
        let reached = async || met.succeeded.load(Ordering::Relaxed) >= wanted;
        tokio::select! {
            () = async { eventually(LONG, reached, |reached| *reached).await; } => {}
            Some(ended) = callers.join_next() => ended.unwrap(),
        }
    };
    more(&mut callers).await;
    for place in edges.iter_mut().chain(&mut gateways) {
        place.replace(&plant).await;
        more(&mut callers).await;
    }
    met.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    println!(
        "{} calls succeeded, {} were not delivered and tried again",
        met.succeeded.load(Ordering::Relaxed),
        met.again.load(Ordering::Relaxed)
    );
}
