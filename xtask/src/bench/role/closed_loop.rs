//! A fixed number of requests in flight for a fixed time: a new one starts when one has ended.
//! Never: an open-loop latency; what this measures is the cost at a known concurrency.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::JoinSet,
};

use super::say;
use crate::bench::reply::Reply;

/// Longest wait for one answer; a request that takes longer is an error of the measurement.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A failing system is asked again after this pause, not as fast as it can refuse.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(5);

/// Something that makes one request and waits for its answer.
pub(super) trait Caller: Send + Sync + 'static {
    /// Request number `sequence` of the worker with this number.
    fn call(&self, worker: usize, sequence: u64)
    -> impl Future<Output = anyhow::Result<()>> + Send;

    /// The same, and how long it took: all of it, unless a part of it is what is measured.
    fn timed(
        &self,
        worker: usize,
        sequence: u64,
    ) -> impl Future<Output = anyhow::Result<Duration>> + Send {
        async move {
            let began = Instant::now();
            self.call(worker, sequence).await?;
            Ok(began.elapsed())
        }
    }
}

/// The device whose turn it is: workers start at different ones and go round all of them.
pub(super) fn turn(worker: usize, sequence: u64, devices: u32) -> u32 {
    let step = (worker as u64).wrapping_mul(31).wrapping_add(sequence);
    u32::try_from(step % u64::from(devices.max(1))).unwrap_or(0)
}

/// Obeys `run IN_FLIGHT WINDOW_MS` lines until stdin ends.
pub(super) async fn obey<C: Caller>(caller: C) -> anyhow::Result<()> {
    let caller = Arc::new(caller);
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    say(&Reply::default())?;
    while let Some(line) = commands.next_line().await? {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["run", in_flight, window_ms] = words[..] else {
            bail!("unknown command: {line}");
        };
        let in_flight = in_flight.parse().context("how many in flight")?;
        let window = Duration::from_millis(window_ms.parse().context("how many milliseconds")?);
        say(&run(&caller, in_flight, window).await)?;
    }
    Ok(())
}

async fn run<C: Caller>(caller: &Arc<C>, in_flight: usize, window: Duration) -> Reply {
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..in_flight {
        workers.spawn(work(Arc::clone(caller), worker, began + window));
    }
    let mut latencies = Vec::new();
    let mut failures = Reply::default();
    while let Some(done) = workers.join_next().await {
        match done {
            Ok((taken, errors)) => {
                latencies.extend(taken);
                errors.iter().for_each(|error| failures.fail(error));
            }
            Err(panic) => failures.fail(&panic.into()),
        }
    }
    let sums = Reply::of(latencies, began.elapsed());
    Reply {
        errors: failures.errors,
        first_error: failures.first_error,
        ..sums
    }
}

async fn work<C: Caller>(
    caller: Arc<C>,
    worker: usize,
    until: Instant,
) -> (Vec<u32>, Vec<anyhow::Error>) {
    let (mut latencies, mut errors) = (Vec::new(), Vec::new());
    let mut sequence = 0;
    while Instant::now() < until {
        match caller.timed(worker, sequence).await {
            Ok(took) => latencies.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX)),
            Err(error) => {
                errors.push(error);
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
        sequence += 1;
    }
    (latencies, errors)
}
