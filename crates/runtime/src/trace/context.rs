//! Trace contexts: the W3C headers between processes, and a binary form of 26 bytes and the state
//! on the bus. Only sampled contexts are propagated.

use std::{fmt, str::FromStr};

use axum::http::HeaderMap;
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Size of `tracestate` that the W3C standard requires to be propagated. Bounds the size of bus
/// messages.
const MAX_STATE_BYTES: usize = 512;
const TRACE_BYTES: usize = 16;
const SPAN_BYTES: usize = 8;
const SAMPLED: u8 = 1;

/// Name of the header, and of the field of MCP's `_meta`.
pub const TRACEPARENT: &str = "traceparent";
/// Name of the companion header and field.
pub const TRACESTATE: &str = "tracestate";

/// The context of a sampled trace: trace id, id of the parent span, and vendor state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; TRACE_BYTES],
    span: [u8; SPAN_BYTES],
    /// Validated and truncated to the maximum size.
    state: Option<Box<str>>,
}

/// The trace context of an incoming message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Missing or malformed: a new trace may start.
    Nothing,
    /// Present but not sampled.
    NotSampled,
    /// Present and sampled.
    Sampled(TraceContext),
}

impl Incoming {
    /// Parses `traceparent` and `tracestate` (version 00).
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Self {
        let Some((trace, span, flags)) = parse_parent(traceparent) else {
            return Self::Nothing;
        };
        if flags & SAMPLED == 0 {
            return Self::NotSampled;
        }
        let state = tracestate.and_then(truncate_state);
        Self::Sampled(TraceContext { trace, span, state })
    }

    /// Parses the context from request headers.
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

    /// Returns the context if it is sampled.
    #[must_use]
    pub fn sampled(self) -> Option<TraceContext> {
        match self {
            Self::Sampled(context) => Some(context),
            Self::Nothing | Self::NotSampled => None,
        }
    }
}

/// A context from another node. Nodes propagate only sampled contexts, so a missing one means not
/// sampled.
impl From<Option<TraceContext>> for Incoming {
    fn from(context: Option<TraceContext>) -> Self {
        context.map_or(Self::NotSampled, Self::Sampled)
    }
}

impl TraceContext {
    /// Returns the context of the current span if it is sampled.
    #[must_use]
    pub fn current() -> Option<Self> {
        super::is_on()
            .then(|| super::current(Self::from_span_context))
            .flatten()
    }

    /// Returns the context of a span if it is sampled.
    #[must_use]
    pub fn from_span(span: &Span) -> Option<Self> {
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

    /// Returns the trace id in hexadecimal.
    #[must_use]
    pub fn trace_id(&self) -> String {
        Hex(&self.trace).to_string()
    }

    /// Returns the span id in hexadecimal.
    #[must_use]
    pub fn span_id(&self) -> String {
        Hex(&self.span).to_string()
    }

    /// Formats the `traceparent` header.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", Hex(&self.trace), Hex(&self.span))
    }

    /// Returns the `tracestate` header, if any.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Writes the context into request headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        // Both values are hexadecimal or were validated; an invalid one is omitted.
        if let Ok(parent) = self.traceparent().parse() {
            headers.insert(TRACEPARENT, parent);
        }
        if let Some(state) = self.tracestate().and_then(|state| state.parse().ok()) {
            headers.insert(TRACESTATE, state);
        }
    }

    /// Appends the binary form: trace id, span id, length of the state, state.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.trace);
        out.extend_from_slice(&self.span);
        let state = self.state.as_deref().unwrap_or_default().as_bytes();
        let length = u16::try_from(state.len()).unwrap_or_default();
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(state.get(..usize::from(length)).unwrap_or_default());
    }

    /// Decodes the output of [`Self::encode`] at the start of `bytes`; also returns its length.
    /// `None` if it is malformed.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (trace, rest) = bytes.split_first_chunk::<TRACE_BYTES>()?;
        let (span, rest) = rest.split_first_chunk::<SPAN_BYTES>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let state = std::str::from_utf8(rest.get(..length)?).ok()?;
        let is_valid = *trace != [0; TRACE_BYTES] && *span != [0; SPAN_BYTES];
        let context = Self {
            trace: *trace,
            span: *span,
            state: truncate_state(state),
        };
        is_valid.then_some((context, TRACE_BYTES + SPAN_BYTES + 2 + length))
    }
}

/// Lower-case hexadecimal.
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
    // Version 00 has exactly four fields; later versions may append more.
    let has_more = parts.next().is_some();
    let is_supported = version != 0xff && (version != 0 || !has_more);
    (is_supported && trace != [0; TRACE_BYTES] && span != [0; SPAN_BYTES])
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

/// Drops entries from the end until the rest fits; `None` if the text is malformed.
fn truncate_state(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    if text.is_empty() || TraceState::from_str(text).is_err() {
        return None;
    }
    let mut state = text;
    while state.len() > MAX_STATE_BYTES {
        state = state.rsplit_once(',')?.0;
    }
    Some(state.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_parsed_or_ignored() {
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
    fn tracestate_is_truncated_to_its_limit() {
        fn check(state: &str, expected: Option<&str>) {
            let context = Incoming::parse(PARENT, Some(state)).sampled().unwrap();
            assert_eq!(context.tracestate(), expected, "{state}");
            let mut bytes = b"before".to_vec();
            context.encode(&mut bytes);
            let length = bytes.len() - 6;
            bytes.extend_from_slice(b"behind");
            assert_eq!(TraceContext::decode(&bytes[6..]), Some((context, length)));
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
    fn malformed_bytes_are_not_decoded() {
        let mut bytes = Vec::new();
        Incoming::parse(PARENT, Some("a=b"))
            .sampled()
            .unwrap()
            .encode(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(TraceContext::decode(&bytes[..length]), None, "{length}");
        }
        bytes[..16].fill(0);
        assert_eq!(TraceContext::decode(&bytes), None);
    }

    #[test]
    fn ambiguous_headers_are_ignored() {
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
