//! One system under measurement, and its figures window by window.
//! Never: two systems at work in the same window.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::ensure;
use serde::Serialize;

use super::{Options, process::Process, worker::Worker};

/// Processes, each with its name in the table; several subjects may share one.
pub(crate) type Servers = Vec<(&'static str, Arc<Process>)>;

/// A caller, what it calls, and whose CPU counts.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) caller: Worker,
    /// Absent where somebody else holds them, or nothing but servers is called.
    pub(crate) devices: Option<Worker>,
    /// Servers and brokers; their CPU always counts.
    pub(crate) servers: Servers,
    /// Whether the caller's CPU counts.
    pub(crate) counts_caller: bool,
    /// Whether the CPU of what is called counts.
    pub(crate) counts_devices: bool,
}

/// What one window gave.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Window {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU of all that counts, microseconds per operation.
    pub(crate) cpu_us: f64,
    /// The same by process.
    pub(crate) cpu_parts_us: BTreeMap<&'static str, f64>,
    pub(crate) errors: u64,
}

/// A system's windows at one concurrency, in the order of the rounds.
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
        let before = CpuTimes::of(self.counted())?;
        let reply = self.caller.run(in_flight, length).await?;
        let spent = before.until(CpuTimes::of(self.counted())?);
        let why = reply
            .first_error
            .as_deref()
            .unwrap_or("no error was reported");
        ensure!(
            reply.count > 0,
            "{}: not one request was answered: {why}",
            self.name
        );
        if reply.errors > 0 {
            eprintln!("{}: {} errors, the first: {why}", self.name, reply.errors);
        }
        let cpu_parts_us = spent.us_each(reply.count as f64);
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
    pub(crate) fn of<'a>(
        processes: impl IntoIterator<Item = (&'static str, &'a Process)>,
    ) -> anyhow::Result<Self> {
        let processes = processes.into_iter();
        let times = processes.map(|(name, process)| Ok((name, process.cpu()?)));
        times.collect::<anyhow::Result<_>>().map(Self)
    }

    /// What was spent from this to then.
    pub(crate) fn until(self, then: Self) -> Self {
        let spent = then.0.into_iter().map(|(name, now)| {
            let before = self.0.get(name).copied().unwrap_or_default();
            (name, now.saturating_sub(before))
        });
        Self(spent.collect())
    }

    /// In microseconds, divided by so many operations.
    pub(crate) fn us_each(&self, operations: f64) -> BTreeMap<&'static str, f64> {
        let each = |spent: &Duration| spent.as_secs_f64() * 1e6 / operations;
        self.0
            .iter()
            .map(|(name, spent)| (*name, each(spent)))
            .collect()
    }
}

/// Runs all subjects in turn, round by round, after one window each that does not count.
pub(crate) async fn rounds(
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

/// The windows of this system at this concurrency, if it was measured.
pub(crate) fn find<'a>(all: &'a [Series], subject: &str, in_flight: u32) -> Option<&'a Series> {
    all.iter()
        .find(|series| series.subject == subject && series.in_flight == in_flight)
}

/// The value in the middle; 0 of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Series {
    /// A figure's median over the rounds.
    pub(crate) fn median(&self, figure: fn(&Window) -> f64) -> f64 {
        median(self.windows.iter().map(figure))
    }

    /// Ours divided by theirs within each round, and of that the median.
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
    fn ratios_are_taken_within_a_round() {
        // The machine is three times slower in the second round: the ratio does not care.
        let (ours, theirs) = (
            series(&[300.0, 100.0, 330.0]),
            series(&[150.0, 50.0, 110.0]),
        );
        assert_eq!(ours.ratio_to(&theirs, |window| window.per_second), 2.0);
        assert_eq!(ours.median(|window| window.per_second), 300.0);
        assert_eq!(median([]), 0.0);
    }
}
