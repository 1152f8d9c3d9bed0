//! A trace's context between processes: W3C's headers outside, 26 bytes and the state on the bus.
//! Never: a context that is not sampled passed on, or a state longer than the standard has to keep.

use std::{fmt, str::FromStr};

use axum::http::HeaderMap;
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// What the standard wants to be kept of `tracestate`. Protects the bus.
const MAX_STATE_BYTES: usize = 512;
const TRACE_BYTES: usize = 16;
const SPAN_BYTES: usize = 8;
const SAMPLED: u8 = 1;

/// The names of the headers, and of the fields of MCP's `_meta`.
pub const TRACEPARENT: &str = "traceparent";
/// What travels beside it.
pub const TRACESTATE: &str = "tracestate";

/// Which sampled trace something is part of, and which span led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; TRACE_BYTES],
    span: [u8; SPAN_BYTES],
    /// Checked, and within its bound.
    state: Option<Box<str>>,
}

/// What somebody sent along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// No context, or none that can be read: a new trace may begin.
    Nothing,
    /// A context that is not to be traced.
    NotSampled,
    /// One that is.
    Sampled(TraceContext),
}

impl Incoming {
    /// Reads `traceparent` and `tracestate`, as version 00 of the standard has them.
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Self {
        let Some((trace, span, flags)) = parse_parent(traceparent) else {
            return Self::Nothing;
        };
        if flags & SAMPLED == 0 {
            return Self::NotSampled;
        }
        let state = tracestate.and_then(kept_state);
        Self::Sampled(TraceContext { trace, span, state })
    }

    /// The same out of a request's headers.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let (Some(parent), None) = (parents.next(), parents.next()) else {
            return Self::Nothing;
        };
        let states: Vec<&str> = headers
            .get_all(TRACESTATE)
            .iter()
            .filter_map(|state| state.to_str().ok())
            .collect();
        let state = (!states.is_empty()).then(|| states.join(","));
        parent.to_str().map_or(Self::Nothing, |parent| {
            Self::parse(parent, state.as_deref())
        })
    }

    /// The context, where it is sampled.
    #[must_use]
    pub fn sampled(self) -> Option<TraceContext> {
        match self {
            Self::Sampled(context) => Some(context),
            Self::Nothing | Self::NotSampled => None,
        }
    }
}

/// What another node said: one that traces says so, and one that does not leaves nothing to chance here.
impl From<Option<TraceContext>> for Incoming {
    fn from(context: Option<TraceContext>) -> Self {
        context.map_or(Self::NotSampled, Self::Sampled)
    }
}

impl TraceContext {
    /// That of the span in which this runs, when it is sampled.
    #[must_use]
    pub fn current() -> Option<Self> {
        super::is_on()
            .then(|| super::current(Self::from_span_context))
            .flatten()
    }

    /// That of a span, when it is sampled.
    #[must_use]
    pub fn of(span: &Span) -> Option<Self> {
        if span.is_disabled() {
            return None;
        }
        Self::from_span_context(span.context().span().span_context())
    }

    fn from_span_context(context: &SpanContext) -> Option<Self> {
        let state = || {
            let state = context.trace_state().header();
            (!state.is_empty()).then(|| state.into())
        };
        context.is_sampled().then(|| Self {
            trace: context.trace_id().to_bytes(),
            span: context.span_id().to_bytes(),
            state: state(),
        })
    }

    pub(super) fn into_span_context(self) -> SpanContext {
        let state = self
            .state
            .and_then(|state| TraceState::from_str(&state).ok());
        SpanContext::new(
            TraceId::from_bytes(self.trace),
            SpanId::from_bytes(self.span),
            TraceFlags::SAMPLED,
            true,
            state.unwrap_or_default(),
        )
    }

    pub(super) fn into_remote(self) -> Context {
        Context::new().with_remote_span_context(self.into_span_context())
    }

    /// The trace's id, as logs and exemplars name it.
    #[must_use]
    pub fn trace_id(&self) -> String {
        Hex(&self.trace).to_string()
    }

    /// The span's id.
    #[must_use]
    pub fn span_id(&self) -> String {
        Hex(&self.span).to_string()
    }

    /// As the header of that name has it.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", Hex(&self.trace), Hex(&self.span))
    }

    /// As the header of that name has it, if there is one.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Puts it among a request's headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        // Both are digits, or were checked when they came; what is no header all the same is left out.
        if let Ok(parent) = self.traceparent().parse() {
            headers.insert(TRACEPARENT, parent);
        }
        if let Some(state) = self.tracestate().and_then(|state| state.parse().ok()) {
            headers.insert(TRACESTATE, state);
        }
    }

    /// Appends it as other nodes read it: ids, the state's length, the state.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.trace);
        out.extend_from_slice(&self.span);
        let state = self.state.as_deref().unwrap_or_default().as_bytes();
        let length = u16::try_from(state.len()).unwrap_or_default();
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(state.get(..usize::from(length)).unwrap_or_default());
    }

    /// Reads what [`Self::put`] wrote at the front of `bytes`, and how long it was; `None` when it is not that.
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<(Self, usize)> {
        let (trace, rest) = bytes.split_first_chunk::<TRACE_BYTES>()?;
        let (span, rest) = rest.split_first_chunk::<SPAN_BYTES>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let state = std::str::from_utf8(rest.get(..length)?).ok()?;
        let is_meant = *trace != [0; TRACE_BYTES] && *span != [0; SPAN_BYTES];
        let context = Self {
            trace: *trace,
            span: *span,
            state: kept_state(state),
        };
        is_meant.then_some((context, TRACE_BYTES + SPAN_BYTES + 2 + length))
    }
}

