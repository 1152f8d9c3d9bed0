//! Logs: to stderr, for people or for machines; and traces, to a collector.
//! Never: stdout, which belongs to what a command answers.

mod lines;

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

/// Under `info` Postgres tells each time that what a migration makes is there already, and the MCP library writes
/// several lines for each request; what goes wrong with one is its client's to know.
const QUIET: &str = "sqlx::postgres::notice=warn,rmcp=error";

/// How much is logged, and in which shape; what is traced, and where to.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logs and traces")]
#[group(skip)]
pub struct Config {
    /// What is logged: error, warn, info, debug or trace, or finer directives such as `info,switchboard_edge=debug`
    #[arg(long, env = "SWITCHBOARD_LOG", global = true, default_value = "info", value_name = "FILTER", value_parser = filter)]
    pub log_level: String,

    /// `text` for people, `json` for machines; always on stderr
    #[arg(
        long,
        env = "SWITCHBOARD_LOG_FORMAT",
        global = true,
        default_value = "text",
        value_enum
    )]
    pub log_format: LogFormat,

    /// Collector that traces are sent to over OTLP with HTTP, such as http://collector:4318; without it
    /// nothing is traced, and that costs nothing. OTEL_EXPORTER_OTLP_HEADERS may hold headers for it
    #[arg(long, env = "SWITCHBOARD_OTLP_ENDPOINT", global = true, value_name = "URL", value_parser = trace::endpoint)]
    pub otlp_endpoint: Option<String>,

    /// Share of what begins here that is traced, from 0 to 1; a caller's own decision, in `traceparent`,
    /// is followed. Protects the collector
    #[arg(long, env = "SWITCHBOARD_TRACE_SAMPLE_RATIO", global = true, default_value_t = 0.1, value_name = "RATIO", value_parser = ratio)]
    pub trace_sample_ratio: f64,
}

/// The shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// Starts logging as configured. With the name of a `node` that serves, traces as well: what comes back has to
    /// be exported.
    ///
    /// # Errors
    /// When the metrics of traces cannot be made.
    pub fn init(&self, node: Option<&str>) -> Result<Option<Traces>, prometheus::Error> {
        let (Some(endpoint), Some(node)) = (&self.otlp_endpoint, node) else {
            init(&self.log_level, self.log_format);
            return Ok(None);
        };
        let (tracer, traces) = trace::tracer(endpoint, node)?;
        if traced(&self.log_level, self.log_format, tracer) {
            trace::switch_on(self.trace_sample_ratio);
        }
        Ok(Some(traces))
    }
}

/// Starts logging for the whole process. The first call counts; directives that cannot be read are
/// named on stderr and left out.
pub fn init(filter: &str, format: LogFormat) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(directives(filter))
        .with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// The same where traces are written too: neither sees what is the other's. False when logging has been started before.
fn traced(filter: &str, format: LogFormat, tracer: SdkTracer) -> bool {
    let layers = layers(filter, format, tracer);
    let started = Registry::default().with(layers).try_init();
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    started.is_ok()
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Where logs go, and where traces. What neither of them takes is not even looked at where it arises.
fn layers(filter: &str, format: LogFormat, tracer: SdkTracer) -> Vec<BoxedLayer> {
    let layer = fmt::layer().with_writer(io::stderr);
    // Without a hint each of the two would have everything down to `trace` looked at.
    let others = filter_fn(|metadata| !is_traces(metadata));
    let logged = directives(filter).and(others.with_max_level_hint(LevelFilter::TRACE));
    let logs = match format {
        LogFormat::Text => layer
            .with_ansi(io::stderr().is_terminal())
            .with_filter(logged)
            .boxed(),
        LogFormat::Json => {
            let json = fmt::format().json().flatten_event(true);
            let layer = layer.json().event_format(lines::Traced(json));
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

fn directives(filter: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{QUIET},{filter}"))
}

fn is_traces(metadata: &Metadata<'_>) -> bool {
    metadata.target() == trace::TARGET
}

/// Panics are log lines like any other, so that they are found where the logs are.
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
        .ok_or_else(|| "a number from 0 to 1 is wanted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_from_0_to_1() {
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
    fn traces_do_not_have_more_looked_at_than_logs_want() {
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
    fn filters_are_checked_before_anything_starts() {
        fn check(text: &str, valid: bool) {
            assert_eq!(filter(text).is_ok(), valid, "{text}");
        }
        check("info", true);
        check("warn,switchboard_edge=debug", true);
        check("info,switchboard_bus=louder", false);
    }
}
