//! Lifecycle of a serving process: start, ready line, signals and ordered shutdown.

mod progress;

use std::{
    future::Future,
    io::IsTerminal as _,
    net::SocketAddr,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use axum::Router;
use prometheus::{IntGauge, Opts, Registry};
use switchboard_bus::{Bus, NodeCheck, NodeStatus, STATUS_INTERVAL};
use switchboard_edge::{self as edge, Listeners};
use switchboard_identity::Authenticator;
use switchboard_runtime::{
    admin::{self, Readiness},
    budget::Budgets,
    http::{self, HttpLimits, HttpListeners, HttpMetrics},
    metrics::register_process_metrics,
    problem, ready,
    shutdown::Shutdown,
    signals,
    trace::Traces,
};
use switchboard_speech::Speech;
use tokio::{net::TcpListener, sync::watch};
use tracing::{debug, error, info, warn};

use crate::{
    arguments::DrainTimes,
    cli::Cli,
    exit::{self, Failure},
};

/// Timeout for the tasks of a stage to end after they are stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for background stages to finish after serving has ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum length of the published reason why something is unavailable, in characters.
const MAX_DETAIL_CHARS: usize = 500;

/// The stages of a process, in the order of their shutdown; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stages {
    /// Device connections and HTTP requests.
    pub(crate) serving: Shutdown,
    /// Background work that processes what serving produced.
    pub(crate) background: Shutdown,
    /// The bus node.
    pub(crate) bus: Shutdown,
    /// The private Postgres and the probes of dependencies.
    pub(crate) database: Shutdown,
    /// The export of traces.
    traces: Shutdown,
    /// The admin port, which reports on all other stages.
    admin: Shutdown,
}

/// Context of the parts of a serving process.
pub(crate) struct Process {
    pub(crate) registry: Registry,
    pub(crate) budgets: Budgets,
    pub(crate) readiness: Readiness,
    pub(crate) stages: Stages,
    http: HttpMetrics,
    service: &'static str,
    admin_url: String,
    failure: watch::Sender<Option<String>>,
}

/// Name of the service and its trace exporter.
#[derive(Debug)]
pub(crate) struct Telemetry {
    service: &'static str,
    traces: Option<Traces>,
}

impl Telemetry {
    /// Initialises logging. Initialises tracing if the subcommand is a service and a collector is
    /// configured.
    ///
    /// # Errors
    /// When the trace metrics cannot be created.
    pub(crate) fn begin(cli: &Cli) -> Result<Self, Failure> {
        let service = cli.command.service();
        let host = nix::unistd::gethostname().unwrap_or_default();
        let node = format!("{}:{}", host.to_string_lossy(), std::process::id());
        let traces = cli.logs.init(service.map(|_| node.as_str()));
        Ok(Self {
            service: service.unwrap_or_default(),
            traces: traces.map_err(Failure::general)?,
        })
    }
}

/// The ready line. Fields that do not apply are omitted.
#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct Ready {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) https_url: Option<String>,
    pub(crate) admin_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) org_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<String>,
    /// With a one-time code that signs a browser of this machine in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) console_url: Option<String>,
    /// Printed instead of the line.
    #[serde(skip)]
    pub(crate) summary: Option<String>,
}

impl Process {
    /// Opens the admin port; the process is not ready yet.
    ///
    /// # Errors
    /// As [`reachable`].
    pub(crate) fn begin(
        admin_listener: TcpListener,
        telemetry: Telemetry,
    ) -> Result<Self, Failure> {
        raise_file_limit();
        let Telemetry { service, traces } = telemetry;
        let registry = Registry::new();
        let taken = "cannot register the metrics of the process";
        register_build_info(service, &registry).context(taken)?;
        register_process_metrics(&registry).context(taken)?;
        let process = Self {
            http: HttpMetrics::new(service, &registry).context(taken)?,
            service,
            budgets: Budgets::new(&registry).context(taken)?,
            registry,
            readiness: Readiness::default(),
            stages: Stages::default(),
            admin_url: url(&admin_listener)?,
            failure: watch::Sender::new(None),
        };
        let serve = admin::serve(
            admin_listener,
            process.readiness.clone(),
            process.registry.clone(),
            process.budgets.clone(),
            process.stages.admin.clone(),
        );
        process.spawn_part("the admin port", &process.stages.admin, serve);
        if let Some(traces) = traces {
            let stage = &process.stages.traces;
            let export = traces.export(service, process.registry.clone(), stage.clone());
            process.spawn_part("the export of traces", stage, export);
        }
        Ok(process)
    }

    /// Returns the ready line of a process without other ports.
    pub(crate) fn ready(&self) -> Ready {
        Ready {
            admin_url: self.admin_url.clone(),
            ..Ready::default()
        }
    }

