//! What the other organisation does while a process is attacked, one type for each kind of work.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use switchboard_protocol::frame::Kind as FrameKind;
use tokio::{
    sync::{Barrier, watch},
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval, timeout},
};

use super::sized;
use crate::{
    cluster::{Org, TestCluster, echo_services},
    device::Device,
    turns::task,
    webhooks::Endpoint,
};

/// Within this time a piece of work succeeds, whatever others do.
const WORK_TIMEOUT: Duration = Duration::from_secs(10);
/// Devices that register, talk and report events, in turn. Together they stay below the rates of a
/// device.
const DEVICES: usize = 10;

/// A kind of work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Synchronous calls of a device that answers at once.
    Calls,
    /// A device registers a service that is not known yet.
    Registrations,
    /// A user's message, until the answer of the rule responder is complete.
    Turns,
    /// A template is changed and read.
    Settings,
    /// A device's event, until a webhook has received it.
    Webhooks,
}

/// How long pieces of one kind of work took, in the order of their ends.
pub(super) struct Times {
    pub(super) kind: Kind,
    pub(super) before: Vec<Duration>,
    pub(super) during: Vec<Duration>,
}

/// When work is measured.
#[derive(Clone)]
pub(super) struct Phases {
    /// The times before the attack are measured.
    pub(super) before_done: Arc<Barrier>,
    /// The attack has taken what it is allowed to take.
    pub(super) is_attacked: watch::Receiver<bool>,
}

/// The other organisation at one kind of work.
trait Work: Send + 'static {
    /// Does one piece of work, which must succeed.
    fn perform(&mut self, number: usize) -> impl Future<Output = ()> + Send;
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Registrations => "registrations",
            Self::Turns => "turns",
            Self::Settings => "settings",
            Self::Webhooks => "webhooks",
        }
    }

    /// Whether a chat process answers.
    pub(super) fn needs_chat(self) -> bool {
        matches!(self, Self::Turns)
    }

    /// Pieces of work before the attack, and again while the attacker holds what it has taken.
    fn rounds(self) -> usize {
        match self {
            Self::Calls => sized(20, 500),
            Self::Settings => sized(10, 200),
            Self::Registrations | Self::Turns => sized(3, 100),
            Self::Webhooks => sized(2, 40),
        }
    }

    /// Time between two pieces of work.
    fn interval(self) -> Duration {
        Duration::from_millis(match self {
            Self::Calls => 10,
            Self::Settings => 20,
            Self::Registrations | Self::Turns | Self::Webhooks => 100,
        })
    }

    /// Starts this kind of work in a task.
    pub(super) async fn start(
        self,
        workers: &mut JoinSet<Times>,
        cluster: &TestCluster,
        org: &Org,
        phases: Phases,
    ) {
        match self {
            Self::Calls => {
                let work = Calls::new(cluster, org).await;
                workers.spawn(measure(self, work, phases));
            }
            Self::Registrations => {
                let work = Registrations(devices(cluster, org, "registering").await);
                workers.spawn(measure(self, work, phases));
            }
            Self::Turns => {
                let work = Turns(devices(cluster, org, "talking").await);
                workers.spawn(measure(self, work, phases));
            }
            Self::Settings => {
                let work = Settings::new(cluster, org).await;
                workers.spawn(measure(self, work, phases));
            }
            Self::Webhooks => {
                let work = Webhooks::new(cluster, org).await;
                workers.spawn(measure(self, work, phases));
            }
        }
    }
}

async fn devices(cluster: &TestCluster, org: &Org, name: &str) -> Vec<Device> {
    let mut devices = Vec::with_capacity(DEVICES);
    for number in 0..DEVICES {
        let device = cluster.device_of(org, &format!("{name}-{number}")).await;
        devices.push(device);
    }
    devices
}

/// Works until enough was measured before and during the attack.
async fn measure(kind: Kind, work: impl Work, phases: Phases) -> Times {
    let mut timed = TimedWork::new(kind, work);
    // The first piece opens connections and fills caches.
    timed.perform().await;
    let mut times = Times {
        kind,
        before: Vec::new(),
        during: Vec::new(),
    };
    for _ in 0..kind.rounds() {
        times.before.push(timed.perform().await);
    }
    phases.before_done.wait().await;
    let mut left = kind.rounds();
    while left > 0 {
        if *phases.is_attacked.borrow() {
            left -= 1;
        }
        times.during.push(timed.perform().await);
    }
    times
}

struct TimedWork<W> {
    kind: Kind,
    work: W,
    ticks: Interval,
    next: usize,
}

