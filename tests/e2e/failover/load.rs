//! What callers, administrators and users of devices do during a failover, and what they receive.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use tokio::{
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval, timeout},
};

use crate::{
    device::Device,
    turns::{task, time_service},
};

/// Interval between two requests of a caller.
const CALL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between two requests of an administrator, or of a caller of queued calls.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between two questions of a device's user: as many as the edge admits in the long run.
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);
/// The deadline of a call.
const CALL_TIMEOUT_MS: u64 = 2_000;
/// How long the user of a device waits for an answer before asking again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, and whether it succeeded.
#[derive(Debug, Clone, Copy)]
struct Event {
    begun: Instant,
    ended: Instant,
    succeeded: bool,
}

/// What one worker does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    Calls,
    QueuedCalls,
    Settings,
    Turns,
}

/// The events of one worker.
pub struct Log {
    pub work: Work,
    events: Mutex<Vec<Event>>,
}

impl Log {
    fn record(&self, begun: Instant, succeeded: bool) {
        let ended = Instant::now();
        let event = Event {
            begun,
            ended,
            succeeded,
        };
        self.events.lock().unwrap().push(event);
    }

    /// Reads the requests that were not over at this time, or began later.
    fn since<T>(&self, from: Instant, read: impl FnOnce(&[Event]) -> T) -> T {
        let events = self.events.lock().unwrap();
        let first = events.partition_point(|event| event.ended < from);
        read(&events[first..])
    }

    /// The number of requests that have succeeded since the last failure.
    pub fn successes(&self, from: Instant) -> usize {
        self.since(from, |events| {
            let last = events.iter().rev();
            last.take_while(|event| event.succeeded).count()
        })
    }

    /// The number of requests that failed.
    pub fn failures(&self, from: Instant) -> usize {
        self.since(from, |events| {
            events.iter().filter(|event| !event.succeeded).count()
        })
    }

    /// From the fault until the first success after the last failure, or until now; zero without a
    /// failure.
    pub fn interruption(&self, fault: Instant) -> Duration {
        self.since(fault, |events| {
            let last = events.iter().rposition(|event| !event.succeeded);
            last.map_or(Duration::ZERO, |last| {
                let success = events.get(last + 1).map(|event| event.ended);
                success.unwrap_or_else(Instant::now) - fault
            })
        })
    }

    /// How long the slowest request took.
    pub fn slowest(&self, fault: Instant) -> Duration {
        self.since(fault, |events| {
            let times = events.iter().map(|event| event.ended - event.begun);
            times.max().unwrap_or_default()
        })
    }
}

/// What one worker has sent, and what it has received.
pub enum Sent {
    /// Texts of plain calls, and their answers.
    Calls(Vec<(String, Value)>),
    /// Texts of queued calls, and the ids of those that were accepted.
    Queued(Vec<(String, Option<String>)>),
    /// Names of templates, and the ids of those that were acknowledged.
    Templates(Vec<(String, Option<String>)>),
    /// The number of turns that were answered, and of those that were not.
    Turns(usize, usize),
}

/// The workers of one run.
#[derive(Default)]
pub struct Load {
    pub logs: Vec<Arc<Log>>,
    pub tasks: JoinSet<Sent>,
    is_over: Arc<AtomicBool>,
}

/// A worker that sends requests to one process.
struct Worker {
    log: Arc<Log>,
    is_over: Arc<AtomicBool>,
    name: String,
    ticks: Interval,
}

impl Worker {
    /// The number of the next request; `None` at the end.
    async fn next(&mut self, number: usize) -> Option<String> {
        self.ticks.tick().await;
        let goes_on = !self.is_over.load(Ordering::Relaxed);
        goes_on.then(|| format!("{}/{number}", self.name))
    }

    /// Sends a request, and records whether it was answered 2xx.
    async fn send(&self, request: reqwest::RequestBuilder) -> (StatusCode, Value) {
        let begun = Instant::now();
        let answer = request.send().await.expect("every request is answered");
        let status = answer.status();
        let body = answer.json().await.expect("JSON");
        self.log.record(begun, status.is_success());
        (status, body)
    }
}

/// The URL of a process, and a credential.
pub struct Client {
    pub http: reqwest::Client,
    pub url: String,
    pub credential: String,
}

impl Client {
    fn post(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        let request = self.http.post(format!("{}{path}", self.url));
        request.bearer_auth(&self.credential).json(body)
    }

    pub fn get(&self, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.get(format!("{}{path}", self.url));
        request.bearer_auth(&self.credential)
    }

