//! The report of a run, as a text table and as a JSON document.

use std::{collections::BTreeMap, fmt, thread};

use serde_json::json;
use switchboard_capacity::Series as Growth;

use super::{
    Options, calls,
    goals::{Goal, goals},
    growth::{self, Check},
    mcp, rest,
    rolling::RollingRestart,
    scale::{self, Memory, Storm},
    settings,
    subject::{Series, Window, find, median},
    voice::StreamMemory,
};

const COLUMNS: [&str; 8] = [
    "measured",
    "load",
    "per second",
    "p50 µs",
    "p99 µs",
    "CPU µs each",
    "of which",
    "Switchboard ÷ it",
];

/// The results measured so far.
pub(crate) struct Report {
    conditions: serde_json::Value,
    /// Calls to devices over the bus, by system and concurrency.
    pub(crate) calls: Vec<Series>,
    /// Calls over HTTP.
    pub(crate) rest: Vec<Series>,
    /// MCP tool calls, and the systems compared with them.
    pub(crate) mcp: Vec<Series>,
    /// Settings reads and writes, over HTTP and as SQL statements alone.
    pub(crate) settings: Vec<Series>,
    /// Latency of a model's first output at the device.
    pub(crate) chat: Vec<Series>,
    pub(crate) voice: Vec<Series>,
    pub(crate) streams: Vec<StreamMemory>,
    pub(crate) idle: Vec<Memory>,
    pub(crate) storms: Vec<Storm>,
    pub(crate) rolling: Vec<RollingRestart>,
    pub(crate) growth: Vec<Growth>,
    /// The capacity model's predictions, next to what was measured.
    pub(crate) capacity: Vec<Check>,
    pub(crate) skipped: Vec<String>,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let conditions = json!({
            "cores": thread::available_parallelism().map_or(0, usize::from),
            "profile": options.profile,
            "rounds": options.rounds,
            "window_ms": options.window_ms,
            "devices": options.devices,
            "payload_bytes": super::role::PAYLOAD_BYTES,
        });
        let (calls, rest, mcp, settings, chat, voice) = Default::default();
        let (streams, idle, storms, rolling, skipped) = Default::default();
        let (growth, capacity) = Default::default();
        Self {
            conditions,
            calls,
            rest,
            mcp,
            settings,
            chat,
            voice,
            streams,
            idle,
            storms,
            rolling,
            growth,
            capacity,
            skipped,
        }
    }

    /// Converts an error into an entry in the list of skipped parts, so that the run continues.
    pub(crate) fn or_skip<T>(&mut self, name: &str, outcome: anyhow::Result<T>) -> Option<T> {
        outcome
            .map_err(|error| self.skipped.push(format!("{name}: {error:#}")))
            .ok()
    }

    /// The complete report, with every window.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&json!({
            "conditions": self.conditions,
            "calls": self.calls,
            "rest": self.rest,
            "mcp": self.mcp,
            "settings": self.settings,
            "chat": self.chat,
            "voice": self.voice,
            "streams": self.streams,
            "idle": self.idle,
            "storms": self.storms,
            "rolling": self.rolling,
            "growth": self.growth,
            "capacity": self.capacity,
            "skipped": self.skipped,
            "goals": goals(self),
        }))
    }

    fn rows(&self) -> Vec<[String; 8]> {
        let mut rows = call_rows(&self.calls, calls::OURS);
        rows.extend(call_rows(&self.rest, rest::OURS));
        rows.extend(call_rows(&self.mcp, mcp::OURS));
        for operation in settings::ALL {
            let subjects = operation.subjects();
            let series = self
                .settings
                .iter()
                .filter(|series| subjects.contains(&series.subject));
            rows.extend(call_rows(
                &series.cloned().collect::<Vec<_>>(),
                operation.http_subject(),
            ));
        }
        let spoken = self.chat.iter().chain(&self.voice);
        rows.extend(spoken.map(|series| row_of(series, String::new())));
        rows.extend(self.streams.iter().map(StreamMemory::row));
        rows.extend(self.idle.iter().map(|memory| self.memory_row(memory)));
        rows.extend(self.storms.iter().map(|storm| self.storm_row(storm)));
        rows.extend(self.rolling.iter().map(RollingRestart::row));
        rows.extend(self.growth.iter().flat_map(growth::rows));
        rows.extend(self.capacity.iter().map(Check::row));
        rows
    }

    fn memory_row(&self, memory: &Memory) -> [String; 8] {
        let store = memory
            .store_bytes_each
            .map(|bytes| format!(", {bytes:.0} more in Redis"));
        let charged = memory
            .charged_bytes_each
            .map(|bytes| format!("; {bytes:.0} charged to its container"));
        let ours = self
            .idle
            .iter()
            .find(|memory| memory.subject == scale::OURS);
        let ratio = ours.filter(|ours| ours.subject != memory.subject);
        [
            memory.subject.to_owned(),
            format!("{} idle", memory.devices),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            format!(
                "{:.0} bytes each{}{}",
                memory.bytes_each,
                store.unwrap_or_default(),
                charged.unwrap_or_default()
            ),
            ratio
                .map(|ours| format!("bytes {:.2}", ours.bytes_each / memory.bytes_each))
                .unwrap_or_default(),
        ]
    }

    fn storm_row(&self, storm: &Storm) -> [String; 8] {
        let ours = self
            .storms
            .iter()
            .find(|storm| storm.subject == scale::OURS);
        let ratio = ours.filter(|ours| ours.subject != storm.subject);
        [
            storm.subject.to_owned(),
            format!("{} connecting", storm.devices),
            format!("{:.0}", median(storm.per_second.iter().copied())),
            String::new(),
            String::new(),
            format!("{:.1}", median(storm.cpu_us())),
            parts(&storm.cpu_parts_us.iter().collect::<Vec<_>>()),
            ratio
                .map(|ours| format!("CPU {:.2}", ours.cpu_ratio_to(storm)))
                .unwrap_or_default(),
        ]
    }
}