    /// Spawns a part of the process on a stage. If it fails, the process shuts down.
    pub(crate) fn spawn_part<F, E>(&self, name: &'static str, stage: &Shutdown, work: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + Send,
    {
        let failure = self.failure.clone();
        stage.spawn(async move {
            if let Err(error) = work.await {
                failure.send_replace(Some(format!("{name} failed: {error}")));
            }
        });
    }

    /// Serves device connections until draining begins.
    ///
    /// # Errors
    /// When the metrics of an edge are already registered.
    pub(crate) fn serve_devices(
        &self,
        listeners: Listeners,
        config: &edge::Config,
        bus: &Bus,
    ) -> Result<(), Failure> {
        let speech = Speech::from_config(&config.speech, &self.registry);
        let speech = speech.map_err(Failure::usage)?;
        let deps = edge::Deps {
            listeners,
            bus: bus.clone(),
            registry: self.registry.clone(),
            budgets: self.budgets.clone(),
            speech,
        };
        let started = edge::run(config, deps, &self.stages.serving);
        Ok(started.context("the edge cannot start")?)
    }

    /// Publishes the state of this node to the others, until it has left the bus.
    pub(crate) fn publish_status(&self, bus: &Bus) {
        let (bus, readiness, role) = (bus.clone(), self.readiness.clone(), self.service);
        let (stage, admin) = (self.stages.bus.clone(), self.stages.admin.clone());
        let unix_time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started_at_ms = u64::try_from(unix_time.unwrap_or_default().as_millis()).ok();
        self.stages.bus.spawn(async move {
            loop {
                let report = readiness.report(admin.is_draining());
                let checks = report.dependencies().map(|(name, ok, detail)| NodeCheck {
                    name: name.to_owned(),
                    ok,
                    detail: detail.map(|detail| detail.chars().take(MAX_DETAIL_CHARS).collect()),
                });
                let status = NodeStatus {
                    role: Some(role.to_owned()),
                    version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    started_at_ms,
                    draining: Some(report.draining),
                    ready: Some(report.ready),
                    checks: checks.collect(),
                    ..NodeStatus::default()
                };
                if let Err(error) = bus.publish_status(status).await {
                    tracing::debug!(%error, "the state of this node could not be published");
                }
                tokio::select! {
                    () = stage.stopping() => return,
                    () = tokio::time::sleep(STATUS_INTERVAL) => {}
                }
            }
        });
    }

    /// Serves HTTP requests until draining begins.
    pub(crate) fn serve_http(&self, listeners: HttpListeners, router: Router, limits: HttpLimits) {
        let router = http::instrument(
            router.fallback(problem::not_found_in(self.service)),
            &self.http,
        );
        let (metrics, budgets) = (self.http.clone(), self.budgets.clone());
        let shutdown = self.stages.serving.clone();
        self.spawn_part("the HTTP port", &self.stages.serving, async move {
            http::serve_with_metrics(listeners, router, limits, &metrics, &budgets, shutdown).await
        });
    }

    /// Adds metrics of failed authentication to an authenticator.
    ///
    /// # Errors
    /// When they are already registered.
    pub(crate) fn with_auth_metrics(
        &self,
        authenticator: Authenticator,
    ) -> Result<Authenticator, Failure> {
        let counted = authenticator.with_metrics(self.service, &self.registry);
        Ok(counted.context("cannot register the metrics of authentication")?)
    }

    /// Starts the process, prints the ready line, and serves until a signal or the failure of a
    /// part.
    ///
    /// After the first signal the process is unready and finishes its requests within the drain
    /// timeout. A second signal aborts them.
    ///
    /// # Errors
    /// When the start or a part failed. All stages have ended by then.
    pub(crate) async fn run(
        self,
        drain: DrainTimes,
        start: impl AsyncFnOnce(&Self) -> Result<Ready, Failure>,
    ) -> Result<ExitCode, Failure> {
        let serving = self.stages.serving.clone();
        let (unready, registry) = (self.stages.admin.clone(), self.registry.clone());
        let leave = async move {
            unready.drain();
            if std::io::stderr().is_terminal() {
                exit::print_stderr(&stopping(&registry, drain.timeout));
            }
            tokio::time::sleep(drain.leave_delay).await;
        };
        let watch = async move { signals::watch(&serving, leave, drain.timeout).await };
        self.spawn_part("signal handling", &self.stages.admin, watch);
        let served = tokio::select! {
            served = self.serve(Box::pin(start(&self))) => served,
            () = self.stages.serving.draining() => Ok(()),
        };
        self.stages.end(drain.timeout).await;
        served.map(|()| {
            info!("shutdown complete");
            ExitCode::SUCCESS
        })
    }

    /// Returns only on failure; a signal drops the future.
    async fn serve<F>(&self, start: F) -> Result<(), Failure>
    where
        F: Future<Output = Result<Ready, Failure>>,
    {
        let mut failure = self.failure.subscribe();
        let line = tokio::select! {
            line = start => line?,
            failure = wait_for_failure(&mut failure) => return Err(failure),
        };
        match &line.summary {
            Some(summary) => exit::print(summary)?,
            None => ready(&line).context("cannot write the ready line to stdout")?,
        }
        Err(wait_for_failure(&mut failure).await)
    }
}

impl Stages {
    /// Shuts the stages down in order. Only serving has requests to finish; a second signal aborts
    /// them.
    async fn end(&self, drain_timeout: Duration) {
        self.admin.drain();
        end_stage("serving", &self.serving, drain_timeout).await;
        end_stage("background", &self.background, SETTLE_TIMEOUT).await;
        end_stage("bus", &self.bus, Duration::ZERO).await;
        end_stage("database", &self.database, Duration::ZERO).await;
        end_stage("traces", &self.traces, SETTLE_TIMEOUT).await;
        end_stage("admin", &self.admin, Duration::ZERO).await;
    }
}

/// What a user reads after the first signal.
fn stopping(registry: &Registry, timeout: Duration) -> String {
    let waits_for = match progress::in_progress(registry) {
        Some(work) => format!("waiting up to {} s for {work}", timeout.as_secs()),
        None => "nothing is in progress".to_owned(),
    };
    format!("switchboard: stopping; {waits_for}. Another Ctrl-C stops at once.")
}

async fn end_stage(name: &'static str, stage: &Shutdown, timeout: Duration) {
    stage.drain();
    let began = Instant::now();
    if !timeout.is_zero() && !stage.finished(timeout).await {
        warn!(
            stage = name,
            tasks = stage.tasks(),
            "drain timeout elapsed; stopping the stage"
        );
    }
    stage.stop();
    if !stage.finished(STOP_TIMEOUT).await {
        error!(
            stage = name,
            tasks = stage.tasks(),
            "the stage did not stop; abandoning its tasks"
        );
    }
    debug!(stage = name, took = ?began.elapsed(), "stage ended");
}

async fn wait_for_failure(failure: &mut watch::Receiver<Option<String>>) -> Failure {
    match failure.wait_for(Option::is_some).await {
        Ok(text) => Failure::general(text.as_deref().unwrap_or_default()),
        // The sender is owned by this process, so this cannot happen.
        Err(_) => Failure::general("the failure channel closed"),
    }
}

/// Binds a listener. An error names the setting of the address.
///
/// # Errors
/// When the address is malformed, in use or not permitted.
pub(crate) fn listen(flag: &str, address: &str) -> Result<TcpListener, Failure> {
    http::listen(address).map_err(|error| {
        let text = format!("{error} (the address is set with {flag})");
        if error.kind() == std::io::ErrorKind::InvalidInput {
            Failure::usage(text)
        } else {
            Failure::general(text)
        }
    })
}

/// Returns the address at which a listener is reachable from this machine.
///
/// # Errors
/// When the system does not know the listener's address.
pub(crate) fn reachable(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    let mut address = listener.local_addr().context("a listener has no address")?;
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr = match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    Ok(address)
}

/// Returns the URL of a listener on this machine.
///
/// # Errors
/// As [`reachable`].
pub(crate) fn url(listener: &TcpListener) -> Result<String, Failure> {
    Ok(format!("http://{}", reachable(listener)?))
}

/// Returns the address of the TLS port, if there is one.
///
/// # Errors
/// As [`reachable`].
pub(crate) fn tls_addr(listeners: &Listeners) -> Result<Option<String>, Failure> {
    let tls = listeners.tls.as_ref();
    tls.map(|(listener, _)| Ok(reachable(listener)?.to_string()))
        .transpose()
}

/// Returns the URL of the TLS port for HTTP, if there is one.
///
/// # Errors
/// As [`reachable`].
pub(crate) fn https_url(listeners: &HttpListeners) -> Result<Option<String>, Failure> {
    let tls = listeners.tls.as_ref();
    tls.map(|(listener, _)| Ok(format!("https://{}", reachable(listener)?)))
        .transpose()
}

/// Registers the metric that identifies the running version.
fn register_build_info(service: &str, registry: &Registry) -> Result<(), prometheus::Error> {
    let opts = Opts::new(
        "switchboard_build_info",
        "Version and revision of this process; always 1",
    )
    .const_label("version", env!("CARGO_PKG_VERSION"))
    .const_label(
        "revision",
        option_env!("SWITCHBOARD_REVISION").unwrap_or("unknown"),
    )
    .const_label("service", service);
    let build = IntGauge::with_opts(opts)?;
    build.set(1);
    registry.register(Box::new(build))
}

/// Raises the soft limit of open files to the hard limit: every connection needs a file descriptor.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        warn!(%error, "cannot raise the limit of open files");
    }
}