/// Lower-case digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

type Parent = ([u8; TRACE_BYTES], [u8; SPAN_BYTES], u8);

fn parse_parent(text: &str) -> Option<Parent> {
    let mut parts = text.trim().splitn(5, '-');
    let [version] = digits(parts.next()?)?;
    let trace = digits(parts.next()?)?;
    let span = digits(parts.next()?)?;
    let [flags] = digits(parts.next()?)?;
    // A version to come may say more, this one may not.
    let has_more = parts.next().is_some();
    let is_read = version != 0xff && (version != 0 || !has_more);
    (is_read && trace != [0; TRACE_BYTES] && span != [0; SPAN_BYTES])
        .then_some((trace, span, flags))
}

fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = pair.iter().try_fold(0_u8, |value, digit| match digit {
            b'0'..=b'9' => Some(value << 4 | (digit - b'0')),
            b'a'..=b'f' => Some(value << 4 | (digit - b'a' + 10)),
            _ => None,
        })?;
    }
    Some(bytes)
}

/// The entries in front that fit, if all that was sent is well-formed.
fn kept_state(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    if text.is_empty() || TraceState::from_str(text).is_err() {
        return None;
    }
    let mut kept = text;
    while kept.len() > MAX_STATE_BYTES {
        kept = kept.rsplit_once(',')?.0;
    }
    Some(kept.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_parent_is_read_or_ignored() {
        fn check(text: &str, expected: &str) {
            let seen = match Incoming::parse(text, None) {
                Incoming::Nothing => "nothing".to_owned(),
                Incoming::NotSampled => "not sampled".to_owned(),
                Incoming::Sampled(context) => context.traceparent(),
            };
            assert_eq!(seen, expected, "{text}");
        }
        check(PARENT, PARENT);
        check(&PARENT.replace("-01", "-03"), PARENT);
        check(&PARENT.replace("-01", "-00"), "not sampled");
        check(&PARENT.to_uppercase(), "nothing");
        check(&PARENT.replace("4bf92f35", "4bf92g35"), "nothing");
        check(&format!("{PARENT}-more"), "nothing");
        check(&format!("01{}-more", &PARENT[2..]), PARENT);
        check(&format!("ff{}", &PARENT[2..]), "nothing");
        check(
            &PARENT.replace("00f067aa0ba902b7", "0000000000000000"),
            "nothing",
        );
        check(&PARENT[..54], "nothing");
        check("", "nothing");
        check("00-é", "nothing");
    }

    #[test]
    fn a_state_is_kept_within_its_bound() {
        fn check(state: &str, expected: Option<&str>) {
            let context = Incoming::parse(PARENT, Some(state)).sampled().unwrap();
            assert_eq!(context.tracestate(), expected, "{state}");
            let mut bytes = b"before".to_vec();
            context.put(&mut bytes);
            let length = bytes.len() - 6;
            bytes.extend_from_slice(b"behind");
            assert_eq!(TraceContext::take(&bytes[6..]), Some((context, length)));
        }
        check(
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
            Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        );
        check("", None);
        check("no state", None);
        let long = "a".repeat(250);
        let three = format!("a={long},b={long},c={long}");
        check(&three, Some(&three[..505]));
    }

    #[test]
    fn what_no_node_wrote_is_not_read() {
        let mut bytes = Vec::new();
        Incoming::parse(PARENT, Some("a=b"))
            .sampled()
            .unwrap()
            .put(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(TraceContext::take(&bytes[..length]), None, "{length}");
        }
        bytes[..16].fill(0);
        assert_eq!(TraceContext::take(&bytes), None);
    }

    #[test]
    fn headers_are_read_only_where_they_are_clear() {
        let mut headers = HeaderMap::new();
        assert_eq!(Incoming::from_headers(&headers), Incoming::Nothing);
        headers.append(TRACEPARENT, PARENT.parse().unwrap());
        headers.append(TRACESTATE, "a=1".parse().unwrap());
        headers.append(TRACESTATE, "b=2".parse().unwrap());
        let context = Incoming::from_headers(&headers).sampled().unwrap();
        assert_eq!(context.tracestate(), Some("a=1,b=2"));
        let mut written = HeaderMap::new();
        context.write(&mut written);
        assert_eq!(Incoming::from_headers(&written).sampled(), Some(context));
        headers.append(TRACEPARENT, PARENT.parse().unwrap());
        assert_eq!(Incoming::from_headers(&headers), Incoming::Nothing);
    }
}