    /// Creates a template once, however often it is requested.
    pub fn create_template(&self, name: &str) -> reqwest::RequestBuilder {
        let request = self.post("/v1/templates", &json!({"name": name}));
        request.header("Idempotency-Key", name)
    }
}

impl Load {
    fn worker(&mut self, work: Work, pause: Duration) -> Worker {
        let log = Arc::new(Log {
            work,
            events: Mutex::default(),
        });
        self.logs.push(Arc::clone(&log));
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Worker {
            log,
            is_over: Arc::clone(&self.is_over),
            name: format!("{work:?}-{}", self.logs.len()),
            ticks,
        }
    }

    /// Calls the devices in turn.
    pub fn call(&mut self, client: Client, devices: Vec<String>) {
        let mut worker = self.worker(Work::Calls, CALL_INTERVAL);
        self.tasks.spawn(async move {
            let mut sent = Vec::new();
            while let Some(text) = worker.next(sent.len()).await {
                let device = &devices[sent.len() % devices.len()];
                let body = json!({"service": "echo", "params": {"text": text}, "timeout_ms": CALL_TIMEOUT_MS});
                let request = client.post(&format!("/v1/devices/{device}/calls"), &body);
                let (_, answer) = worker.send(request).await;
                sent.push((text, answer));
            }
            Sent::Calls(sent)
        });
    }

    /// Queues calls for one device.
    pub fn queue(&mut self, client: Client, device: String) {
        let mut worker = self.worker(Work::QueuedCalls, WRITE_INTERVAL);
        self.tasks.spawn(async move {
            let mut sent = Vec::new();
            while let Some(text) = worker.next(sent.len()).await {
                let body = json!({"service": "echo", "mode": "queued", "params": {"text": text}, "timeout_ms": CALL_TIMEOUT_MS});
                let request = client.post(&format!("/v1/devices/{device}/calls"), &body);
                let (status, answer) = worker.send(request).await;
                let accepted = status == StatusCode::ACCEPTED;
                sent.push((text, accepted.then(|| id(&answer, "call_id"))));
            }
            Sent::Queued(sent)
        });
    }

    /// Creates templates.
    pub fn write(&mut self, client: Client) {
        let mut worker = self.worker(Work::Settings, WRITE_INTERVAL);
        self.tasks.spawn(async move {
            let mut sent = Vec::new();
            while let Some(name) = worker.next(sent.len()).await {
                let (status, answer) = worker.send(client.create_template(&name)).await;
                let created = status == StatusCode::CREATED;
                sent.push((name, created.then(|| id(&answer, "id"))));
            }
            Sent::Templates(sent)
        });
    }

    /// Asks one question after the other on a device.
    pub async fn talk(&mut self, mut device: Device) {
        device.register(&time_service("Get current time")).await;
        let mut worker = self.worker(Work::Turns, QUESTION_INTERVAL);
        self.tasks.spawn(async move {
            let [mut answered, mut missed] = [0; 2];
            while worker.next(answered + missed).await.is_some() {
                let begun = Instant::now();
                let ended = ask(&mut device, answered + missed);
                let is_answered = timeout(ANSWER_TIMEOUT, ended).await.unwrap_or(false);
                worker.log.record(begun, is_answered);
                *(if is_answered {
                    &mut answered
                } else {
                    &mut missed
                }) += 1;
            }
            Sent::Turns(answered, missed)
        });
    }

    /// Ends the load, and returns what was sent.
    pub async fn finish(self) -> Vec<Sent> {
        self.is_over.store(true, Ordering::Relaxed);
        self.tasks.join_all().await
    }
}

fn id(answer: &Value, field: &str) -> String {
    answer[field].as_str().expect("an id").to_owned()
}

/// Asks for the time, and answers the call that follows. Returns whether the answer contains that.
async fn ask(device: &mut Device, number: usize) -> bool {
    let (task, time) = (task(number), format!("time-{number}"));
    device.send_text(task, "What time is it?").await;
    let mut text = String::new();
    loop {
        let received = device.receive().await.expect("the connection stays open");
        match received.kind {
            Kind::Ping => device.send(Kind::Pong, "").await,
            Kind::Control => {
                let message = received.json();
                if message["type"] == "call" {
                    let call = id(&message["data"], "call_id");
                    device.send_result(&call, json!(time)).await;
                }
            }
            Kind::Text if received.task == task => {
                text.push_str(&String::from_utf8_lossy(&received.payload));
            }
            Kind::End if received.task == task => return text.contains(&time),
            _ => {}
        }
    }
}
