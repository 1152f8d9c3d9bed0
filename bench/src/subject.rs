//! A measured system and its figures for each window.
//! Invariant: only one system receives load in a window.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::ensure;
use serde::Serialize;

use switchboard_test_support::process::Process;

use super::{Options, usage::Usage as _, worker::Worker};

/// Processes with their names in the report. Several subjects may share a process.
pub(crate) type Servers = Vec<(&'static str, Arc<Process>)>;

/// A caller, the system that it calls, and the processes whose CPU counts.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) caller: Worker,
    /// Absent if another value owns the devices, or if only servers are called.
    pub(crate) devices: Option<Worker>,
    /// Servers and brokers; their CPU always counts.
    pub(crate) servers: Servers,
    /// Whether the caller's CPU counts.
    pub(crate) counts_caller: bool,
    /// Whether the CPU of the devices or the responder counts.
    pub(crate) counts_devices: bool,
}

/// The result of one window.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Window {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU of all counted processes, in microseconds per operation.
    pub(crate) cpu_us: f64,
    /// CPU by process, in microseconds per operation.
    pub(crate) cpu_parts_us: BTreeMap<&'static str, f64>,
    pub(crate) errors: u64,
}

impl Window {
    /// CPU of some of the counted processes, in microseconds per operation.
    pub(crate) fn cpu_us_of(&self, processes: &[&str]) -> f64 {
        let parts = processes.iter().map(|name| self.cpu_parts_us.get(name));
        parts.flatten().sum()
    }
}

/// The windows of one system at one concurrency, in the order of the rounds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    pub(crate) subject: &'static str,
    pub(crate) in_flight: u32,
    pub(crate) windows: Vec<Window>,
}

impl Subject {
    fn counted(&self) -> Vec<(&'static str, &Process)> {
        let servers = self
            .servers
            .iter()
            .map(|(name, process)| (*name, &**process));
        let caller = self
            .counts_caller
            .then_some(("caller", &self.caller.process));
        let devices = self.devices.as_ref().filter(|_| self.counts_devices);
        let devices = devices.map(|devices| ("responder", &devices.process));
        caller.into_iter().chain(servers).chain(devices).collect()
    }

    async fn window(&mut self, in_flight: u32, length: Duration) -> anyhow::Result<Window> {
        let before = CpuTimes::read(self.counted())?;
        let reply = self.caller.run(in_flight, length).await?;
        let spent = before.delta_to(CpuTimes::read(self.counted())?);
        let error = reply
            .first_error
            .as_deref()
            .unwrap_or("no error was reported");
        ensure!(
            reply.count > 0,
            "{}: all requests failed: {error}",
            self.name
        );
        if reply.errors > 0 {
            eprintln!("{}: {} errors, the first: {error}", self.name, reply.errors);
        }
        let cpu_parts_us = spent.us_per_operation(reply.count as f64);
        Ok(Window {
            per_second: reply.count as f64 * 1e6 / reply.elapsed_us,
            p50_us: reply.p50_us,
            p99_us: reply.p99_us,
            cpu_us: cpu_parts_us.values().sum(),
            cpu_parts_us,
            errors: reply.errors,
        })
    }
}

/// CPU times by process.
pub(crate) struct CpuTimes(BTreeMap<&'static str, Duration>);

impl CpuTimes {
    pub(crate) fn read<'a>(
        processes: impl IntoIterator<Item = (&'static str, &'a Process)>,
    ) -> anyhow::Result<Self> {
        let processes = processes.into_iter();
        let times = processes.map(|(name, process)| Ok((name, process.cpu()?)));
        times.collect::<anyhow::Result<_>>().map(Self)
    }

    /// The CPU time used between this reading and a later one.
    pub(crate) fn delta_to(self, later: Self) -> Self {
        let spent = later.0.into_iter().map(|(name, now)| {
            let before = self.0.get(name).copied().unwrap_or_default();
            (name, now.saturating_sub(before))
        });
        Self(spent.collect())
    }

    /// The CPU time per operation, in microseconds.
    pub(crate) fn us_per_operation(&self, operations: f64) -> BTreeMap<&'static str, f64> {
        let per_operation = |spent: &Duration| spent.as_secs_f64() * 1e6 / operations;
        self.0
            .iter()
            .map(|(name, spent)| (*name, per_operation(spent)))
            .collect()
    }
}

/// Runs all subjects in turn for every round. A warm-up window of each subject, half as long and
/// not counted, precedes the first round.
pub(crate) async fn run_rounds(
    subjects: &mut [Subject],
    in_flight: u32,
    options: &Options,
) -> anyhow::Result<Vec<Series>> {
    let mut series: Vec<_> = subjects
        .iter()
        .map(|subject| Series {
            subject: subject.name,
            in_flight,
            windows: Vec::new(),
        })
        .collect();
    for subject in subjects.iter_mut() {
        subject.window(in_flight, options.window() / 2).await?;
    }
    for round in 1..=options.rounds {
        eprint!(
            "\r{in_flight} in flight, round {round} of {}   ",
            options.rounds
        );
        for (subject, series) in subjects.iter_mut().zip(&mut series) {
            series
                .windows
                .push(subject.window(in_flight, options.window()).await?);
        }
    }
    eprintln!();
    Ok(series)
}

/// The series of this system at this concurrency, if it was measured.
pub(crate) fn find<'a>(all: &'a [Series], subject: &str, in_flight: u32) -> Option<&'a Series> {
    all.iter()
        .find(|series| series.subject == subject && series.in_flight == in_flight)
}

/// The median, or 0 if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Series {
    /// The median of a figure over the rounds.
    pub(crate) fn median(&self, figure: fn(&Window) -> f64) -> f64 {
        median(self.windows.iter().map(figure))
    }

    /// Median of the ratios `self / other` within each round.
    pub(crate) fn ratio_to(&self, other: &Self, figure: fn(&Window) -> f64) -> f64 {
        let pairs = self.windows.iter().zip(&other.windows);
        median(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[f64]) -> Series {
        let window = |per_second: &f64| Window {
            per_second: *per_second,
            p50_us: 0.0,
            p99_us: 0.0,
            cpu_us: 0.0,
            cpu_parts_us: BTreeMap::new(),
            errors: 0,
        };
        let windows = rates.iter().map(window).collect();
        Series {
            subject: "sample",
            in_flight: 1,
            windows,
        }
    }

    #[test]
    fn ratio_of_two_series_uses_windows_of_one_round() {
        // The machine is three times slower in the second round; the ratios stay the same.
        let (ours, theirs) = (
            series(&[300.0, 100.0, 330.0]),
            series(&[150.0, 50.0, 110.0]),
        );
        assert_eq!(ours.ratio_to(&theirs, |window| window.per_second), 2.0);
        assert_eq!(ours.median(|window| window.per_second), 300.0);
        assert_eq!(median([]), 0.0);
    }
}
