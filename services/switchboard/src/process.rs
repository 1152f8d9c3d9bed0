//! The life of a process that serves: start, one ready line, a signal, an end in the right order.
//! Never: knowledge of what is served beyond how to start and end it.

use std::{future::Future, net::SocketAddr, process::ExitCode, time::Duration};

use anyhow::Context as _;
use axum::Router;
use prometheus::{IntGauge, Opts, Registry};
use switchboard_bus::Bus;
use switchboard_edge::{self as edge, Listeners};
use switchboard_identity::Authenticator;
use switchboard_runtime::{
    admin::{self, Readiness},
    http::{self, HttpLimits, HttpMetrics},
    metrics::of_process,
    problem, ready,
    shutdown::Shutdown,
    signals,
    trace::Traces,
};
use tokio::{net::TcpListener, sync::watch};
use tracing::{error, info, warn};

use crate::{arguments::Drain, cli::Cli, exit::Failure};

/// How long a part may take to obey once it is told to stop at once.
const FORCED_END: Duration = Duration::from_secs(10);
/// How long what follows from serving may take to catch up.
const SETTLE: Duration = Duration::from_secs(5);

/// The parts of a process in the order in which they end; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stages {
    /// What takes devices and requests.
    pub(crate) serving: Shutdown,
    /// What follows from them and must not miss the last of it.
    pub(crate) background: Shutdown,
    /// The way to other nodes.
    pub(crate) bus: Shutdown,
    /// The private database and whatever watches a database.
    pub(crate) database: Shutdown,
    /// What is still to be told of all that.
    traces: Shutdown,
    /// Health and metrics, which outlive everything they report on.
    admin: Shutdown,
}

/// What every part of a serving process is given.
pub(crate) struct Process {
    pub(crate) registry: Registry,
    pub(crate) readiness: Readiness,
    pub(crate) stages: Stages,
    http: HttpMetrics,
    service: &'static str,
    admin_url: String,
    broken: watch::Sender<Option<String>>,
}

/// What a process is called by those who watch it, and what it has to send them.
#[derive(Debug)]
pub(crate) struct Telemetry {
    service: &'static str,
    traces: Option<Traces>,
}

impl Telemetry {
    /// Starts logs, and traces if the subcommand serves and they are to go somewhere.
    ///
    /// # Errors
    /// When the metrics of traces cannot be made.
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

/// The line that says where a process can be reached. Fields that do not apply are left out.
#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct Ready {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http_url: Option<String>,
    pub(crate) admin_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) org_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<String>,
}

impl Process {
    /// Opens the admin port; nothing is ready yet.
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
        let taken = "the metrics of the process cannot be registered";
        show_build(service, &registry).context(taken)?;
        of_process(&registry).context(taken)?;
        let process = Self {
            http: HttpMetrics::new(service, &registry).context(taken)?,
            service,
            registry,
            readiness: Readiness::default(),
            stages: Stages::default(),
            admin_url: url(&admin_listener)?,
            broken: watch::Sender::new(None),
        };
        let serve = admin::serve(
            admin_listener,
            process.readiness.clone(),
            process.registry.clone(),
            process.stages.admin.clone(),
        );
        process.part("the admin port", &process.stages.admin, serve);
        if let Some(traces) = traces {
            let stage = &process.stages.traces;
            let export = traces.export(service, process.registry.clone(), stage.clone());
            process.part("the export of traces", stage, export);
        }
        Ok(process)
    }

    /// The ready line of a process that has no port but the admin port.
    pub(crate) fn ready(&self) -> Ready {
        Ready {
            admin_url: self.admin_url.clone(),
            ..Ready::default()
        }
    }

    /// Runs a part on its stage. When it fails, the whole process ends in order.
    pub(crate) fn part<F, E>(&self, name: &'static str, stage: &Shutdown, work: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + Send,
    {
        let broken = self.broken.clone();
        stage.spawn(async move {
            if let Err(error) = work.await {
                broken.send_replace(Some(format!("{name} failed: {error}")));
            }
        });
    }

    /// Takes device connections until drained.
    pub(crate) fn serve_devices(&self, listeners: Listeners, config: edge::Config, bus: &Bus) {
        let (bus, registry, shutdown) = (
            bus.clone(),
            self.registry.clone(),
            self.stages.serving.clone(),
        );
        self.part("the device port", &self.stages.serving, async move {
            edge::run(listeners, config, bus, &registry, shutdown).await
        });
    }

    /// Takes HTTP requests until drained.
    pub(crate) fn serve_http(&self, listener: TcpListener, router: Router, limits: HttpLimits) {
        let router = http::observed(router.fallback(problem::not_found), &self.http);
        let (metrics, shutdown) = (self.http.clone(), self.stages.serving.clone());
        self.part("the HTTP port", &self.stages.serving, async move {
            http::serve_counted(listener, router, limits, Some(&metrics), shutdown).await
        });
    }

    /// The same authenticator, with a count of whom it does not let in.
    ///
    /// # Errors
    /// When there is such a count already.
    pub(crate) fn counted(&self, who: Authenticator) -> Result<Authenticator, Failure> {
        let counted = who.counted(self.service, &self.registry);
        Ok(counted.context("the metrics of credentials cannot be registered")?)
    }

    /// Starts, says so, serves until a signal or a broken part, and ends in order. After a signal
    /// it is unready, then what is under way has its time to finish; a second signal ends it at once.
    ///
    /// # Errors
    /// When the start or a part failed; everything has ended by then.
    pub(crate) async fn run(
        self,
        drain: Drain,
        start: impl AsyncFnOnce(&Self) -> Result<Ready, Failure>,
    ) -> Result<ExitCode, Failure> {
        let serving = self.stages.serving.clone();
        let unready = self.stages.admin.clone();
        let leave = async move {
            unready.drain();
            tokio::time::sleep(drain.leave).await;
        };
        let watch = async move { signals::watch(&serving, leave, drain.within).await };
        self.part("signal handling", &self.stages.admin, watch);
        let served = tokio::select! {
            served = self.serve(Box::pin(start(&self))) => served,
            () = self.stages.serving.draining() => Ok(()),
        };
        self.stages.end(drain.within).await;
        served.map(|()| {
            info!("ended as asked");
            ExitCode::SUCCESS
        })
    }

    /// Ends only by a failure; dropped when a signal comes first.
    async fn serve<F>(&self, start: F) -> Result<(), Failure>
    where
        F: Future<Output = Result<Ready, Failure>>,
    {
        let mut broken = self.broken.subscribe();
        let line = tokio::select! {
            line = start => line?,
            failure = first_failure(&mut broken) => return Err(failure),
        };
        ready(&line).context("the ready line cannot be written to stdout")?;
        Err(first_failure(&mut broken).await)
    }
}