/// One row per series, with the ratios of the subject `ours` to it at the same concurrency.
fn call_rows(all: &[Series], ours: &str) -> Vec<[String; 8]> {
    let row = |series: &Series| {
        let ours = find(all, ours, series.in_flight);
        let ratios = ours
            .filter(|ours| ours.subject != series.subject)
            .map(|ours| {
                let ratio = |figure: fn(&Window) -> f64| ours.ratio_to(series, figure);
                format!(
                    "rate {:.2}, p50 {:.2}, CPU {:.2}",
                    ratio(|window| window.per_second),
                    ratio(|window| window.p50_us),
                    ratio(|window| window.cpu_us),
                )
            });
        row_of(series, ratios.unwrap_or_default())
    };
    all.iter().map(row).collect()
}

/// The median CPU of each process over the rounds.
fn parts(rounds: &[&BTreeMap<&'static str, f64>]) -> String {
    let names = rounds.first().into_iter().flat_map(|parts| parts.keys());
    let parts = names.map(|name| {
        let values = rounds
            .iter()
            .map(|parts| parts.get(name).copied().unwrap_or(0.0));
        format!("{name} {:.1}", median(values))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn row_of(series: &Series, ratios: String) -> [String; 8] {
    let windows = series.windows.iter();
    let parts = parts(
        &windows
            .map(|window| &window.cpu_parts_us)
            .collect::<Vec<_>>(),
    );
    [
        series.subject.to_owned(),
        format!("{} in flight", series.in_flight),
        format!("{:.0}", series.median(|window| window.per_second)),
        format!("{:.0}", series.median(|window| window.p50_us)),
        format!("{:.0}", series.median(|window| window.p99_us)),
        format!("{:.1}", series.median(|window| window.cpu_us)),
        parts,
        ratios,
    ]
}

fn goal_row(goal: &Goal) -> [String; 4] {
    let met = goal
        .met
        .map_or("not measured", |met| if met { "met" } else { "not met" });
    [
        goal.what.to_owned(),
        goal.wanted.clone(),
        goal.measured
            .map(|value| format!("{value:.2}"))
            .unwrap_or_default(),
        met.to_owned(),
    ]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table(f, COLUMNS, &self.rows())?;
        writeln!(f)?;
        let goals: Vec<_> = goals(self).iter().map(goal_row).collect();
        table(f, ["goal", "wanted", "measured", ""], &goals)?;
        writeln!(
            f,
            "\nMedians over rounds; ratios within a round. Conditions: {}",
            self.conditions
        )?;
        for skipped in &self.skipped {
            writeln!(f, "Skipped: {skipped}")?;
        }
        Ok(())
    }
}

/// Writes a Markdown table with aligned columns, which is also readable as plain text.
fn table<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    head: [&str; N],
    rows: &[[String; N]],
) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |f: &mut fmt::Formatter<'_>, cells: &[&str; N]| {
        for (cell, width) in cells.iter().zip(widths) {
            write!(f, "| {cell:<width$} ")?;
        }
        writeln!(f, "|")
    };
    line(f, &head)?;
    for width in widths {
        write!(f, "|{:-<1$}", "", width + 2)?;
    }
    writeln!(f, "|")?;
    rows.iter()
        .try_for_each(|row| line(f, &row.each_ref().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample;

    impl fmt::Display for Sample {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            table(f, ["a", "µs"], &[["long".to_owned(), "1".to_owned()]])
        }
    }

    #[test]
    fn table_with_rows_is_aligned_markdown() {
        let expected = "| a    | µs |\n|------|----|\n| long | 1  |\n";
        assert_eq!(Sample.to_string(), expected);
    }
}
