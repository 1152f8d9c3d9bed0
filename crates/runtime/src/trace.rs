//! Traces: what is traced at all, and what a process passes on so that the next one's spans join the same trace.
//! Never: a span for what nobody sampled, or a secret, a param or a result in one.
//!
//! A span is made only within a trace that is sampled. Whether one is, is decided once, where it begins ([`begin`]): by
//! whoever sent a context along, else by chance. So what is not traced costs one load of an atomic number, here, on the
//! bus and on every other node.

mod context;
mod export;

use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::{
    Context,
    trace::{SpanContext, TraceContextExt as _},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

pub(crate) use self::export::{endpoint, tracer};
pub use self::{
    context::{Incoming, TRACEPARENT, TRACESTATE, TraceContext},
    export::{Traces, Unstarted},
};

/// What spans of traces are known by; log filters do not mean them.
pub const TARGET: &str = "switchboard::trace";

/// 0 when nothing is traced, else one more than the share of `u64`'s range within which a beginning is sampled.
static SAMPLED_BELOW: AtomicU64 = AtomicU64::new(0);

/// Whether this process traces anything.
#[must_use]
#[inline]
pub fn is_on() -> bool {
    SAMPLED_BELOW.load(Ordering::Relaxed) != 0
}

/// Switches tracing on for the whole process; of what begins here, this share is sampled.
pub(crate) fn switch_on(ratio: f64) {
    SAMPLED_BELOW.store(threshold(ratio), Ordering::Relaxed);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a range need not be exact, and the cast saturates"
)]
fn threshold(ratio: f64) -> u64 {
    ((ratio.clamp(0.0, 1.0) * u64::MAX as f64) as u64).max(1)
}

/// Whether what runs here is part of a sampled trace.
#[must_use]
#[inline]
pub fn is_traced() -> bool {
    is_on() && current(SpanContext::is_sampled)
}

fn current<T>(look: impl FnOnce(&SpanContext) -> T) -> T {
    Context::map_current(|context| look(context.span().span_context()))
}

/// Where a trace begins in this process, with what came along.
#[derive(Debug)]
pub struct Beginning(Option<TraceContext>);

/// Whether what came is to be traced: a context that was sampled is followed, one that was not is not, and without one
/// chance decides. `None` as well when nothing is traced here.
#[must_use]
pub fn begin(incoming: Incoming) -> Option<Beginning> {
    let below = SAMPLED_BELOW.load(Ordering::Relaxed);
    if below == 0 {
        return None;
    }
    match incoming {
        Incoming::Sampled(context) => Some(Beginning(Some(context))),
        Incoming::NotSampled => None,
        // At 1 the share is nothing, at the top it is everything.
        Incoming::Nothing => {
            (rand::random::<u64>() < below - 1 || below == u64::MAX).then_some(Beginning(None))
        }
    }
}

impl Beginning {
    /// Puts a span, made with `parent: None`, where the trace begins here.
    #[must_use]
    pub fn with(self, span: Span) -> Span {
        if let Some(parent) = self.0 {
            // The error says that the span was filtered away, and then there is nothing to be placed.
            let _ = span.set_parent(parent.into_remote());
        }
        span
    }
}

/// What a span keeps of a name that somebody outside made up. Protects the queue of spans.
const LONGEST_NAME: usize = 128;

/// The beginning of a name, as long as a span may hold it.
#[must_use]
pub fn short(name: &str) -> &str {
    name.get(..name.floor_char_boundary(LONGEST_NAME))
        .unwrap_or_default()
}

/// Says of a span that another one, of another trace, led to it.
pub fn link(span: &Span, to: &TraceContext) {
    span.add_link(to.clone().into_span_context());
}

/// Notes in a span that something has happened now.
pub fn note(span: &Span, event: &'static str) {
    if !span.is_disabled() {
        span.add_event(event, Vec::new());
    }
}

/// A span within what is traced here, else none: `span!("name", field = value, …)`.
///
/// The span is an `info_span!`; `otel.kind`, `otel.name` and `otel.status_code` mean what they mean to OpenTelemetry.
#[macro_export]
macro_rules! span {
    ($name:literal $(, $($fields:tt)*)?) => {
        if $crate::trace::is_traced() {
            ::tracing::info_span!(target: $crate::trace::TARGET, $name $(, $($fields)*)?)
        } else {
            ::tracing::Span::none()
        }
    };
}

/// A span at the beginning of what is traced, if it is: `span_from!(beginning, "name", field = value, …)`, where
/// `beginning` is what [`begin`](crate::trace::begin) answered.
#[macro_export]
macro_rules! span_from {
    ($beginning:expr, $name:literal $(, $($fields:tt)*)?) => {
        match $beginning {
            Some(beginning) => $crate::trace::Beginning::with(
                beginning,
                ::tracing::info_span!(target: $crate::trace::TARGET, parent: None, $name $(, $($fields)*)?),
            ),
            None => ::tracing::Span::none(),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(short("wave"), "wave");
        assert_eq!(short(&"a".repeat(1_000_000)).len(), LONGEST_NAME);
        let cut = format!("a{}", "é".repeat(100));
        assert_eq!(short(&cut), format!("a{}", "é".repeat(63)));
    }

    #[test]
    fn a_ratio_is_a_share_of_the_range() {
        assert_eq!(threshold(0.0), 1);
        assert_eq!(threshold(-3.0), 1);
        assert_eq!(threshold(f64::NAN), 1);
        assert_eq!(threshold(1.0), u64::MAX);
        assert_eq!(threshold(2.0), u64::MAX);
        assert_eq!(threshold(0.5), 1 << 63);
    }
}
