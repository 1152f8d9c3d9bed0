//! Logs on stderr, as text or JSON, and traces to a collector. Stdout is reserved for the output of
//! commands.

mod json_lines;

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, LevelFilter, filter_fn},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::trace::{self, Traces};

/// At `info`, Postgres reports every object that a migration finds in place, and the MCP library
/// writes several lines per request for errors that its client receives anyway.
const QUIET_TARGETS: &str = "sqlx::postgres::notice=warn,rmcp=error";

/// Settings of logs and traces.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logs and traces")]
#[group(skip)]
pub struct Config {
    /// Log filter: error, warn, info, debug or trace, or directives such as
    /// `info,switchboard_edge=debug`
    #[arg(long, env, global = true, default_value = "info", value_name = "FILTER", value_parser = filter)]
    pub log_level: String,

    /// Log format: `text` or `json`; logs go to stderr
    #[arg(long, env, global = true, default_value = "text", value_enum)]
    pub log_format: LogFormat,

    /// Address of the collector for traces, OTLP over HTTP, for example http://collector:4318.
    /// Tracing is off if not set. OTEL_EXPORTER_OTLP_HEADERS can hold request headers
    #[arg(long, env, global = true, value_name = "URL", value_parser = trace::endpoint)]
    pub otlp_endpoint: Option<String>,

    /// Share of new traces that is sampled, from 0 to 1. The sampling decision in the `traceparent`
    /// of an authenticated caller takes precedence. Limits the load on the collector
    #[arg(long, env, global = true, default_value_t = 0.1, value_name = "RATIO", value_parser = ratio)]
    pub trace_sample_ratio: f64,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text; coloured on a terminal.
    Text,
    /// One JSON object per line.
    Json,
}

impl Config {
    /// Initialises logging. With the name of a serving `node`, also initialises tracing; the caller
    /// must then run the returned exporter.
    ///
    /// # Errors
    /// When the trace metrics cannot be created.
    pub fn init(&self, node: Option<&str>) -> Result<Option<Traces>, prometheus::Error> {
        let (Some(endpoint), Some(node)) = (&self.otlp_endpoint, node) else {
            init(&self.log_level, self.log_format);
            return Ok(None);
        };
        let (tracer, traces) = trace::tracer(endpoint, node)?;
        if init_with_traces(&self.log_level, self.log_format, tracer) {
            trace::switch_on(self.trace_sample_ratio);
        }
        Ok(Some(traces))
    }
}

/// Initialises logging for the process. Only the first call has an effect. Invalid directives are
/// reported on stderr and ignored.
pub fn init(filter: &str, format: LogFormat) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(directives(filter))
        .with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(has_color()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// Initialises logging and tracing; log events and trace spans are kept apart. Returns false if
/// logging has been initialised before.
fn init_with_traces(filter: &str, format: LogFormat, tracer: SdkTracer) -> bool {
    let layers = layers(filter, format, tracer);
    let started = Registry::default().with(layers).try_init();
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    started.is_ok()
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Creates the layers for logs and traces. Callsites that neither of them enables are skipped.
fn layers(filter: &str, format: LogFormat, tracer: SdkTracer) -> Vec<BoxedLayer> {
    let layer = fmt::layer().with_writer(io::stderr);
    // Without a level hint, each filter would enable all callsites down to `trace`.
    let others = filter_fn(|metadata| !is_traces(metadata));
    let logged = directives(filter).and(others.with_max_level_hint(LevelFilter::TRACE));
    let logs = match format {
        LogFormat::Text => layer.with_ansi(has_color()).with_filter(logged).boxed(),
        LogFormat::Json => {
            let json = fmt::format().json().flatten_event(true);
            let layer = layer.json().event_format(json_lines::WithTraceIds(json));
            layer.with_filter(logged).boxed()
        }
    };
    let spans = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_traces).with_max_level_hint(LevelFilter::INFO))
        .boxed();
    vec![logs, spans]
}

/// Whether stderr shows colours: it is a terminal, and the user has not refused them with NO_COLOR
/// (<https://no-color.org>).
#[must_use]
pub fn has_color() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal()
        && !is_refused
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn directives(filter: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{QUIET_TARGETS},{filter}"))
}

fn is_traces(metadata: &Metadata<'_>) -> bool {
    metadata.target() == trace::TARGET
}

/// Logs a panic like any other error.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    tracing::error!(
        panic.message = message,
        panic.location = location,
        "a task panicked"
    );
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|error| format!("{error}"))?;
    (0.0..=1.0)
        .contains(&ratio)
        .then_some(ratio)
        .ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_ratio_is_from_0_to_1() {
        fn check(text: &str, expected: Option<f64>) {
            assert_eq!(ratio(text).ok(), expected, "{text}");
        }
        check("0", Some(0.0));
        check("0.25", Some(0.25));
        check("1", Some(1.0));
        check("1.1", None);
        check("-0.1", None);
        check("NaN", None);
        check("a tenth", None);
    }

    #[test]
    fn traces_do_not_raise_the_max_level() {
        fn check(filter: &str, expected: LevelFilter) {
            let (tracer, _traces) = trace::tracer("http://127.0.0.1:9", "node").unwrap();
            let subscriber = Registry::default().with(layers(filter, LogFormat::Text, tracer));
            let hint = tracing::Subscriber::max_level_hint(&subscriber);
            assert_eq!(hint, Some(expected), "{filter}");
        }
        check("info", LevelFilter::INFO);
        check("warn", LevelFilter::INFO);
        check("info,switchboard_edge=debug", LevelFilter::DEBUG);
        check("trace", LevelFilter::TRACE);
    }

    #[test]
    fn log_filter_is_validated() {
        fn check(text: &str, valid: bool) {
            assert_eq!(filter(text).is_ok(), valid, "{text}");
        }
        check("info", true);
        check("warn,switchboard_edge=debug", true);
        check("info,switchboard_bus=louder", false);
    }
}
