//! Distributed tracing: sampling, spans and propagation between processes.
//!
//! Invariant: spans exist only in sampled traces and contain no secrets, params or results.
//!
//! Whether a trace is sampled is decided once, where it starts: by the incoming context of another
//! node ([`start`]), by that of a caller within a rate ([`start_for_caller`]), otherwise at random.
//! Work outside of a sampled trace costs one atomic load, here and on every other node.

mod context;
mod export;

use std::{
    num::NonZeroU32,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use opentelemetry::{
    Context,
    trace::{SpanContext, TraceContextExt as _},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

pub(crate) use self::export::{endpoint, tracer};
pub use self::{
    context::{Incoming, TRACEPARENT, TRACESTATE, TraceContext},
    export::{ExportError, Traces},
};

/// Target of all trace spans; log filters do not apply to it.
pub const TARGET: &str = "switchboard::trace";

/// 0 when tracing is off, otherwise one more than the share of the `u64` range within which a new
/// trace is sampled.
static SAMPLE_THRESHOLD: AtomicU64 = AtomicU64::new(0);

/// Traces of callers that are followed per second, and at once. Protects the collector from callers
/// that have each of their requests traced, even without a credential.
const FOLLOWED_TRACES_PER_S: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

static FOLLOWED_TRACES: LazyLock<DefaultDirectRateLimiter> =
    LazyLock::new(|| RateLimiter::direct(Quota::per_second(FOLLOWED_TRACES_PER_S)));

/// Returns whether this process exports traces.
#[must_use]
#[inline]
pub fn is_on() -> bool {
    SAMPLE_THRESHOLD.load(Ordering::Relaxed) != 0
}

/// Enables tracing for the process; `ratio` is the share of new traces that is sampled.
pub(crate) fn switch_on(ratio: f64) {
    SAMPLE_THRESHOLD.store(threshold(ratio), Ordering::Relaxed);
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

/// Returns whether the current context belongs to a sampled trace.
#[must_use]
#[inline]
pub fn is_traced() -> bool {
    is_on() && current(SpanContext::is_sampled)
}

fn current<T>(read: impl FnOnce(&SpanContext) -> T) -> T {
    Context::map_current(|context| read(context.span().span_context()))
}

/// The start of a trace in this process, with the incoming context, if any.
#[derive(Debug)]
pub struct TraceStart(Option<TraceContext>);

/// Decides whether to trace: a sampled context of another node is continued, an unsampled one is
/// not, and without a context the decision is random. Returns `None` if tracing is off.
#[must_use]
pub fn start(incoming: Incoming) -> Option<TraceStart> {
    let threshold = SAMPLE_THRESHOLD.load(Ordering::Relaxed);
    decide(incoming, threshold, || true)
}

/// Like [`start`], for the context of a caller. Above 100 per second, a sampled one is continued at
/// random, like a new trace.
#[must_use]
pub fn start_for_caller(incoming: Incoming) -> Option<TraceStart> {
    let threshold = SAMPLE_THRESHOLD.load(Ordering::Relaxed);
    decide(incoming, threshold, || FOLLOWED_TRACES.check().is_ok())
}

fn decide(incoming: Incoming, threshold: u64, follow: impl FnOnce() -> bool) -> Option<TraceStart> {
    if threshold == 0 {
        return None;
    }
    // A threshold of 1 means a ratio of 0; the maximum means 1.
    let sample = || rand::random::<u64>() < threshold - 1 || threshold == u64::MAX;
    let (sampled, context) = match incoming {
        Incoming::Sampled(context) => (follow() || sample(), Some(context)),
        Incoming::NotSampled => (false, None),
        Incoming::Nothing => (sample(), None),
    };
    sampled.then_some(TraceStart(context))
}

impl TraceStart {
    /// Attaches a span created with `parent: None` to the incoming context.
    #[must_use]
    pub fn with(self, span: Span) -> Span {
        if let Some(parent) = self.0 {
            // Fails if the span was filtered out; then there is nothing to attach.
            let _ = span.set_parent(parent.into_remote());
        }
        span
    }
}

/// Maximum length of a client-chosen name in a span. Bounds the memory of the span queue.
const MAX_NAME_BYTES: usize = 128;

/// Truncates a name to the maximum length in a span.
#[must_use]
pub fn truncate_name(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME_BYTES))
        .unwrap_or_default()
}

/// Links a span to a span of another trace.
pub fn add_link(span: &Span, to: &TraceContext) {
    span.add_link(to.clone().into_span_context());
}

/// Adds an event to a span.
pub fn add_event(span: &Span, event: &'static str) {
    if !span.is_disabled() {
        span.add_event(event, Vec::new());
    }
}

/// Creates a span within a sampled trace, otherwise none: `span!("name", field = value, …)`.
///
/// The span is an `info_span!`; `otel.kind`, `otel.name` and `otel.status_code` have their
/// OpenTelemetry meaning.
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

/// Creates the first span of a trace: `span_from!(start, "name", field = value, …)`, where `start`
/// is the result of [`start`](crate::trace::start).
#[macro_export]
macro_rules! span_from {
    ($start:expr, $name:literal $(, $($fields:tt)*)?) => {
        match $start {
            Some(start) => $crate::trace::TraceStart::with(
                start,
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
    fn name_is_truncated_between_characters() {
        assert_eq!(truncate_name("wave"), "wave");
        assert_eq!(truncate_name(&"a".repeat(1_000_000)).len(), MAX_NAME_BYTES);
        let cut = format!("a{}", "é".repeat(100));
        assert_eq!(truncate_name(&cut), format!("a{}", "é".repeat(63)));
    }

    #[test]
    fn context_of_a_caller_is_followed_within_the_rate() {
        fn check(threshold: u64, follow: bool, expected: bool) {
            let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            let incoming = Incoming::parse(parent, None);
            let start = decide(incoming, threshold, || follow);
            assert_eq!(start.is_some(), expected, "{threshold} {follow}");
            assert!(start.is_none_or(|start| start.0.is_some()));
        }
        check(0, true, false);
        check(1, true, true);
        check(1, false, false);
        check(u64::MAX, false, true);
    }

    #[test]
    fn ratio_maps_to_a_threshold() {
        assert_eq!(threshold(0.0), 1);
        assert_eq!(threshold(-3.0), 1);
        assert_eq!(threshold(f64::NAN), 1);
        assert_eq!(threshold(1.0), u64::MAX);
        assert_eq!(threshold(2.0), u64::MAX);
        assert_eq!(threshold(0.5), 1 << 63);
    }
}
