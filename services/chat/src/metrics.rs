//! Metrics of the chat service.

use prometheus::{IntCounter, IntGauge, Registry};
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group},
    trace::TraceContext,
};
use tracing::Span;

use crate::recording::RecordingEnd;

labels! {
    /// How a turn ended.
    pub(crate) enum TurnEnd {
        Answered => "answered",
        /// The device cancelled it.
        Stopped => "stopped",
        /// The device sent another message.
        Superseded => "superseded",
        /// An apology was sent.
        Failed => "failed",
        /// The organisation was at a quota of the day.
        QuotaExceeded => "quota_exceeded",
        /// It had been interrupted after a call.
        Apologized => "apologised",
        /// Another replica took it over.
        LeaseLost => "let_go",
    }
}

labels! {
    /// The limit that rejected a message over HTTP.
    pub(crate) enum RejectReason {
        /// The rate limit of the caller.
        CallerRate => "caller_rate",
        /// The rate limit of the organisation.
        OrgRate => "org_rate",
        /// Concurrent answers of the organisation.
        OrgLimit => "org_lines",
        /// Concurrent answers of this node.
        TotalLimit => "lines",
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    turns: Counters<TurnEnd>,
    pub(crate) rejected: Counters<RejectReason>,
    pub(crate) in_flight: IntGauge,
    pub(crate) recordings: Counters<RecordingEnd>,
    /// Calls that are not in the journal.
    pub(crate) left_out: IntCounter,
}

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry has metrics with these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_chat");
        Ok(Self {
            turns: group.counters("turns_total", "Turns, by how they ended", "end")?,
            rejected: group.counters(
                "shed_total",
                "Messages over HTTP rejected because of a limit",
                "reason",
            )?,
            recordings: group.counters(
                "recordings_total",
                "Recordings of spoken messages, by their result",
                "outcome",
            )?,
            left_out: group.counter(
                "journal_left_out_total",
                "Calls missing in the journal because there were too many at the same time",
            )?,
            in_flight: group.gauge("turns_under_way", "Turns in progress")?,
        })
    }

    /// Counts the end of a turn, and records it in the turn's span.
    pub(crate) fn record_end(&self, end: TurnEnd) {
        self.turns.inc(end);
        let span = Span::current();
        if TraceContext::from_span(&span).is_some() {
            span.record("switchboard.turn.end", end.as_str());
            if end == TurnEnd::Failed {
                span.record("otel.status_code", "ERROR");
            }
        }
    }
}
