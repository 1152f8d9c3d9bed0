//! Noisy neighbours: one organisation, or peers without a credential, take all that they are
//! allowed to take, while another organisation works.
//!
//! Each test measures the other organisation's calls, registrations, turns, settings or webhooks
//! before and during an attack, and the memory of the process that is attacked. A piece of work
//! that fails fails the test. `cargo xtask neighbours` runs the attacks at full size against the
//! release build, and judges the measured values; here they are small, and times are not asserted.

mod attacks;
mod usage;
mod work;

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use switchboard_test_support::switchboard::Program;
use tempfile::TempDir;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Barrier, watch},
    task::{JoinSet, block_in_place},
};

use self::{
    usage::{PeakUsage, memory_kib},
    work::{Kind, Phases},
};
use crate::{
    cluster::TestCluster, memory_limits::chart_limit_bytes, system::start_chat, webhooks::LOOPBACK,
};

/// File to which the measured values are appended, a JSON object per line. It also selects the
/// full size.
const REPORT: &str = "SWITCHBOARD_NEIGHBOURS_REPORT";
/// Time after an attack until memory is measured again.
const RECOVERY_TIME: Duration = Duration::from_secs(60);
const RECOVERY_POLL: Duration = Duration::from_millis(100);

/// The process that is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Edge,
    Gateway,
    Control,
    Chat,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Gateway => "gateway",
            Self::Control => "control",
            Self::Chat => "chat",
        }
    }

    /// What passes through the process.
    fn work(self) -> &'static [Kind] {
        match self {
            Self::Edge => &[Kind::Calls, Kind::Registrations, Kind::Turns],
            Self::Gateway => &[Kind::Calls],
            Self::Control => &[Kind::Settings, Kind::Webhooks],
            Self::Chat => &[Kind::Turns],
        }
    }
}

