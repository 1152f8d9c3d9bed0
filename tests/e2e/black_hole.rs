//! Connections to Redis that stay open and forward nothing, in one direction or in both: no FIN, no
//! RST. What was sent in the meantime arrives when they continue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use switchboard_test_support::{
    eventually::eventually,
    switchboard::Program,
    tcp_proxy::{Direction, TcpProxy},
};
use tokio::{task::JoinSet, time::interval};

use crate::{
    cluster::{ANY_PORT, TestCluster},
    device::Ledger,
};

const CALL_TIMEOUT: Duration = Duration::from_secs(1);
const CALL_INTERVAL: Duration = Duration::from_millis(200);
/// How late a call may be executed, and how late it may end during a failure.
const MAX_EXECUTION_DELAY: Duration = Duration::from_millis(250);
const MAX_END_DELAY: Duration = Duration::from_secs(1);
/// How much later the caller has the answer than the gateway by its own measure.
const MAX_ANSWER_DELAY: Duration = Duration::from_secs(1);
/// How long a device may be without a call when it has registered elsewhere.
const MOVE_TIMEOUT: Duration = Duration::from_secs(1);
const OFFLINE_TIMEOUT: Duration = Duration::from_secs(10);
const HEAL_TIMEOUT: Duration = Duration::from_secs(6);
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Failed calls after which a short black hole ends. Their connection outlives it.
const SHORT_HOLE_CALLS: usize = 5;

/// The devices. The edge of the first two is cut off, if an edge is.
const STAYS: &str = "stays";
const MOVES: &str = "moves";
const BESIDE: &str = "beside";

/// Which process reaches Redis through the proxy.
#[derive(Clone, Copy, PartialEq)]
enum CutOff {
    Edge,
    Gateway,
}

/// Calls through one gateway.
#[derive(Clone)]
struct Caller {
    http: reqwest::Client,
    url: String,
    key: String,
}

/// A call that has ended.
struct Ended {
    text: String,
    /// The latest that the gateway received it: its deadline counts from then.
    received: Instant,
    took: Duration,
    /// The same by the caller's clock.
    waited: Duration,
    answer: Value,
}

/// Callers of every device, until they are stopped.
struct Load {
    is_over: Arc<AtomicBool>,
    /// Calls of the device that stays which did not succeed.
    failed: Arc<AtomicUsize>,
    callers: JoinSet<Vec<Ended>>,
}

/// Two edges and a gateway. One more process is cut off: an edge or a gateway.
struct Fixture {
    cluster: TestCluster,
    proxy: TcpProxy,
    cut_off: CutOff,
    /// The gateway that reaches Redis directly.
    direct: Caller,
    /// The gateway whose calls fail in the hole.
    failing: Caller,
    _gateway: Option<Program>,
    ledgers: Vec<Ledger>,
    devices: JoinSet<usize>,
}

impl Caller {
    fn new(cluster: &TestCluster, gateway: &Program) -> Self {
        Self {
            http: cluster.http.clone(),
            url: gateway.address("http_url"),
            key: cluster.org.key.clone(),
        }
    }

    async fn call(&self, device: &str, text: String) -> Ended {
        let made = Instant::now();
        let answer = self.post(device, &text, "sync").await;
        let waited = made.elapsed();
        // Refused ones have not been measured by the gateway.
        let elapsed_ms = answer["elapsed_ms"].as_f64();
        let took = elapsed_ms.map_or(waited, |ms| Duration::from_secs_f64(ms / 1e3));
        Ended {
            text,
            received: Instant::now() - took,
            took,
            waited,
            answer,
        }
    }

    async fn post(&self, device: &str, text: &str, mode: &str) -> Value {
        let url = format!("{}/v1/devices/{device}/calls", self.url);
        let timeout_ms = u64::try_from(CALL_TIMEOUT.as_millis()).unwrap();
        let body = json!({"service": "echo", "params": {"text": text}, "mode": mode,
            "timeout_ms": timeout_ms});
        let request = self.http.post(url).bearer_auth(&self.key).json(&body);
        request.send().await.unwrap().json().await.unwrap()
    }

    /// Waits until a call of this device succeeds.
    async fn succeeds(&self, device: &str, within: Duration) {
        let outcome = async || {
            let call = self.call(device, "probe".to_owned()).await;
            call.answer["outcome"].clone()
        };
        eventually(within, outcome, |outcome| *outcome == "succeeded").await;
    }
}

