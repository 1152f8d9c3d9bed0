//! Spans of calls and turns: one at the caller, one at the node that executes or answers.
//! Invariant: a span contains no params, results or words of a user.

use std::sync::Arc;

use switchboard_protocol::{
    id::{CallId, OrgId},
    outcome::Outcome,
};
use switchboard_runtime::{
    span, span_from,
    trace::{self, Incoming, TraceContext},
};
use tracing::{Span, field::Empty};

use crate::{
    error::BusError,
    node::NodeId,
    rpc::{Answer, Call},
};

fn call_span(call: &Call) -> Span {
    span!(
        "device.call",
        otel.kind = "client",
        otel.status_code = Empty,
        rpc.system = "switchboard",
        rpc.method = trace::truncate_name(&call.service),
        switchboard.call.id = %call.id,
        switchboard.org.id = %call.device.org,
        switchboard.device.id = %call.device.device,
        switchboard.call.outcome = Empty,
    )
}

/// The caller's span of a call. When it is dropped without an end, the call was cancelled.
pub(crate) struct ClientSpan {
    pub(crate) span: Span,
    has_ended: bool,
}

impl ClientSpan {
    pub(crate) fn begin(call: &Call) -> Self {
        Self {
            span: call_span(call),
            has_ended: false,
        }
    }

    /// Records how the call ended.
    pub(crate) fn end(mut self, result: &Result<Answer, BusError>) {
        self.has_ended = true;
        match result {
            _ if self.span.is_disabled() => {}
            Ok(answer) => record_end(&self.span, answer.outcome.as_str(), answer.outcome),
            Err(_) => record_end(&self.span, "unavailable", Outcome::Lost),
        }
    }
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        if !self.has_ended && !self.span.is_disabled() {
            let cancelled = Outcome::Cancelled;
            record_end(&self.span, cancelled.as_str(), cancelled);
        }
    }
}

fn record_end(span: &Span, word: &'static str, outcome: Outcome) {
    span.record("switchboard.call.outcome", word);
    if outcome != Outcome::Succeeded {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of a call on the node that owns the device's connection, until the call is answered.
/// Empty unless the call is in a sampled trace.
#[derive(Debug, Clone, Default)]
pub struct ServerSpan(Option<Arc<Span>>);

/// All spans are equal: tracing is no part of a call's identity.
impl PartialEq for ServerSpan {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ServerSpan {}

/// The fields of a server span.
pub(crate) struct SpanFields<'a> {
    pub(crate) id: CallId,
    pub(crate) org: OrgId,
    pub(crate) device: &'a str,
    pub(crate) service: &'a str,
    pub(crate) node: &'a NodeId,
}

impl ServerSpan {
    /// Begins a span in the context that arrived with the call.
    pub(crate) fn begin(context: Option<&TraceContext>, call: &SpanFields<'_>) -> Self {
        // Most calls are not traced, and cost nothing here.
        let Some(context) = context else {
            return Self(None);
        };
        let beginning = trace::start(Incoming::Sampled(context.clone()));
        let span = span_from!(
            beginning,
            "device.execute",
            otel.kind = "server",
            otel.status_code = Empty,
            rpc.system = "switchboard",
            rpc.method = trace::truncate_name(call.service),
            switchboard.call.id = %call.id,
            switchboard.org.id = %call.org,
            switchboard.device.id = call.device,
            switchboard.node.id = %call.node,
            switchboard.call.outcome = Empty,
        );
        Self((!span.is_disabled()).then(|| Arc::new(span)))
    }

    /// Adds an event to the span.
    pub fn note(&self, event: &'static str) {
        if let Some(span) = &self.0 {
            trace::add_event(span, event);
        }
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        if let Some(span) = &self.0 {
            trace::add_event(span, "answered");
            record_end(span, outcome.as_str(), outcome);
        }
    }
}

/// The span of a turn being enqueued, which begins a trace.
pub(crate) fn turn_span(org: OrgId, device: &str, node: &NodeId) -> Span {
    span_from!(
        trace::start(Incoming::Nothing),
        "turn.begin",
        otel.kind = "producer",
        otel.status_code = Empty,
        switchboard.org.id = %org,
        switchboard.device.id = device,
        switchboard.node.id = %node,
    )
}