impl Stages {
    /// Ends stage after stage. Only the first has work under way that deserves patience, and the
    /// signal watch cuts that short; the others follow from it.
    async fn end(&self, drain_within: Duration) {
        self.admin.drain();
        end_stage("serving", &self.serving, drain_within).await;
        end_stage("background", &self.background, SETTLE).await;
        end_stage("bus", &self.bus, Duration::ZERO).await;
        end_stage("database", &self.database, Duration::ZERO).await;
        end_stage("traces", &self.traces, SETTLE).await;
        end_stage("admin", &self.admin, Duration::ZERO).await;
    }
}

async fn end_stage(name: &'static str, stage: &Shutdown, within: Duration) {
    stage.drain();
    if !within.is_zero() && !stage.finished(within).await {
        warn!(
            stage = name,
            tasks = stage.tasks(),
            "not drained in time, stopping"
        );
    }
    stage.stop();
    if !stage.finished(FORCED_END).await {
        error!(
            stage = name,
            tasks = stage.tasks(),
            "did not stop, left behind"
        );
    }
}

async fn first_failure(broken: &mut watch::Receiver<Option<String>>) -> Failure {
    match broken.wait_for(Option::is_some).await {
        Ok(text) => Failure::general(text.as_deref().unwrap_or_default()),
        // The sender lives in the process that waits here.
        Err(_) => Failure::general("the process lost track of its parts"),
    }
}

/// Binds a listener, naming the setting that chose its address when that is not possible.
///
/// # Errors
/// When the address is taken, not ours or no address.
pub(crate) fn listen(flag: &'static str, address: &str) -> Result<TcpListener, Failure> {
    http::listen(address).map_err(|error| {
        let text = format!("{error} (the address is set with {flag})");
        if error.kind() == std::io::ErrorKind::InvalidInput {
            Failure::usage(text)
        } else {
            Failure::general(text)
        }
    })
}

/// Where a listener can be reached from this machine.
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

/// The URL under which a listener is reached from this machine.
///
/// # Errors
/// As [`reachable`].
pub(crate) fn url(listener: &TcpListener) -> Result<String, Failure> {
    Ok(format!("http://{}", reachable(listener)?))
}

/// Where devices reach the TLS port, if there is one.
///
/// # Errors
/// As [`reachable`].
pub(crate) fn tls_addr(listeners: &Listeners) -> Result<Option<String>, Failure> {
    let tls = listeners.tls.as_ref();
    tls.map(|(listener, _)| Ok(reachable(listener)?.to_string()))
        .transpose()
}

/// Which program this is, for whoever compares nodes.
fn show_build(service: &str, registry: &Registry) -> Result<(), prometheus::Error> {
    let opts = Opts::new("switchboard_build_info", "Which program this is; always 1")
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

/// Every connection is a file descriptor, so the soft limit is raised to what is allowed.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        warn!(%error, "the limit of open files stays as it is");
    }
}
