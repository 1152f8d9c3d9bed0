//! The accept loop of an HTTP port: admits connections up to the limit, and waits for them on
//! shutdown.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use axum::{Router, http::header};
use prometheus::{IntCounter, Registry};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::{
    HttpLimits, HttpMetrics,
    client::Clients,
    connection::{self, Handler},
};
use crate::{
    budget::Budgets,
    problem::{Problem, ProblemKind},
    shutdown::Shutdown,
};

/// Connections over the limit that receive a 503 at the same time; further ones are closed without
/// a response.
const MAX_CONCURRENT_REFUSALS: usize = 64;
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(10);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Serves `router` on `listener` until draining begins, and returns when the last connection has
/// closed. The budgets of the port are its own.
///
/// # Errors
/// None at present: accept errors are logged and retried with a backoff.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    shutdown: Shutdown,
) -> io::Result<()> {
    let budgets = Budgets::new(&Registry::new()).map_err(io::Error::other)?;
    let admission = Admission::new(router, limits, &budgets, &shutdown);
    run(listener, admission, shutdown).await
}

/// Like [`serve`], with the budgets of the process; counts connections over the limit.
///
/// # Errors
/// As [`serve`].
pub async fn serve_with_metrics(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    metrics: &HttpMetrics,
    budgets: &Budgets,
    shutdown: Shutdown,
) -> io::Result<()> {
    let mut admission = Admission::new(router, limits, budgets, &shutdown);
    admission.refused_total = Some(metrics.refused.clone());
    run(listener, admission, shutdown).await
}

async fn run(listener: TcpListener, admission: Admission, shutdown: Shutdown) -> io::Result<()> {
    let mut failures = 0_u32;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.draining() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                failures = 0;
                admission.admit(socket, peer.ip());
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%error, accept.failures = failures, "cannot accept an HTTP connection; retrying");
                tokio::time::sleep(accept_backoff(failures)).await;
            }
        }
    }
    drop(listener);
    admission.shutdown.finished(Duration::MAX).await;
    Ok(())
}

/// Doubles with each failure: a lack of file descriptors does not clear within milliseconds.
fn accept_backoff(failures: u32) -> Duration {
    MIN_ACCEPT_BACKOFF
        .saturating_mul(1 << failures.saturating_sub(1).min(7))
        .min(MAX_ACCEPT_BACKOFF)
}

struct Admission {
    handler: Handler,
    clients: Arc<Clients>,
    refused: Handler,
    refusals: Arc<Semaphore>,
    refused_total: Option<IntCounter>,
    shutdown: Shutdown,
}

impl Admission {
    fn new(router: Router, limits: HttpLimits, budgets: &Budgets, shutdown: &Shutdown) -> Self {
        let limits = Arc::new(limits);
        Self {
            handler: Handler::new(router, limits.clone()),
            clients: Clients::new(&limits, budgets),
            refused: Handler::new(Router::new().fallback(over_limit), limits),
            refusals: Arc::new(Semaphore::new(MAX_CONCURRENT_REFUSALS)),
            refused_total: None,
            shutdown: shutdown.child(),
        }
    }

    fn admit(&self, socket: TcpStream, address: IpAddr) {
        let (client, handler, refusal) = match self.clients.admit(address) {
            Ok(client) => (client, self.handler.clone(), None),
            Err(_) => {
                self.refused_total.iter().for_each(IntCounter::inc);
                let Ok(refusal) = self.refusals.clone().try_acquire_owned() else {
                    return;
                };
                let client = self.clients.over_limit(address);
                (client, self.refused.clone(), Some(refusal))
            }
        };
        let shutdown = self.shutdown.clone();
        self.shutdown.spawn(async move {
            connection::run(socket, handler, client, shutdown).await;
            drop(refusal);
        });
    }
}

async fn over_limit() -> Problem {
    Problem::new(
        ProblemKind::TooManyConnections,
        "This node is at its connection limit; try again, or use another node.",
    )
    // A call, if this was one, was not sent.
    .with("delivered", "no")
    .header(header::RETRY_AFTER, 1)
    .header(header::CONNECTION, "close")
}