impl Load {
    /// Starts one caller for each device at each gateway.
    fn start(gateways: &[&Caller]) -> Self {
        let mut load = Self {
            is_over: Arc::default(),
            failed: Arc::default(),
            callers: JoinSet::new(),
        };
        for (number, gateway) in gateways.iter().enumerate() {
            for device in [STAYS, MOVES, BESIDE] {
                let name = format!("{number}/{device}");
                let (is_over, failed) = (Arc::clone(&load.is_over), Arc::clone(&load.failed));
                let gateway = (*gateway).clone();
                load.callers.spawn(async move {
                    let (mut calls, mut ticks) = (JoinSet::new(), interval(CALL_INTERVAL));
                    while !is_over.load(Ordering::Relaxed) {
                        ticks.tick().await;
                        let text = format!("{name}/{}", calls.len());
                        let (gateway, failed) = (gateway.clone(), Arc::clone(&failed));
                        calls.spawn(async move {
                            let ended = gateway.call(device, text).await;
                            if device == STAYS && ended.answer["outcome"] != "succeeded" {
                                failed.fetch_add(1, Ordering::Relaxed);
                            }
                            ended
                        });
                    }
                    calls.join_all().await
                });
            }
        }
        load
    }

    /// Waits until this many more calls have failed.
    async fn fails(&self, more: usize) {
        let failed = async || self.failed.load(Ordering::Relaxed);
        let enough = failed().await + more;
        eventually(START_TIMEOUT, failed, |failed| *failed >= enough).await;
    }

