//! JSON log lines with the ids of the current trace.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Json, Writer},
    },
    registry::LookupSpan,
};

use crate::trace::TraceContext;

/// The JSON format of `tracing-subscriber`, with `trace_id` and `span_id` first within a sampled
/// trace.
pub(super) struct WithTraceIds(pub(super) Format<Json>);

impl<S, N> FormatEvent<S, N> for WithTraceIds
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(trace) = TraceContext::current() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        let Some(rest) = line.strip_prefix('{') else {
            return writer.write_str(&line);
        };
        let (trace, span) = (trace.trace_id(), trace.span_id());
        write!(
            writer,
            "{{\"trace_id\":\"{trace}\",\"span_id\":\"{span}\",{rest}"
        )
    }
}