/// What an attack takes of a budget of the process.
#[derive(Debug, Clone, Copy)]
enum Takes {
    /// The share of one owner. A fifth of the budget is left to others.
    Share(&'static str),
    /// All of it. Others take turns with the attack, or replace what it holds.
    All(&'static str),
    /// One slot of it: each of the others is for another resource.
    Slot(&'static str),
    /// The share of one organisation of a budget of the bus, which names no owners. The edge was
    /// refused more.
    BusShare(&'static str),
    /// All that a rate allows. The edge counts in this series what is beyond it.
    Rate(&'static str),
}

/// A system of which one process is attacked.
struct Target {
    cluster: TestCluster,
    chat: Option<Program>,
    service: Service,
    /// Locked at full size: one attack at a time is measured, while earlier ones recover.
    measuring: Option<File>,
    _objects: TempDir,
}

impl Target {
    async fn start(service: Service, settings: &[(&'static str, &str)]) -> Self {
        let measuring = report_path().map(open_report);
        if let Some(file) = &measuring {
            file.lock().unwrap();
        }
        let objects = tempfile::tempdir().unwrap();
        let url = format!("file://{}", objects.path().display());
        let own = [LOOPBACK, ("SWITCHBOARD_OBJECTS", &url)];
        let settings = [settings, &own].concat();
        let cluster = TestCluster::start_with(1, &settings).await;
        let answers = service.work().iter().any(|kind| kind.needs_chat());
        let settings = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let settings: Vec<_> = settings.collect();
        Self {
            chat: answers.then(|| start_chat(&cluster, &settings)),
            cluster,
            service,
            measuring,
            _objects: objects,
        }
    }

    fn process(&self) -> &Program {
        match self.service {
            Service::Edge => &self.cluster.edges[0],
            Service::Gateway => &self.cluster.gateway,
            Service::Control => &self.cluster.control,
            Service::Chat => self.chat.as_ref().unwrap(),
        }
    }

    /// Measures the other organisation before and during an attack. The attack returns what it
    /// holds, or what goes on; it is dropped when it has been measured. The attack must take what
    /// it may have of a budget.
    async fn measure<T>(&self, attack_name: &str, takes: Takes, attack: impl Future<Output = T>) {
        let other = self.cluster.another_org("Bystander").await;
        let before_done = Arc::new(Barrier::new(self.service.work().len() + 1));
        let (attacked, is_attacked) = watch::channel(false);
        let phases = Phases {
            before_done: Arc::clone(&before_done),
            is_attacked,
        };
        let mut workers = JoinSet::new();
        let bystander = Bystander::new();
        for kind in self.service.work() {
            let phases = phases.clone();
            bystander.run(kind.start(&mut workers, &self.cluster, &other, phases));
        }
        if self.measuring.is_some() {
            attack_at_idle_priority();
        }
        tokio::select! {
            _ = before_done.wait() => {}
            Some(failed) = workers.join_next() => drop(failed.unwrap()),
        }
        let process = self.process();
        let memory_before_kib = memory_kib(process.pid());
        let usage = PeakUsage::start(self, takes);
        let held = attack.await;
        usage.is_taken().await;
        attacked.send(true).unwrap();
        let mut times = workers.join_all().await;
        if let Takes::Share(_) = takes {
            usage.assert_room_for_others();
        }
        let memory_peak_kib = usage.peak().memory_kib;
        drop((held, usage));
        let Some(mut report) = self.measuring.as_ref() else {
            return;
        };
        report.unlock().unwrap();
        let recovered = Instant::now() + RECOVERY_TIME;
        while Instant::now() < recovered {
            tokio::time::sleep(RECOVERY_POLL).await;
        }
        times.sort_by_key(|times| times.kind.name());
        for mut times in times {
            let row = json!({
                "attack": attack_name,
                "process": self.service.name(),
                "work": times.kind.name(),
                "count": times.during.len(),
                "p99_before_ms": p99_ms(&mut times.before),
                "p99_during_ms": p99_ms(&mut times.during),
                "memory_before_kib": memory_before_kib,
                "memory_peak_kib": memory_peak_kib,
                "memory_after_kib": memory_kib(process.pid()),
                "memory_limit_kib": chart_limit_bytes(self.service.name()) / 1024,
            });
            // In one write: other attacks append to the same file.
            report.write_all(format!("{row}\n").as_bytes()).unwrap();
        }
    }
}

/// Threads of their own for the other organisation, whose times are measured.
struct Bystander(Option<Runtime>);

impl Bystander {
    const THREAD_NAME: &str = "bystander";

    fn new() -> Self {
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(1).thread_name(Self::THREAD_NAME);
        Self(Some(threads.enable_all().build().unwrap()))
    }

    /// Runs a future on these threads, with the sockets and tasks that it creates.
    fn run(&self, future: impl Future<Output = ()>) {
        let handle = self.0.as_ref().unwrap().handle();
        block_in_place(|| handle.block_on(future));
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // A runtime must not be waited for in another one.
        self.0.take().unwrap().shutdown_background();
    }
}

/// Attackers have machines of their own. Here they use only the processor time that the system and
/// the other organisation leave.
fn attack_at_idle_priority() {
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let thread = thread.unwrap();
        let name = fs::read_to_string(thread.path().join("comm")).unwrap();
        if name.trim_end() != Bystander::THREAD_NAME {
            let mut idle = Command::new("chrt");
            let idle = idle.args(["--idle", "--pid", "0"]).arg(thread.file_name());
            assert!(idle.status().unwrap().success(), "chrt is in util-linux");
        }
    }
}

fn p99_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let index = (times.len() * 99).div_ceil(100).saturating_sub(1);
    times[index].as_secs_f64() * 1e3
}

/// The file of the measured values; none in a run of the test suite.
fn report_path() -> Option<PathBuf> {
    env::var_os(REPORT).map(PathBuf::from)
}

fn open_report(path: PathBuf) -> File {
    let mut file = File::options();
    file.append(true).create(true).open(path).unwrap()
}

/// The number for a run of the test suite, or the one for a run at full size.
fn sized(small: usize, full: usize) -> usize {
    if report_path().is_some() { full } else { small }
}
