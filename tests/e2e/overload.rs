//! Overload: a device that works on a few calls at a time is called more often than it can answer.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep_until},
};

use crate::{cluster::TestCluster, device::Device, hostile::status_kib};

/// Calls that the device works on at a time, and that the edge admits.
const SLOTS: usize = 8;
/// The device answers a call after this time. Pauses of a loaded machine are shorter.
const WORK_TIME: Duration = Duration::from_secs(1);
/// Time for which a load is offered.
const PHASE: Duration = Duration::from_secs(8);
/// A call that were queued instead of refused would not end in time.
const TIMEOUT_MS: u64 = 8_000;
/// Bytes of the params of each call. Those that are refused at five times the peak are twice
/// `MAX_GROWTH_KIB`.
const PARAMS_BYTES: usize = 64 * 1024;
const MAX_GROWTH_KIB: u64 = 6 * 1024;

/// How a call ended.
struct Ended {
    succeeded: bool,
    at: Instant,
    took: Duration,
}

/// Calls one device.
struct Caller {
    http: reqwest::Client,
    url: String,
    key: String,
    body: Bytes,
}

impl Caller {
    fn new(cluster: &TestCluster) -> Self {
        let params = json!({"text": "t".repeat(PARAMS_BYTES)});
        let body = json!({"service": "work", "params": params, "timeout_ms": TIMEOUT_MS});
        Self {
            http: cluster.http.clone(),
            url: cluster.url("/v1/devices/toy-1/calls"),
            key: cluster.org.key.clone(),
            body: body.to_string().into(),
        }
    }

    /// Makes a call, which must succeed or be refused without having been delivered.
    async fn call(&self) -> Ended {
        let request = self.http.post(&self.url).bearer_auth(&self.key);
        let request = request.header("content-type", "application/json");
        let started = Instant::now();
        let answer = request.body(self.body.clone()).send().await.unwrap();
        let status = answer.status();
        let answer: Value = answer.json().await.unwrap();
        let succeeded = status == StatusCode::OK;
        if !succeeded {
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
            let refused = [&answer["outcome"], &answer["delivered"]];
            assert_eq!(refused, ["overloaded", "no"], "{answer}");
        }
        Ended {
            succeeded,
            at: Instant::now(),
            took: started.elapsed(),
        }
    }

