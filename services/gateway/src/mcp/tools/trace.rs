//! The span of a `tools/call`. It belongs to the trace that `_meta` names, otherwise to the trace
//! of the HTTP request.
//!
//! Invariant: a span contains neither arguments nor results.

use http::{Extensions, request::Parts};
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, RequestMetaObject},
    service::RequestContext,
};
use switchboard_runtime::{
    budget::Owner,
    http::{RequestTrace, caller},
    span_from,
    trace::{self, Incoming},
};
use tracing::{Span, field::Empty};

/// The span of a call that rmcp has read. rmcp runs it on another task than its request.
pub(in crate::mcp) fn call_span(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Span {
    if !trace::is_on() {
        return Span::none();
    }
    let own = request.meta.as_ref().and_then(trace_context);
    let sent = own.or_else(|| trace_context(&context.meta));
    let parts = context.extensions.get::<Parts>();
    span(&request.name, sent, parts.map(|parts| &parts.extensions))
}

/// The span of a call on the fast path.
pub(in crate::mcp) fn fast_path_span(
    tool: &str,
    traceparent: Option<&str>,
    tracestate: Option<&str>,
    request: &Extensions,
) -> Span {
    if !trace::is_on() {
        return Span::none();
    }
    let sent = traceparent.map(|parent| Incoming::parse(parent, tracestate));
    span(tool, sent, Some(request))
}

/// The outcome of a `tools/call` for its span. If dropped without an end, the call was cancelled.
pub(in crate::mcp) struct CallSpan(Option<Span>);

impl CallSpan {
    pub(in crate::mcp) fn new(span: &Span) -> Self {
        Self((!span.is_disabled()).then(|| span.clone()))
    }

    /// The call succeeded, which is the default of a span.
    pub(in crate::mcp) fn succeed(mut self) {
        self.0 = None;
    }

    /// Records a failed call. Success is the default of a span.
    pub(in crate::mcp) fn end(mut self, ended: &Result<CallToolResponse, ErrorData>) {
        let Some(span) = self.0.take() else { return };
        let outcome = match ended {
            Ok(CallToolResponse::Complete(result)) if result.is_error == Some(true) => "failed",
            Ok(_) => return,
            Err(_) => "refused",
        };
        record_failure(&span, outcome);
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if let Some(span) = &self.0 {
            record_failure(span, "cancelled");
        }
    }
}

fn record_failure(span: &Span, outcome: &'static str) {
    span.record("switchboard.call.outcome", outcome);
    span.record("otel.status_code", "ERROR");
}

fn trace_context(meta: &RequestMetaObject) -> Option<Incoming> {
    let parent = meta.get_traceparent()?;
    Some(Incoming::parse(parent, meta.get_tracestate()))
}

fn span(tool: &str, sent: Option<Incoming>, request: Option<&Extensions>) -> Span {
    let http = request.and_then(|request| request.get::<RequestTrace>());
    // The name has not been validated yet.
    let tool = trace::truncate_name(tool);
    // An invalid trace context counts as absent.
    let sent = sent.filter(|sent| *sent != Incoming::Nothing);
    let is_other_trace = sent.is_some();
    let start = match sent {
        Some(sent) => {
            let caller = || request.map_or(Owner::System, caller);
            trace::start_for_caller(sent, caller)
        }
        None => trace::start(http.map(|http| http.0.clone()).into()),
    };
    let span = span_from!(
        start,
        "mcp.tools_call",
        otel.kind = "server",
        otel.name = format!("tools/call {tool}"),
        otel.status_code = Empty,
        switchboard.call.outcome = Empty,
        mcp.method.name = "tools/call",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
    );
    if let Some(http) = http.filter(|_| is_other_trace) {
        trace::add_link(&span, &http.0);
    }
    span
}
