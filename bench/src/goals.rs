//! Performance goals and their evaluation.
//! Speed goals are ratios within a round, because absolute speeds differ between machines.

use serde::Serialize;

use super::{
    calls, mcp,
    report::Report,
    rolling::RollingRestart,
    scale, settings,
    subject::{Window, find},
    voice,
};

/// One goal with its measured value.
#[derive(Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    /// The bound with its comparison operator.
    pub(crate) wanted: String,
    /// Absent if a required part was not measured.
    pub(crate) measured: Option<f64>,
    pub(crate) met: Option<bool>,
}

/// Upper or lower bound of a figure.
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn new(what: &'static str, bound: &Bound, measured: Option<f64>) -> Self {
        let (wanted, met) = match *bound {
            Bound::AtMost(limit) => (format!("≤ {limit}"), measured.map(|value| value <= limit)),
            Bound::AtLeast(limit) => (format!("≥ {limit}"), measured.map(|value| value >= limit)),
        };
        Self {
            what,
            wanted,
            measured,
            met,
        }
    }
}

/// Evaluates all goals against a report.
pub(crate) fn goals(report: &Report) -> Vec<Goal> {
    let ratio = |in_flight, peer, figure: fn(&Window) -> f64| {
        let ours = find(&report.calls, calls::OURS, in_flight)?;
        Some(ours.ratio_to(find(&report.calls, peer, in_flight)?, figure))
    };
    let tools = find(&report.mcp, mcp::OURS, 16).zip(find(&report.mcp, mcp::RMCP, 16));
    let idle = report
        .idle
        .iter()
        .find(|memory| memory.subject == scale::OURS);
    let worst = |figure: fn(&RollingRestart) -> f64| {
        let figures = report.rolling.iter().map(figure);
        figures.max_by(f64::total_cmp)
    };
    let mut goals = vec![
        Goal::new(
            "p50 of a call at 1 in flight ÷ Redis alone",
            &Bound::AtMost(1.6),
            ratio(1, calls::RAW_REDIS, |window| window.p50_us),
        ),
        Goal::new(
            "calls per second at 512 in flight ÷ NATS",
            &Bound::AtLeast(1.3),
            ratio(512, calls::NATS, |window| window.per_second),
        ),
        Goal::new(
            "CPU per call at 512 in flight ÷ NATS",
            &Bound::AtMost(0.7),
            ratio(512, calls::NATS, |window| window.cpu_us),
        ),
        Goal::new(
            "MCP tool calls per second at 16 in flight ÷ rmcp alone",
            &Bound::AtLeast(0.6),
            tools.map(|(ours, rmcp)| ours.ratio_to(rmcp, |window| window.per_second)),
        ),
        Goal::new(
            "settings read per second at 16 in flight ÷ the statements alone",
            &Bound::AtLeast(0.5),
            settings::Operation::Read.http_to_store_ratio(&report.settings, 16),
        ),
        Goal::new(
            "settings written per second at 16 in flight ÷ the statements alone",
            &Bound::AtLeast(0.5),
            settings::Operation::Write.http_to_store_ratio(&report.settings, 16),
        ),
        Goal::new(
            "KiB per idle registered device",
            &Bound::AtMost(2.5),
            idle.map(|memory| memory.bytes_each / 1024.0),
        ),
        Goal::new(
            "calls lost in rolling restarts",
            &Bound::AtMost(0.0),
            worst(|restart| restart.lost as f64),
        ),
        Goal::new(
            "% of calls that were not delivered in rolling restarts",
            &Bound::AtMost(0.1),
            worst(RollingRestart::undelivered_percent),
        ),
    ];
    goals.extend(spoken_goals(report));
    goals
}

/// Those of spoken conversations.
fn spoken_goals(report: &Report) -> [Goal; 4] {
    let spoken = |subject, conversations, figure: fn(&Window) -> f64| {
        let series = find(&report.voice, subject, conversations)?;
        Some(series.median(figure) / 1000.0)
    };
    [
        Goal::new(
            "ms to the first audio of an answer in 50 conversations, p50",
            &Bound::AtMost(10.0),
            spoken(voice::FIRST_AUDIO, 50, |window| window.p50_us),
        ),
        Goal::new(
            "the same, p99",
            &Bound::AtMost(40.0),
            spoken(voice::FIRST_AUDIO, 50, |window| window.p99_us),
        ),
        Goal::new(
            "ms of the latest frame of an answer in 100 conversations, p99",
            &Bound::AtMost(20.0),
            spoken(voice::LATEST_FRAME, 100, |window| window.p99_us),
        ),
        Goal::new(
            "ms to the end of an interrupted answer in 50 conversations, p99",
            &Bound::AtMost(20.0),
            spoken(voice::STOP, 50, |window| window.p99_us),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_with_bound_is_met_missed_or_unmeasured() {
        fn check(bound: Bound, measured: Option<f64>, met: Option<bool>) {
            assert_eq!(Goal::new("sample", &bound, measured).met, met);
        }
        check(Bound::AtMost(1.6), Some(1.6), Some(true));
        check(Bound::AtMost(1.6), Some(1.7), Some(false));
        check(Bound::AtLeast(1.3), Some(1.2), Some(false));
        check(Bound::AtLeast(1.3), None, None);
    }
}