    async fn stop(self) -> Vec<Ended> {
        self.is_over.store(true, Ordering::Relaxed);
        self.callers
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Fixture {
    async fn start(cut_off: CutOff) -> Self {
        let mut cluster = TestCluster::start(1).await;
        let proxy = TcpProxy::start(cluster.redis.address()).await;
        let mut environment = cluster.environment();
        let mut gateway = None;
        match cut_off {
            CutOff::Edge => {
                environment.push(("REDIS_URL", proxy.redis_url()));
                cluster.edges.push(Program::start(&["edge"], &environment));
            }
            CutOff::Gateway => {
                cluster.edges.push(Program::start(&["edge"], &environment));
                environment.push(("REDIS_URL", proxy.redis_url()));
                let arguments = ["gateway", "--http-listen", ANY_PORT];
                gateway = Some(Program::start(&arguments, &environment));
            }
        }
        let direct = Caller::new(&cluster, &cluster.gateway);
        let failing = Caller::new(&cluster, gateway.as_ref().unwrap_or(&cluster.gateway));
        let mut fixture = Self {
            cluster,
            proxy,
            cut_off,
            direct,
            failing,
            _gateway: gateway,
            ledgers: Vec::new(),
            devices: JoinSet::new(),
        };
        for program in fixture.cluster.edges.iter().chain(&fixture._gateway) {
            fixture.cluster.await_ready(program).await;
        }
        for (edge, device) in [(1, STAYS), (1, MOVES), (0, BESIDE)] {
            fixture.connect(edge, device).await;
            fixture.failing.succeeds(device, START_TIMEOUT).await;
        }
        fixture
    }

    /// Connects a device to an edge, where it executes calls. Returns which ones.
    async fn connect(&mut self, edge: usize, device: &str) -> Ledger {
        let connection = self.cluster.echo(edge, device).await;
        let ledger = connection.executed.clone();
        self.ledgers.push(ledger.clone());
        let mut served = connection.serve();
        self.devices
            .spawn(async move { served.join_next().await.unwrap().unwrap() });
        ledger
    }

    /// A hole that ends before the connection is given up: what was sent arrives on it.
    async fn short_hole(&self, direction: Direction, load: &Load) {
        self.proxy.black_hole(direction);
        load.fails(SHORT_HOLE_CALLS).await;
        self.proxy.pass();
        self.failing.succeeds(STAYS, HEAL_TIMEOUT).await;
    }

    /// A hole that lasts until the rest of the system has adapted to it.
    async fn long_hole(&mut self, direction: Direction, load: &Load) {
        self.proxy.black_hole(direction);
        let begun = Instant::now();
        load.fails(1).await;
        let moved = self.connect(0, MOVES).await;
        let executed = async || moved.params().len();
        eventually(MOVE_TIMEOUT, executed, |count| *count > 0).await;
        match self.cut_off {
            CutOff::Edge => self.await_offline(begun).await,
            CutOff::Gateway => self.await_refusal().await,
        }
        self.proxy.pass();
        for device in [STAYS, MOVES, BESIDE] {
            self.failing.succeeds(device, HEAL_TIMEOUT).await;
        }
        // The former connection of the device that moved.
        let closed = tokio::time::timeout(HEAL_TIMEOUT, self.devices.join_next());
        closed.await.expect("its edge closes it").unwrap().unwrap();
    }

    /// The device that stays is offline in time.
    async fn await_offline(&self, begun: Instant) {
        let path = format!("/v1/devices/{STAYS}");
        let online = async || self.cluster.get(&path).await.1["online"].clone();
        let left = OFFLINE_TIMEOUT.saturating_sub(begun.elapsed());
        eventually(left, online, |online| *online == false).await;
        let answer = self.direct.call(STAYS, "offline".to_owned()).await.answer;
        assert_eq!(answer["outcome"], "offline", "{answer}");
        let took = begun.elapsed();
        assert!(took < OFFLINE_TIMEOUT, "{took:?}");
    }

    /// The gateway refuses calls instead of sending them into the hole.
    async fn await_refusal(&self) {
        let answer = async || self.failing.call(STAYS, "refused".to_owned()).await.answer;
        let is_refused = |answer: &Value| answer["status"] == 503;
        let answer = eventually(OFFLINE_TIMEOUT, answer, is_refused).await;
        assert_eq!(answer["delivered"], "no", "{answer}");
        // The first refusal may be that of a look-up, before the gateway knows that it is cut off.
        let answer = async || self.failing.post(STAYS, "refused", "async").await;
        let answer = eventually(OFFLINE_TIMEOUT, answer, is_refused).await;
        assert_eq!(answer["delivered"], "no", "{answer}");
    }

    /// How often and when a call was executed.
    fn executions(&self, text: &str) -> Vec<Instant> {
        let calls = self.ledgers.iter().flat_map(Ledger::calls);
        let executed = calls.filter(|(_, params)| params["text"] == text);
        executed.map(|(at, _)| at).collect()
    }

    /// Checks that a call has one true outcome, in time.
    fn check(&self, call: &Ended) {
        let Ended {
            text, took, answer, ..
        } = call;
        assert!(
            *took < CALL_TIMEOUT + MAX_END_DELAY,
            "{text}: {took:?}: {answer}"
        );
        let waited = call.waited;
        assert!(
            waited < CALL_TIMEOUT + MAX_END_DELAY + MAX_ANSWER_DELAY,
            "{text}: {waited:?}: {answer}"
        );
        let executed = self.executions(text);
        for at in &executed {
            let late = at.saturating_duration_since(call.received + CALL_TIMEOUT);
            assert!(
                late <= MAX_EXECUTION_DELAY,
                "{text}: {late:?} late: {answer}"
            );
        }
        let end = (answer["outcome"].as_str(), answer["delivered"].as_str());
        match end {
            (Some("succeeded"), Some("yes")) => assert_eq!(executed.len(), 1, "{text}"),
            (None | Some("offline" | "timed_out" | "lost"), Some("no")) => {
                assert!(executed.is_empty(), "{text}: {answer}");
            }
            (Some("timed_out" | "lost"), Some("unknown")) => {
                assert!(executed.len() <= 1, "{text}: {answer}");
            }
            _ => panic!("not an end that this fault can have: {text}: {answer}"),
        }
    }
}

/// Calls devices during a short hole and a long one, and checks every call.
async fn check_calls(cut_off: CutOff, direction: Direction) {
    let mut fixture = Fixture::start(cut_off).await;
    let load = match cut_off {
        CutOff::Edge => Load::start(&[&fixture.failing]),
        CutOff::Gateway => Load::start(&[&fixture.failing, &fixture.direct]),
    };
    fixture.short_hole(direction, &load).await;
    fixture.long_hole(direction, &load).await;
    // What waited in a socket has arrived by then.
    let ended = load.stop().await;
    let unaffected = match cut_off {
        CutOff::Edge => vec![format!("0/{BESIDE}/")],
        CutOff::Gateway => [STAYS, BESIDE].map(|device| format!("1/{device}/")).into(),
    };
    for call in &ended {
        fixture.check(call);
        let (text, answer) = (&call.text, &call.answer);
        if unaffected.iter().any(|prefix| text.starts_with(prefix)) {
            assert_eq!(answer["outcome"], "succeeded", "{text}: {answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i8_edge_that_redis_does_not_receive() {
    check_calls(CutOff::Edge, Direction::ToServer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i8_edge_that_does_not_receive_redis() {
    check_calls(CutOff::Edge, Direction::FromServer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i8_edge_in_a_black_hole() {
    check_calls(CutOff::Edge, Direction::Both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i3_gateway_that_redis_does_not_receive() {
    check_calls(CutOff::Gateway, Direction::ToServer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i3_gateway_that_does_not_receive_redis() {
    check_calls(CutOff::Gateway, Direction::FromServer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i3_gateway_in_a_black_hole() {
    check_calls(CutOff::Gateway, Direction::Both).await;
}
