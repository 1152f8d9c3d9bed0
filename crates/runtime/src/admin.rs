//! The admin port: `/healthz`, `/readyz`, `/metrics` and `/debug/budgets`. It closes last during
//! shutdown.

mod exposition;

use std::{collections::BTreeMap, io, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use parking_lot::RwLock;
use prometheus::Registry;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::{
    budget::Budgets,
    http::{self, HttpLimits},
    problem,
    shutdown::Shutdown,
};

/// Enough for probes and a few scrapers.
const CONNECTIONS: usize = 64;

type Probe = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// How much a process depends on something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The process is unready without it.
    Required,
    /// The process works with restrictions; readiness only shows its state.
    Optional,
}

/// Named dependencies and their readiness probes; cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness {
    probes: Arc<RwLock<BTreeMap<&'static str, (Need, Probe)>>>,
}

/// The response of `/readyz`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether the process is ready for requests.
    pub ready: bool,
    /// Whether it is shutting down.
    pub draining: bool,
    dependencies: BTreeMap<&'static str, Dependency>,
}

#[derive(Debug, Serialize)]
struct Dependency {
    ready: bool,
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Report {
    /// Returns the dependencies: name, whether it can be used, and why not.
    pub fn dependencies(&self) -> impl Iterator<Item = (&'static str, bool, Option<&str>)> {
        let dependencies = self.dependencies.iter();
        dependencies.map(|(name, one)| (*name, one.ready, one.detail.as_deref()))
    }
}

impl Readiness {
    /// Adds or replaces a dependency. Its probe runs on every `/readyz`: it must return what is
    /// known without waiting. Its error appears in the response.
    pub fn register(
        &self,
        name: &'static str,
        need: Need,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.probes.write().insert(name, (need, Box::new(probe)));
    }

    /// Runs all probes. A draining process is never ready.
    #[must_use]
    pub fn report(&self, draining: bool) -> Report {
        let dependencies: BTreeMap<_, _> = self
            .probes
            .read()
            .iter()
            .map(|(name, (need, probe))| {
                let verdict = probe();
                (
                    *name,
                    Dependency {
                        ready: verdict.is_ok(),
                        required: *need == Need::Required,
                        detail: verdict.err(),
                    },
                )
            })
            .collect();
        let well = dependencies
            .values()
            .all(|dependency| dependency.ready || !dependency.required);
        Report {
            ready: well && !draining,
            draining,
            dependencies,
        }
    }
}

#[derive(Clone)]
struct Admin {
    readiness: Readiness,
    registry: Registry,
    budgets: Budgets,
    shutdown: Shutdown,
}

/// Serves the admin port while draining, until stopping begins.
///
/// # Errors
/// When the HTTP server fails.
pub async fn serve(
    listener: TcpListener,
    readiness: Readiness,
    registry: Registry,
    budgets: Budgets,
    shutdown: Shutdown,
) -> io::Result<()> {
    let limits = HttpLimits {
        connections: CONNECTIONS,
        ..HttpLimits::default()
    };
    // A separate shutdown: draining the process must not close this port.
    let own = Shutdown::new();
    let admin = Admin {
        readiness,
        registry,
        budgets,
        shutdown: shutdown.clone(),
    };
    let serving = http::serve(listener, router(admin), limits, own.clone());
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => return result,
        () = shutdown.stopping() => own.stop(),
    }
    serving.await
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/budgets", get(budgets))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::not_found)
        .with_state(admin)
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let report = admin.readiness.report(admin.shutdown.is_draining());
    let status = if report.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, axum::Json(report)).into_response()
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    exposition::expose(&admin.registry, &headers)
}

async fn budgets(State(admin): State<Admin>) -> Response {
    axum::Json(admin.budgets.report()).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::budget::Kind;

    #[tokio::test]
    async fn readiness_is_served_until_the_process_stops() {
        let shutdown = Shutdown::new();
        let readiness = Readiness::default();
        let well = Arc::new(AtomicBool::new(false));
        let probe = well.clone();
        readiness.register("bus", Need::Required, move || {
            let well = probe.load(Ordering::Relaxed);
            well.then_some(())
                .ok_or_else(|| "no connection for 3 s".to_owned())
        });
        readiness.register("memory", Need::Optional, || Err("forgetful".to_owned()));
        let registry = Registry::new();
        let counter = prometheus::IntCounter::new("switchboard_calls", "Calls.").unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        let budgets = Budgets::new(&registry).unwrap();
        let _budget = budgets.slots("pictures", 4, Kind::Brief);
        counter.inc();
        let listener = http::listen("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = shutdown.spawn(serve(
            listener,
            readiness,
            registry,
            budgets,
            shutdown.clone(),
        ));
        let read = async |path: &str| {
            let mut socket = TcpStream::connect(addr).await.unwrap();
            let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            socket.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head[9..12].parse::<u16>().unwrap(), body.to_owned())
        };
        let ready = async || {
            let (status, body) = read("/readyz").await;
            (status, serde_json::from_str::<Value>(&body).unwrap())
        };

        let unwell = json!({"ready": false, "required": true, "detail": "no connection for 3 s"});
        assert_eq!(ready().await.0, 503);
        assert_eq!(ready().await.1["dependencies"]["bus"], unwell);
        well.store(true, Ordering::Relaxed);
        let report = json!({"ready": true, "draining": false, "dependencies": {
            "bus": {"ready": true, "required": true},
            "memory": {"ready": false, "required": false, "detail": "forgetful"},
        }});
        assert_eq!(ready().await, (200, report));
        assert_eq!(read("/healthz").await, (200, "ok".to_owned()));
        assert!(read("/metrics").await.1.contains("switchboard_calls 1"));
        assert_eq!(read("/else").await.0, 404);

        shutdown.drain();
        assert_eq!(ready().await.0, 503);
        assert_eq!(read("/healthz").await.0, 200);
        shutdown.stop();
        serving.await.unwrap().unwrap();
    }
}
