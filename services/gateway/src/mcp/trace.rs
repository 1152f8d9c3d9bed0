//! A `tools/call` as a span: of the trace that its `_meta` names, else of its request's.
//! Never: arguments or results in it.

use http::{Extensions, request::Parts};
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, RequestMetaObject},
    service::RequestContext,
};
use switchboard_runtime::{
    http::RequestTrace,
    span_from,
    trace::{self, Incoming},
};
use tracing::{Span, field::Empty};

/// The span of a call as the protocol's implementation hands it over, on a task of its own.
pub(super) fn of_call(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Span {
    if !trace::is_on() {
        return Span::none();
    }
    let own = request.meta.as_ref().and_then(sent_in);
    let sent = own.or_else(|| sent_in(&context.meta));
    let parts = context.extensions.get::<Parts>();
    let around = parts.and_then(|parts| around(&parts.extensions));
    span(&request.name, sent, around)
}

/// The span of a call that is read without it.
pub(super) fn of_plain_call(
    tool: &str,
    traceparent: Option<&str>,
    tracestate: Option<&str>,
    request: &Extensions,
) -> Span {
    if !trace::is_on() {
        return Span::none();
    }
    let sent = traceparent.map(|parent| Incoming::parse(parent, tracestate));
    span(tool, sent, around(request))
}

/// A `tools/call` under way. Dropped without an end its client has gone.
pub(super) struct Performing(Option<Span>);

impl Performing {
    pub(super) fn begin(span: &Span) -> Self {
        Self((!span.is_disabled()).then(|| span.clone()))
    }

    /// Notes whether it ended with a result that is none.
    pub(super) fn end(mut self, ended: &Result<CallToolResponse, ErrorData>) {
        let Some(span) = self.0.take() else { return };
        let word = match ended {
            Ok(CallToolResponse::Complete(result)) if result.is_error == Some(true) => "failed",
            Ok(_) => return,
            Err(_) => "refused",
        };
        fail(&span, word);
    }
}

impl Drop for Performing {
    fn drop(&mut self) {
        if let Some(span) = &self.0 {
            fail(span, "cancelled");
        }
    }
}

fn fail(span: &Span, word: &'static str) {
    span.record("switchboard.call.outcome", word);
    span.record("otel.status_code", "ERROR");
}

fn sent_in(meta: &RequestMetaObject) -> Option<Incoming> {
    let parent = meta.get_traceparent()?;
    Some(Incoming::parse(parent, meta.get_tracestate()))
}

fn around(request: &Extensions) -> Option<&RequestTrace> {
    request.get::<RequestTrace>()
}

fn span(tool: &str, sent: Option<Incoming>, around: Option<&RequestTrace>) -> Span {
    // Nobody has looked yet whether there is such a tool.
    let tool = trace::short(tool);
    // What cannot be read is as if it had not been sent.
    let sent = sent.filter(|sent| *sent != Incoming::Nothing);
    let is_elsewhere = sent.is_some();
    let incoming = sent.unwrap_or_else(|| around.map(|around| around.0.clone()).into());
    let span = span_from!(
        trace::begin(incoming),
        "mcp.tools_call",
        otel.kind = "server",
        otel.name = format!("tools/call {tool}"),
        otel.status_code = Empty,
        switchboard.call.outcome = Empty,
        mcp.method.name = "tools/call",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
    );
    if let Some(around) = around.filter(|_| is_elsewhere) {
        trace::link(&span, &around.0);
    }
    span
}
