//! The sampling of requests, in a process of its own: tracing is on for all of a process.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use axum::{Router, extract::Request, routing::get};
use prometheus::Registry;
use switchboard_runtime::{
    budget::Owner,
    http::{self, HttpLimits, HttpMetrics, RequestTrace},
    shutdown::Shutdown,
    telemetry::{Config, LogFormat},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use uuid::Uuid;

const REQUESTS: usize = 2_000;
/// The rate at which sampled contexts of one organisation are followed.
const FOLLOWED_PER_S: f64 = 25.0;
const TIMEOUT: Duration = Duration::from_secs(60);
const TRACED: &str = "in a trace";

/// Responds whether the request is traced.
async fn stranger(request: Request) -> &'static str {
    let trace = request.extensions().get::<RequestTrace>();
    trace.map_or("", |_| TRACED)
}

/// The same for a request that authenticates.
async fn organisation(request: Request) -> &'static str {
    http::authenticated(request.extensions(), Owner::Org(Uuid::from_u128(1)));
    stranger(request).await
}

#[tokio::test]
async fn sampled_requests_are_followed_after_authentication_within_a_rate() {
    let config = Config {
        log_level: "error".to_owned(),
        log_format: LogFormat::Text,
        otlp_endpoint: Some("http://127.0.0.1:9".to_owned()),
        trace_sample_ratio: 0.0,
    };
    let _traces = config.init(Some("node")).unwrap().unwrap();
    let metrics = HttpMetrics::new("test", &Registry::new()).unwrap();
    let router = Router::new()
        .route("/stranger", get(stranger))
        .route("/organisation", get(organisation));
    let router = http::instrument(router, &metrics);
    let listener = http::listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let limits = HttpLimits::default();
    shutdown.spawn(http::serve(listener, router, limits, shutdown.clone()));

    let traced = send_sampled(addr, "/stranger", REQUESTS).await.unwrap();
    assert_eq!(traced, 0, "requests of a network");
    // The head of a connection's first request is read before it authenticates.
    let traced = send_sampled(addr, "/organisation", 1).await.unwrap();
    assert_eq!(traced, 0, "the first request of a connection");
    let started = Instant::now();
    let traced = send_sampled(addr, "/organisation", REQUESTS).await.unwrap();
    let elapsed = started.elapsed();
    let bound = FOLLOWED_PER_S + FOLLOWED_PER_S * elapsed.as_secs_f64() + 1.0;
    let range = FOLLOWED_PER_S..=bound;
    assert!(range.contains(&(traced as f64)), "{traced} in {elapsed:?}");
    shutdown.stop();
}

/// Sends requests with a sampled context over one connection. Returns how many were traced.
async fn send_sampled(addr: SocketAddr, path: &str, count: usize) -> io::Result<usize> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\n\
        traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
    );
    let mut requests = format!("{request}\r\n").repeat(count - 1);
    requests.push_str(&request);
    requests.push_str("Connection: close\r\n\r\n");
    let (mut read, mut write) = TcpStream::connect(addr).await?.into_split();
    let mut answers = String::new();
    timeout(TIMEOUT, async {
        tokio::try_join!(
            write.write_all(requests.as_bytes()),
            read.read_to_string(&mut answers)
        )
    })
    .await??;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), count);
    Ok(answers.matches(TRACED).count())
}
