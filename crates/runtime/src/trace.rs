//! Distributed tracing: sampling, spans and propagation between processes.
//!
//! Invariant: spans exist only in sampled traces and contain no secrets, params or results.
//!
//! Whether a trace is sampled is decided once, where it starts: by the incoming context of another
//! node ([`start`]), by that of an authenticated caller within a rate ([`start_for_caller`]), otherwise
//! at random.
//! Work outside of a sampled trace costs one atomic load, here and on every other node.

mod context;
mod export;

use std::{
    hash::{BuildHasher as _, RandomState},
    num::NonZeroU32,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
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
use crate::budget::Owner;

/// Target of all trace spans; log filters do not apply to it.
pub const TARGET: &str = "switchboard::trace";

/// 0 when tracing is off, otherwise one more than the share of the `u64` range within which a new
/// trace is sampled.
static SAMPLE_THRESHOLD: AtomicU64 = AtomicU64::new(0);

/// Traces of organisations that are followed per second, and at once. Protects the collector from
/// callers that have each of their requests traced.
const FOLLOWED_TRACES_PER_S: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
/// How many of them one organisation gets.
const FOLLOWED_TRACES_OF_ONE_PER_S: NonZeroU32 = NonZeroU32::MIN.saturating_add(24);
/// Organisations are distributed over as many buckets. Bounds memory.
const FOLLOWED_BUCKETS: u64 = 4096;

static FOLLOWED_TRACES: LazyLock<FollowedTraces> = LazyLock::new(FollowedTraces::new);

/// The rate of traces of organisations that are followed.
struct FollowedTraces {
    all: DefaultDirectRateLimiter,
    by_bucket: DefaultKeyedRateLimiter<u64>,
    /// Random, so that a caller cannot choose the bucket of another one.
    hasher: RandomState,
}

impl FollowedTraces {
    fn new() -> Self {
        Self {
            all: RateLimiter::direct(Quota::per_second(FOLLOWED_TRACES_PER_S)),
            by_bucket: RateLimiter::keyed(Quota::per_second(FOLLOWED_TRACES_OF_ONE_PER_S)),
            hasher: RandomState::new(),
        }
    }

    /// Whether the context of a caller decides. Only sampled ones take from the rate; a caller that
    /// has not authenticated never decides.
    fn follows(&self, caller: Owner, is_sampled: bool) -> bool {
        match caller {
            Owner::Network(_) | Owner::Proxied(_) => false,
            Owner::Org(_) | Owner::System if !is_sampled => true,
            Owner::Org(_) | Owner::System => {
                let bucket = self.hasher.hash_one(caller) % FOLLOWED_BUCKETS;
                self.by_bucket.check_key(&bucket).is_ok() && self.all.check().is_ok()
            }
        }
    }
}

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
    decide(incoming, threshold, |_| true)
}

/// Like [`start`], for the context of a caller. It decides nothing until the caller has
/// authenticated: such a trace is sampled at random, like a new one. So are sampled ones above 100
/// per second, 25 of them of one organisation.
#[must_use]
pub fn start_for_caller(incoming: Incoming, caller: impl FnOnce() -> Owner) -> Option<TraceStart> {
    let threshold = SAMPLE_THRESHOLD.load(Ordering::Relaxed);
    decide(incoming, threshold, |is_sampled| {
        FOLLOWED_TRACES.follows(caller(), is_sampled)
    })
}

/// `follows` is called with the decision of an incoming context, and returns whether it counts.
fn decide(
    incoming: Incoming,
    threshold: u64,
    follows: impl FnOnce(bool) -> bool,
) -> Option<TraceStart> {
    if threshold == 0 {
        return None;
    }
    // A threshold of 1 means a ratio of 0; the maximum means 1.
    let sample = || rand::random::<u64>() < threshold - 1 || threshold == u64::MAX;
    let (sampled, context) = match incoming {
        Incoming::Sampled(context) => (follows(true) || sample(), Some(context)),
        Incoming::NotSampled => (!follows(false) && sample(), None),
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
    fn context_of_a_caller_decides_if_it_is_followed() {
        fn check(threshold: u64, flags: &str, follow: bool, expected: bool) {
            let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
            let incoming = Incoming::parse(&parent, None);
            let start = decide(incoming, threshold, |is_sampled| {
                assert_eq!(is_sampled, flags == "01");
                follow
            });
            assert_eq!(start.is_some(), expected, "{threshold} {flags} {follow}");
            assert!(start.is_none_or(|start| start.0.is_some() == (flags == "01")));
        }
        check(0, "01", true, false);
        check(1, "01", true, true);
        check(1, "01", false, false);
        check(u64::MAX, "01", false, true);
        check(u64::MAX, "00", true, false);
        check(u64::MAX, "00", false, true);
        check(1, "00", false, false);
    }

    #[test]
    fn one_organisation_uses_a_quarter_of_the_rate() {
        let traces = FollowedTraces::new();
        let followed = |caller| (0..1_000).filter(|_| traces.follows(caller, true)).count();
        let counts: Vec<_> = (0..8)
            .map(|org| followed(Owner::Org(uuid::Uuid::from_u128(org))))
            .collect();
        // A few are added while this runs, and two of them may share a bucket.
        assert!((25..35).contains(&counts[0]), "{counts:?}");
        assert!(
            (95..150).contains(&counts.iter().sum::<usize>()),
            "{counts:?}"
        );
        assert!(traces.follows(Owner::Org(uuid::Uuid::nil()), false));
    }

    #[test]
    fn caller_that_has_not_authenticated_is_not_followed() {
        let traces = FollowedTraces::new();
        for caller in [Owner::network([192, 0, 2, 1].into()), Owner::Proxied(1)] {
            assert!(!traces.follows(caller, true) && !traces.follows(caller, false));
        }
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
