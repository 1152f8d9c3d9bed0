//! What conversations come to, counted.
//! Never: a label that grows with organisations or devices.

use prometheus::{IntGauge, Registry};
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group},
    trace::TraceContext,
};
use tracing::Span;

labels! {
    /// How a turn ended.
    pub(crate) enum TurnEnd {
        Answered => "answered",
        /// Its device did not want the answer any more.
        Stopped => "stopped",
        /// Its device said something else meanwhile.
        Superseded => "superseded",
        /// It was said that there is no answer.
        Failed => "failed",
        /// It had been interrupted after a call.
        Apologised => "apologised",
        /// Another node has it.
        LetGo => "let_go",
    }
}

labels! {
    /// The limit that an answer over HTTP was refused for.
    pub(crate) enum Shed {
        /// One caller asks too often.
        CallerRate => "caller_rate",
        /// One organisation has all the lines that it may have.
        OrgLines => "org_lines",
        /// All lines are taken.
        Lines => "lines",
    }
}

/// The counters.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    turns: Counters<TurnEnd>,
    pub(crate) shed: Counters<Shed>,
    pub(crate) under_way: IntGauge,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_chat");
        Ok(Self {
            turns: group.counters("turns_total", "Turns, by how they ended", "end")?,
            shed: group.counters(
                "shed_total",
                "Turns over HTTP refused because of a limit",
                "reason",
            )?,
            under_way: group.gauge("turns_under_way", "Turns being answered")?,
        })
    }

    /// Counts how a turn ended, and says so in its span.
    pub(crate) fn ended(&self, end: TurnEnd) {
        self.turns.inc(end);
        let span = Span::current();
        if TraceContext::of(&span).is_some() {
            span.record("switchboard.turn.end", end.as_str());
            if end == TurnEnd::Failed {
                span.record("otel.status_code", "ERROR");
            }
        }
    }
}