    /// Calls without a pause from as many callers as the device has slots.
    async fn saturate(self: &Arc<Self>) -> Load {
        let started = Instant::now();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for _ in 0..SLOTS {
            let (caller, is_over) = (Arc::clone(self), Arc::clone(&is_over));
            callers.spawn(async move {
                let mut calls = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    calls.push(caller.call().await);
                    if started.elapsed() > PHASE {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
                calls
            });
        }
        let calls = callers.join_all().await;
        Load::new(started, PHASE, calls.into_iter().flatten())
    }

    /// Makes calls at a rate, whether or not earlier ones have ended.
    async fn offer(self: &Arc<Self>, per_s: f64) -> Load {
        let started = Instant::now();
        let mut ticks = interval(Duration::from_secs_f64(1.0 / per_s));
        let mut calls = JoinSet::new();
        // Ticks that were missed are made up for.
        for _ in 0..(per_s * PHASE.as_secs_f64()) as usize {
            ticks.tick().await;
            let caller = Arc::clone(self);
            calls.spawn(async move { caller.call().await });
        }
        let period = started.elapsed();
        Load::new(started, period, calls.join_all().await)
    }
}

/// The calls of a phase.
struct Load {
    /// Calls that succeeded within the phase, per second.
    goodput_per_s: f64,
    /// How long the others took until they were refused, in ascending order.
    refusals: Vec<Duration>,
    calls: usize,
}

impl Load {
    fn new(started: Instant, period: Duration, calls: impl IntoIterator<Item = Ended>) -> Self {
        let calls: Vec<_> = calls.into_iter().collect();
        let is_good = |call: &&Ended| call.succeeded && call.at <= started + period;
        let refused = calls.iter().filter(|call| !call.succeeded);
        let mut refusals: Vec<_> = refused.map(|call| call.took).collect();
        refusals.sort_unstable();
        Self {
            goodput_per_s: calls.iter().filter(is_good).count() as f64 / period.as_secs_f64(),
            refusals,
            calls: calls.len(),
        }
    }
}

/// A device with `SLOTS` slots, each of which takes `WORK_TIME` for a call. Further calls wait.
async fn work(mut device: Device) {
    let mut free_at = VecDeque::from([Instant::now(); SLOTS]);
    let mut in_progress: VecDeque<(Instant, String)> = VecDeque::new();
    loop {
        let next = in_progress.front().map(|(done_at, _)| *done_at);
        let done_at = next.unwrap_or_else(Instant::now);
        tokio::select! {
            received = device.receive() => {
                let Some(received) = received else { return };
                if received.kind == Kind::Ping {
                    device.send(Kind::Pong, "").await;
                } else if received.kind == Kind::Control {
                    let message = received.json();
                    assert_eq!(message["type"], "call", "a call ended before its answer: {message}");
                    let call_id = message["data"]["call_id"].as_str().unwrap().to_owned();
                    let done_at = free_at.pop_front().unwrap().max(Instant::now()) + WORK_TIME;
                    free_at.push_back(done_at);
                    in_progress.push_back((done_at, call_id));
                }
            }
            () = sleep_until(done_at), if next.is_some() => {
                let (_, call_id) = in_progress.pop_front().unwrap();
                device.answer(&call_id, &json!({"success": true, "data": "done"})).await;
            }
        }
    }
}

/// The most memory that the processes on the path of a call have used.
fn peak_memory_kib(cluster: &TestCluster) -> [u64; 2] {
    [&cluster.edges[0], &cluster.gateway]
        .map(|process| status_kib(process.pid(), "VmHWM:").unwrap())
}

/// A device with `SLOTS` slots, which receives its calls from the caller.
async fn start() -> (TestCluster, Device, Arc<Caller>) {
    let slots = SLOTS.to_string();
    let settings = [("SWITCHBOARD_DEVICE_MAX_CALLS_IN_FLIGHT", slots.as_str())];
    let cluster = TestCluster::start_with(1, &settings).await;
    let mut device = cluster.device(0, "toy-1").await;
    let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let service = json!({"work": {"description": "Works", "parameters": parameters}});
    device.register(&service.to_string()).await;
    let caller = Arc::new(Caller::new(&cluster));
    (cluster, device, caller)
}

#[tokio::test(flavor = "multi_thread")]
async fn i10_calls_are_refused_before_any_call_in_progress_ends() {
    let (_cluster, mut device, caller) = start().await;
    let call = || {
        let caller = Arc::clone(&caller);
        async move { caller.call().await }
    };
    let mut admitted: JoinSet<_> = (0..SLOTS).map(|_| call()).collect();
    let mut call_ids = Vec::new();
    for _ in 0..SLOTS {
        call_ids.push(device.next_call().await.0);
    }
    // A call that waited for a slot would not end: the device answers after all of these.
    let refused: JoinSet<_> = (0..5 * SLOTS).map(|_| call()).collect();
    let refused = refused.join_all().await;
    assert!(refused.iter().all(|call| !call.succeeded));
    assert!(admitted.try_join_next().is_none(), "a call ended too early");
    let done = json!({"success": true, "data": "done"});
    for call_id in call_ids {
        device.answer(&call_id, &done).await;
    }
    let mut admitted = admitted.join_all().await;
    // None of the refused calls was delivered: the device receives this one next.
    let last = JoinSet::from_iter([call()]);
    let (call_id, ..) = device.next_call().await;
    device.answer(&call_id, &done).await;
    admitted.extend(last.join_all().await);
    assert!(admitted.iter().all(|call| call.succeeded));
}

#[tokio::test(flavor = "multi_thread")]
async fn i10_overload_is_refused_and_goodput_stays() {
    let (cluster, device, caller) = start().await;
    let _device = JoinSet::from_iter([work(device)]);

    let peak = caller.saturate().await;
    let slots_per_s = SLOTS as f64 / WORK_TIME.as_secs_f64();
    assert!(peak.refusals.is_empty(), "{} refused", peak.refusals.len());
    assert!(peak.goodput_per_s <= slots_per_s, "{}", peak.goodput_per_s);
    for times in [2.0, 5.0] {
        let before = peak_memory_kib(&cluster);
        let load = caller.offer(times * slots_per_s).await;
        let after = peak_memory_kib(&cluster);
        let (share, refused) = (load.goodput_per_s / peak.goodput_per_s, load.refusals.len());
        println!(
            "{times} times the peak: {share:.2} of its goodput, {refused} refused (median {:?}), {before:?} to {after:?} KiB",
            load.refusals.get(refused / 2)
        );
        assert!(
            share >= 0.8,
            "{share} of the goodput at {times} times the peak"
        );
        assert!(
            4 * refused >= load.calls,
            "{refused} of {} refused",
            load.calls
        );
        for (before, after) in before.into_iter().zip(after) {
            assert!(after <= before + MAX_GROWTH_KIB, "{before} to {after} KiB");
        }
    }
}
