//! The sampling of requests, in a process of its own: tracing is on for all of a process.

use std::time::{Duration, Instant};

use axum::{Router, http::StatusCode, routing::get};
use prometheus::Registry;
use switchboard_runtime::{
    http::{self, HttpLimits, HttpMetrics},
    shutdown::Shutdown,
    telemetry::{Config, LogFormat},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const REQUESTS: usize = 2_000;
/// The rate at which sampled contexts of callers are followed.
const FOLLOWED_PER_S: f64 = 100.0;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Spans that were begun in this process.
fn spans(registry: &Registry) -> f64 {
    let families = registry.gather();
    let family = families
        .iter()
        .find(|family| family.name() == "switchboard_trace_spans_total");
    let counters = family.map(|family| family.get_metric()).unwrap_or_default();
    counters
        .iter()
        .map(|metric| metric.get_counter().get_value())
        .sum()
}

#[tokio::test]
async fn sampled_requests_of_strangers_are_bounded() {
    let config = Config {
        log_level: "error".to_owned(),
        log_format: LogFormat::Text,
        otlp_endpoint: Some("http://127.0.0.1:9".to_owned()),
        trace_sample_ratio: 0.0,
    };
    let traces = config.init(Some("node")).unwrap().unwrap();
    let registry = Registry::new();
    let metrics = HttpMetrics::new("test", &registry).unwrap();
    let router = Router::new().route("/", get(|| async { StatusCode::UNAUTHORIZED }));
    let router = http::instrument(router, &metrics);
    let listener = http::listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let limits = HttpLimits::default();
    shutdown.spawn(http::serve(listener, router, limits, shutdown.clone()));

    let started = Instant::now();
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\
        traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    let mut requests = format!("{request}\r\n").repeat(REQUESTS - 1);
    requests.push_str(request);
    requests.push_str("Connection: close\r\n\r\n");
    let (mut read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
    let mut answers = String::new();
    let (sent, received) = timeout(TIMEOUT, async {
        tokio::join!(
            write.write_all(requests.as_bytes()),
            read.read_to_string(&mut answers)
        )
    })
    .await
    .unwrap();
    sent.unwrap();
    received.unwrap();
    let elapsed = started.elapsed();
    assert_eq!(answers.matches("HTTP/1.1 401").count(), REQUESTS);

    shutdown.stop();
    let ended = Shutdown::new();
    ended.drain();
    let export = traces.export("test", registry.clone(), ended.clone());
    timeout(TIMEOUT, ended.spawn(export))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let spans = spans(&registry);
    let bound = FOLLOWED_PER_S + FOLLOWED_PER_S * elapsed.as_secs_f64() + 1.0;
    assert!(
        spans >= 1.0,
        "a sampled context is followed within the rate"
    );
    assert!(spans <= bound, "{spans} spans in {elapsed:?}");
}
