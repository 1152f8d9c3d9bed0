//! Performance goals and their evaluation.
//! Speed goals are ratios within a round, because absolute speeds differ between machines.

use serde::Serialize;

use switchboard_capacity::{MAX_PERCENT_PER_DECADE, Series};

use super::{
    calls, chat, growth, mcp,
    report::Report,
    rest,
    rolling::RollingRestart,
    scale, settings,
    subject::{Window, find},
    voice,
};

/// The processes that serve a call over HTTP, without those that write what was counted.
const SERVING: [&str; 5] = ["gateway", "edge", "redis", "nginx", "responder"];

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
        let (sign, limit, met) = match *bound {
            Bound::AtMost(limit) => ("≤", limit, measured.map(|value| value <= limit)),
            Bound::AtLeast(limit) => ("≥", limit, measured.map(|value| value >= limit)),
        };
        let wanted = format!("{sign} {}", (limit * 1000.0).round() / 1000.0);
        Self {
            what,
            wanted,
            measured,
            met,
        }
    }
}

fn at_most(what: &'static str, limit: f64, measured: Option<f64>) -> Goal {
    Goal::new(what, &Bound::AtMost(limit), measured)
}

fn at_least(what: &'static str, limit: f64, measured: Option<f64>) -> Goal {
    Goal::new(what, &Bound::AtLeast(limit), measured)
}

/// Evaluates all goals against a report.
pub(crate) fn goals(report: &Report) -> Vec<Goal> {
    let mut goals = call_goals(report);
    goals.extend(connection_goals(report));
    goals.extend(http_goals(report));
    goals.extend(turn_goals(report));
    goals.extend(settings_goals(report));
    goals.extend(rolling_goals(report));
    goals.extend(spoken_goals(report));
    goals.extend(size_goals(report));
    goals
}

/// Those of calls without HTTP.
fn call_goals(report: &Report) -> Vec<Goal> {
    let ratio = |in_flight, peer, figure: fn(&Window) -> f64| {
        let ours = find(&report.calls, calls::OURS, in_flight)?;
        Some(ours.ratio_to(find(&report.calls, peer, in_flight)?, figure))
    };
    let p50 = |peer| ratio(1, peer, |window| window.p50_us);
    let rate = |peer| ratio(512, peer, |window| window.per_second);
    let cpu = |peer| ratio(512, peer, |window| window.cpu_us);
    vec![
        at_most(
            "p50 of a call at 1 in flight ÷ Redis alone",
            1.25,
            p50(calls::RAW_REDIS),
        ),
        at_most("p50 of a call at 1 in flight ÷ NATS", 1.0, p50(calls::NATS)),
        at_least(
            "calls per second at 512 in flight ÷ NATS",
            2.5,
            rate(calls::NATS),
        ),
        at_least(
            "calls per second at 512 in flight ÷ Mosquitto",
            3.5,
            rate(calls::MOSQUITTO),
        ),
        at_most(
            "CPU per call at 512 in flight ÷ NATS",
            1.0 / 3.0,
            cpu(calls::NATS),
        ),
        at_most(
            "CPU per call at 512 in flight ÷ Mosquitto",
            0.2,
            cpu(calls::MOSQUITTO),
        ),
    ]
}

/// Those of idle and connecting devices.
fn connection_goals(report: &Report) -> [Goal; 4] {
    let idle = |subject| {
        let mut all = report.idle.iter();
        Some(all.find(|memory| memory.subject == subject)?.bytes_each)
    };
    let storm = |subject| report.storms.iter().find(|storm| storm.subject == subject);
    let resumed = storm(scale::RESUMED).zip(storm(scale::MOSQUITTO));
    let stored = storm(scale::RETURNING).map(|storm| storm.cpu_us_of(&["control", "postgres"]));
    [
        at_most(
            "memory of an idle registered device ÷ Mosquitto",
            1.0,
            idle(scale::OURS)
                .zip(idle(scale::MOSQUITTO))
                .map(|(ours, theirs)| ours / theirs),
        ),
        at_most(
            "bytes of an idle registered device over TLS",
            6_000.0,
            idle(scale::OVER_TLS),
        ),
        at_most(
            "CPU to connect with a resume ticket ÷ Mosquitto",
            1.25,
            resumed.map(|(ours, theirs)| ours.cpu_ratio_to(theirs)),
        ),
        at_most(
            "CPU µs of control plane and PostgreSQL to connect again unchanged",
            60.0,
            stored,
        ),
    ]
}

