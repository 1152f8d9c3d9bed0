//! Calls and turns as spans: one where they are made, one where they are executed or answered.
//! Never: params, results or words in a span, or a span for what is not traced.

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
    call::{Answer, Call},
    error::BusError,
    node::NodeId,
};

/// The span of a call from its caller's side.
fn of_call(call: &Call) -> Span {
    span!(
        "device.call",
        otel.kind = "client",
        otel.status_code = Empty,
        rpc.system = "switchboard",
        rpc.method = trace::short(&call.service),
        switchboard.call.id = %call.id,
        switchboard.org.id = %call.device.org,
        switchboard.device.id = %call.device.device,
        switchboard.call.outcome = Empty,
    )
}

/// A call under way, as its caller's span. Dropped without an end it was cancelled.
pub(crate) struct Calling {
    pub(crate) span: Span,
    has_ended: bool,
}

impl Calling {
    pub(crate) fn begin(call: &Call) -> Self {
        Self {
            span: of_call(call),
            has_ended: false,
        }
    }

    /// Notes how it ended.
    pub(crate) fn end(mut self, ended: &Result<Answer, BusError>) {
        self.has_ended = true;
        match ended {
            _ if self.span.is_disabled() => {}
            Ok(answer) => end(&self.span, answer.outcome.as_str(), answer.outcome),
            Err(_) => end(&self.span, "unavailable", Outcome::Lost),
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if !self.has_ended && !self.span.is_disabled() {
            let cancelled = Outcome::Cancelled;
            end(&self.span, cancelled.as_str(), cancelled);
        }
    }
}

fn end(span: &Span, word: &'static str, outcome: Outcome) {
    span.record("switchboard.call.outcome", word);
    if outcome != Outcome::Succeeded {
        span.record("otel.status_code", "ERROR");
    }
}

/// What of a call is traced on the node that holds its device: from there on until it is answered. Empty for most.
#[derive(Debug, Clone, Default)]
pub struct Handling(Option<Arc<Span>>);

/// Whether it is traced is no part of what a call is.
impl PartialEq for Handling {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Handling {}

/// What a call is known by in its device's node's span.
pub(crate) struct Handled<'a> {
    pub(crate) id: CallId,
    pub(crate) org: OrgId,
    pub(crate) device: &'a str,
    pub(crate) service: &'a str,
    pub(crate) node: &'a NodeId,
}

impl Handling {
    /// Begins with the context that came with the call.
    pub(crate) fn begin(context: Option<&TraceContext>, call: &Handled<'_>) -> Self {
        // Most have none: then nothing is looked at any more.
        let Some(context) = context else {
            return Self(None);
        };
        let beginning = trace::begin(Incoming::Sampled(context.clone()));
        let span = span_from!(
            beginning,
            "device.execute",
            otel.kind = "server",
            otel.status_code = Empty,
            rpc.system = "switchboard",
            rpc.method = trace::short(call.service),
            switchboard.call.id = %call.id,
            switchboard.org.id = %call.org,
            switchboard.device.id = call.device,
            switchboard.node.id = %call.node,
            switchboard.call.outcome = Empty,
        );
        Self((!span.is_disabled()).then(|| Arc::new(span)))
    }

    /// Notes that something has happened to the call now.
    pub fn note(&self, event: &'static str) {
        if let Some(span) = &self.0 {
            trace::note(span, event);
        }
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        if let Some(span) = &self.0 {
            trace::note(span, "answered");
            end(span, outcome.as_str(), outcome);
        }
    }
}

/// The span of a device's words being handed over: here a trace begins.
pub(crate) fn of_words(org: OrgId, device: &str, node: &NodeId) -> Span {
    span_from!(
        trace::begin(Incoming::Nothing),
        "turn.begin",
        otel.kind = "producer",
        otel.status_code = Empty,
        switchboard.org.id = %org,
        switchboard.device.id = device,
        switchboard.node.id = %node,
    )
}
