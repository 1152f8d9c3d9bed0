//! The accept loop of an HTTP port: admits connections up to the limit, and waits for them on
//! shutdown.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use axum::Router;
use prometheus::{IntCounter, Registry};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;

use super::{
    HttpLimits, HttpListeners, HttpMetrics,
    client::Clients,
    connection::{self, Handler},
    listener::tls_acceptor,
};
use crate::{budget::Budgets, shutdown::Shutdown};

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
    run(listener.into(), admission, shutdown).await
}

/// Like [`serve`], on both listeners, with the budgets of the process; counts connections over the
/// limit.
///
/// # Errors
/// As [`serve`].
pub async fn serve_with_metrics(
    listeners: impl Into<HttpListeners>,
    router: Router,
    limits: HttpLimits,
    metrics: &HttpMetrics,
    budgets: &Budgets,
    shutdown: Shutdown,
) -> io::Result<()> {
    let mut admission = Admission::new(router, limits, budgets, &shutdown);
    admission.refused_total = Some(metrics.refused.clone());
    run(listeners.into(), admission, shutdown).await
}

async fn run(listeners: HttpListeners, admission: Admission, shutdown: Shutdown) -> io::Result<()> {
    let HttpListeners { plain, tls } = listeners;
    let accept_plain = accept(plain, None, &admission);
    let accept_tls = async {
        match tls {
            Some((listener, config)) => {
                accept(listener, Some(tls_acceptor(config)), &admission).await
            }
            None => std::future::pending().await,
        }
    };
    // The listeners close when draining begins.
    tokio::select! {
        () = shutdown.draining() => {}
        () = accept_plain => {}
        () = accept_tls => {}
    }
    admission.shutdown.finished(Duration::MAX).await;
    Ok(())
}

/// Accepts connections; never ends.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, admission: &Admission) {
    let mut failures = 0_u32;
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                failures = 0;
                admission.admit(socket, tls.clone(), peer.ip());
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%error, accept.failures = failures, "cannot accept an HTTP connection; retrying");
                tokio::time::sleep(accept_backoff(failures)).await;
            }
        }
    }
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
            refused: Handler::over_limit(limits),
            refusals: Arc::new(Semaphore::new(MAX_CONCURRENT_REFUSALS)),
            refused_total: None,
            shutdown: shutdown.child(),
        }
    }

    fn admit(&self, socket: TcpStream, tls: Option<TlsAcceptor>, address: IpAddr) {
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
            connection::run(socket, tls, handler, client, shutdown).await;
            drop(refusal);
        });
    }
}