/// Those of calls over MCP and REST.
fn http_goals(report: &Report) -> [Goal; 5] {
    let tool = find(&report.mcp, mcp::OURS, 16);
    let rmcp = tool.zip(find(&report.mcp, mcp::RMCP, 16));
    let rest = tool.zip(find(&report.mcp, rest::OURS, 16));
    let call = find(&report.rest, rest::OURS, 64);
    let proxy = call.zip(find(&report.rest, rest::PROXY, 64));
    let keyed = |in_flight| {
        let keyed = find(&report.rest, rest::KEYED, in_flight)?;
        let call = find(&report.rest, rest::OURS, in_flight)?;
        Some(keyed.ratio_to(call, |window| window.cpu_us))
    };
    [
        at_least(
            "MCP tool calls per second at 16 in flight ÷ rmcp alone",
            1.0,
            rmcp.map(|(ours, rmcp)| ours.ratio_to(rmcp, |window| window.per_second)),
        ),
        at_most(
            "CPU of the gateway per MCP tool call at 16 in flight ÷ REST",
            1.15,
            rest.map(|(mcp, rest)| mcp.ratio_to(rest, |window| window.cpu_us_of(&["gateway"]))),
        ),
        at_most(
            "CPU per REST call at 64 in flight ÷ nginx and an HTTP echo",
            1.0,
            proxy.map(|(ours, proxy)| ours.ratio_to(proxy, |window| window.cpu_us_of(&SERVING))),
        ),
        at_most(
            "CPU per call with an idempotency key at 1 in flight ÷ without",
            1.8,
            keyed(1),
        ),
        at_most("the same at 64 in flight", 1.8, keyed(64)),
    ]
}

/// Those of turns of conversation. The model's own time and CPU are not counted.
fn turn_goals(report: &Report) -> [Goal; 2] {
    let cpu = |subject| {
        let turns = find(&report.chat, subject, 16)?;
        Some(turns.median(|window| window.cpu_us))
    };
    [
        at_most(
            "CPU µs per turn at 16 in flight without the model, within `up`",
            250.0,
            cpu(chat::SINGLE_PROCESS),
        ),
        at_most("the same over nodes", 450.0, cpu(chat::SEPARATE_SERVICES)),
    ]
}

fn settings_goals(report: &Report) -> [Goal; 2] {
    let ratio =
        |operation: settings::Operation| operation.http_to_store_ratio(&report.settings, 16);
    [
        at_least(
            "settings read per second at 16 in flight ÷ the statements alone",
            0.5,
            ratio(settings::Operation::Read),
        ),
        at_least(
            "settings written per second at 16 in flight ÷ the statements alone",
            0.5,
            ratio(settings::Operation::Write),
        ),
    ]
}

fn rolling_goals(report: &Report) -> [Goal; 2] {
    let worst = |figure: fn(&RollingRestart) -> f64| {
        let figures = report.rolling.iter().map(figure);
        figures.max_by(f64::total_cmp)
    };
    [
        at_most(
            "calls lost in rolling restarts",
            0.0,
            worst(|restart| restart.lost as f64),
        ),
        at_most(
            "% of calls that were not delivered in rolling restarts",
            0.1,
            worst(RollingRestart::undelivered_percent),
        ),
    ]
}

/// Those of spoken conversations.
fn spoken_goals(report: &Report) -> [Goal; 4] {
    let spoken = |subject, conversations, figure: fn(&Window) -> f64| {
        let series = find(&report.voice, subject, conversations)?;
        Some(series.median(figure) / 1000.0)
    };
    [
        at_most(
            "ms to the first audio of an answer in 50 conversations, p50",
            10.0,
            spoken(voice::FIRST_AUDIO, 50, |window| window.p50_us),
        ),
        at_most(
            "the same, p99",
            40.0,
            spoken(voice::FIRST_AUDIO, 50, |window| window.p99_us),
        ),
        at_most(
            "ms of the latest frame of an answer in 100 conversations, p99",
            20.0,
            spoken(voice::LATEST_FRAME, 100, |window| window.p99_us),
        ),
        at_most(
            "ms to the end of an interrupted answer in 50 conversations, p99",
            20.0,
            spoken(voice::STOP, 50, |window| window.p99_us),
        ),
    ]
}

/// Those of the growth and of the capacity model.
fn size_goals(report: &Report) -> [Goal; 2] {
    let worst = report.growth.iter().filter_map(Series::worst_percent);
    let deviation = report.capacity.iter().find_map(growth::Check::deviation);
    [
        at_most(
            "% that any figure grows with each decade",
            MAX_PERCENT_PER_DECADE,
            worst.max_by(f64::total_cmp),
        ),
        at_most(
            "% that the capacity model differs in CPU or memory",
            growth::MAX_MODEL_DEVIATION_PERCENT,
            deviation,
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