impl<W: Work> TimedWork<W> {
    fn new(kind: Kind, work: W) -> Self {
        let mut ticks = interval(kind.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            kind,
            work,
            ticks,
            next: 0,
        }
    }

    /// Does the next piece of work, and returns how long it took.
    async fn perform(&mut self) -> Duration {
        self.ticks.tick().await;
        let begun = Instant::now();
        let work = timeout(WORK_TIMEOUT, self.work.perform(self.next)).await;
        assert!(
            work.is_ok(),
            "{} took longer than {WORK_TIMEOUT:?}",
            self.kind.name()
        );
        self.next += 1;
        begun.elapsed()
    }
}

struct Calls {
    http: reqwest::Client,
    url: String,
    key: String,
    _served: JoinSet<usize>,
}

impl Calls {
    async fn new(cluster: &TestCluster, org: &Org) -> Self {
        let mut device = cluster.device_of(org, "called").await;
        device.register(&echo_services()).await;
        Self {
            http: reqwest::Client::new(),
            url: cluster.url("/v1/devices/called/calls"),
            key: org.key.clone(),
            _served: device.serve(),
        }
    }
}

impl Work for Calls {
    async fn perform(&mut self, number: usize) {
        let body = json!({"service": "echo", "params": {"text": number.to_string()}});
        let call = self.http.post(&self.url).bearer_auth(&self.key).json(&body);
        let answer = call.send().await.unwrap();
        let (status, answer): (_, Value) = (answer.status(), answer.json().await.unwrap());
        assert_eq!(answer["outcome"], "succeeded", "{status}: {answer}");
    }
}

struct Registrations(Vec<Device>);

impl Work for Registrations {
    async fn perform(&mut self, number: usize) {
        let parameters = json!({
            "type": "object",
            "properties": {format!("property_{number}"): {"type": "string", "pattern": "^[a-z]{1,8}$"}},
        });
        let services = json!({"turn": {"description": "Turns.", "parameters": parameters}});
        let device = number % self.0.len();
        self.0[device].register(&services.to_string()).await;
    }
}

struct Turns(Vec<Device>);

impl Work for Turns {
    async fn perform(&mut self, number: usize) {
        let device = number % self.0.len();
        self.0[device].ask(task(number % 10_000), "Hello").await;
    }
}

struct Settings {
    http: reqwest::Client,
    url: String,
    key: String,
    version: String,
}

impl Settings {
    async fn new(cluster: &TestCluster, org: &Org) -> Self {
        let http = reqwest::Client::new();
        let control = cluster.control.address("http_url");
        let url = format!("{control}/v1/templates");
        let create = http.post(&url).bearer_auth(&org.key);
        let created = create.json(&json!({"name": "Quiet"})).send().await.unwrap();
        assert_eq!(created.status(), 201);
        let header = |name: &str| created.headers()[name].to_str().unwrap().to_owned();
        Self {
            url: format!("{control}{}", header("location")),
            version: header("etag"),
            key: org.key.clone(),
            http,
        }
    }
}

impl Work for Settings {
    async fn perform(&mut self, number: usize) {
        let name = json!({"name": format!("Quiet {number}")});
        let change = self.http.patch(&self.url).bearer_auth(&self.key);
        let change = change
            .header("if-match", &self.version)
            .header("content-type", "application/merge-patch+json")
            .body(name.to_string());
        assert_eq!(change.send().await.unwrap().status(), 200);
        let shown = self.http.get(&self.url).bearer_auth(&self.key).send();
        let shown = shown.await.unwrap();
        self.version = shown.headers()["etag"].to_str().unwrap().to_owned();
        let shown: Value = shown.json().await.unwrap();
        assert_eq!(shown["name"], name["name"]);
    }
}

struct Webhooks {
    devices: Vec<Device>,
    endpoint: Endpoint,
}

impl Webhooks {
    async fn new(cluster: &TestCluster, org: &Org) -> Self {
        let endpoint = Endpoint::start(false).await;
        cluster.listen_as(org, &endpoint, &["device.event"]).await;
        let devices = devices(cluster, org, "reporting").await;
        Self { devices, endpoint }
    }
}

impl Work for Webhooks {
    async fn perform(&mut self, number: usize) {
        let device = number % self.devices.len();
        let event = json!({"name": "button", "data": {"number": number}});
        let device = &mut self.devices[device];
        device.send(FrameKind::Event, &event.to_string()).await;
        let is_own = |body: &Value| body["data"]["data"]["number"] == number;
        self.endpoint.receives(is_own).await;
    }
}
