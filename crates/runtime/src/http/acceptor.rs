//! The accept loop of an HTTP port: admits, refuses and, at the end, waits for its connections.
//! Never: more connections than the limit allows, however many knock.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header},
};
use prometheus::IntCounter;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::{
    HttpLimits, HttpMetrics,
    connection::{self, Served},
};
use crate::{problem::Problem, shutdown::Shutdown};

/// Connections beyond the limit that are told so at the same time; those beyond are just closed.
const REFUSALS: usize = 64;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Serves `router` on `listener` until the process drains, and returns when the last connection has ended.
///
/// # Errors
/// None today: an accept error is logged, waited out and survived.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    shutdown: Shutdown,
) -> io::Result<()> {
    serve_counted(listener, router, limits, None, shutdown).await
}

/// The same, with a count of the connections that find no room.
///
/// # Errors
/// As [`serve`].
pub async fn serve_counted(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    metrics: Option<&HttpMetrics>,
    shutdown: Shutdown,
) -> io::Result<()> {
    let mut admission = Admission::new(router, limits, shutdown.child());
    admission.counted = metrics.map(|metrics| metrics.refused.clone());
    let mut failures = 0_u32;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.draining() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                failures = 0;
                admission.admit(socket);
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%error, accept.failures = failures, "an HTTP connection could not be accepted");
                tokio::time::sleep(pause(failures)).await;
            }
        }
    }
    drop(listener);
    admission.shutdown.finished(Duration::MAX).await;
    Ok(())
}

/// Doubles from failure to failure: running out of descriptors does not pass in a millisecond.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << failures.saturating_sub(1).min(7))
        .min(LONGEST_PAUSE)
}

struct Admission {
    served: Served,
    places: Arc<Semaphore>,
    refused: Served,
    refusals: Arc<Semaphore>,
    counted: Option<IntCounter>,
    shutdown: Shutdown,
}

impl Admission {
    fn new(router: Router, limits: HttpLimits, shutdown: Shutdown) -> Self {
        let places = Arc::new(Semaphore::new(
            limits.connections.min(Semaphore::MAX_PERMITS),
        ));
        let limits = Arc::new(limits);
        Self {
            served: Served::new(router, limits.clone()),
            places,
            refused: Served::new(Router::new().fallback(full), limits),
            refusals: Arc::new(Semaphore::new(REFUSALS)),
            counted: None,
            shutdown,
        }
    }

    fn admit(&self, socket: TcpStream) {
        let (place, served) = match self.places.clone().try_acquire_owned() {
            Ok(place) => (place, self.served.clone()),
            Err(_) => {
                self.counted.iter().for_each(IntCounter::inc);
                match self.refusals.clone().try_acquire_owned() {
                    Ok(place) => (place, self.refused.clone()),
                    Err(_) => return,
                }
            }
        };
        let shutdown = self.shutdown.clone();
        self.shutdown.spawn(async move {
            connection::run(socket, served, shutdown).await;
            drop(place);
        });
    }
}

async fn full() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too_many_connections",
        "Too many connections",
        "This node holds as many connections as it takes; try again, or another node.",
    )
    .header(header::RETRY_AFTER, 1)
    .header(header::CONNECTION, "close")
}
