//! A closed loop: a fixed number of workers send requests for a fixed time. Each worker starts its
//! next request when the previous one has completed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::JoinSet,
};

use super::write_reply;
use crate::reply::Reply;

/// Timeout of one request. A request that exceeds it counts as an error.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause of a worker after a failed request, to avoid a busy loop of failures.
const ERROR_BACKOFF: Duration = Duration::from_millis(5);

/// A client that sends requests.
pub(super) trait Caller: Send + Sync + 'static {
    /// Sends request number `sequence` of this worker and waits for its response.
    fn call(&self, worker: usize, sequence: u64)
    -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Like [`Caller::call`], but returns the latency. An implementation may measure only a part
    /// of the request.
    fn timed_call(
        &self,
        worker: usize,
        sequence: u64,
    ) -> impl Future<Output = anyhow::Result<Duration>> + Send {
        async move {
            let started = Instant::now();
            self.call(worker, sequence).await?;
            Ok(started.elapsed())
        }
    }
}

/// Selects the device of a request. Workers start at different devices and iterate over all.
pub(super) fn select_device(worker: usize, sequence: u64, devices: u32) -> u32 {
    let step = (worker as u64).wrapping_mul(31).wrapping_add(sequence);
    u32::try_from(step % u64::from(devices.max(1))).unwrap_or(0)
}

/// Selects the device of a request, so that all are called equally often and in no order.
pub(super) fn scattered_device(sent: u64, devices: u32) -> u32 {
    const PRIME: u64 = 7_919;
    u32::try_from(sent.wrapping_mul(PRIME) % u64::from(devices.max(1))).unwrap_or(0)
}

/// Runs the command `run IN_FLIGHT WINDOW_MS` from stdin until end of input.
pub(super) async fn run_commands<C: Caller>(caller: C) -> anyhow::Result<()> {
    let caller = Arc::new(caller);
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    write_reply(&Reply::default())?;
    while let Some(line) = commands.next_line().await? {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["run", in_flight, window_ms] = words[..] else {
            bail!("unknown command: {line}");
        };
        let in_flight = in_flight
            .parse()
            .context("invalid number of requests in flight")?;
        let window = Duration::from_millis(window_ms.parse().context("invalid window")?);
        write_reply(&run(&caller, in_flight, window).await)?;
    }
    Ok(())
}

async fn run<C: Caller>(caller: &Arc<C>, in_flight: usize, window: Duration) -> Reply {
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..in_flight {
        workers.spawn(run_worker(Arc::clone(caller), worker, started + window));
    }
    let mut latencies = Vec::new();
    let mut failures = Reply::default();
    while let Some(done) = workers.join_next().await {
        match done {
            Ok((worker_latencies, errors)) => {
                latencies.extend(worker_latencies);
                errors
                    .iter()
                    .for_each(|error| failures.record_failure(error));
            }
            Err(panic) => failures.record_failure(&panic.into()),
        }
    }
    let summary = Reply::from_latencies(latencies, started.elapsed());
    Reply {
        errors: failures.errors,
        undelivered: failures.undelivered,
        first_error: failures.first_error,
        ..summary
    }
}

async fn run_worker<C: Caller>(
    caller: Arc<C>,
    worker: usize,
    deadline: Instant,
) -> (Vec<u32>, Vec<anyhow::Error>) {
    let (mut latencies, mut errors) = (Vec::new(), Vec::new());
    let mut sequence = 0;
    while Instant::now() < deadline {
        match caller.timed_call(worker, sequence).await {
            Ok(latency) => latencies.push(u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX)),
            Err(error) => {
                errors.push(error);
                tokio::time::sleep(ERROR_BACKOFF).await;
            }
        }
        sequence += 1;
    }
    (latencies, errors)
}
