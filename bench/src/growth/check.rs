//! Holds the prediction of the capacity model against an installation of a size that fits here: its
//! CPU while devices are called and some of them come back, and its memory afterwards.

use std::{path::Path, thread, time::Duration};

use serde::Serialize;
use switchboard_capacity::{Load, Role, predict};
use tokio::time::sleep;

use super::installation::Installation;
use crate::{environment::BenchEnv, report::Report};

/// Devices, and how many of them come back within the window.
const DEVICES: u32 = 5_000;
const RETURNING: u32 = 1_000;
/// Calls in flight, and the pause before each: some 1,000 in a second.
const IN_FLIGHT: u32 = 32;
const PAUSE_MS: u32 = 30;
const WINDOW: Duration = Duration::from_secs(10);
/// When devices come back, after the window begins.
const RETURN_DELAY: Duration = Duration::from_secs(2);
const WARM_UP_WINDOW: Duration = Duration::from_secs(2);
const MIB: f64 = 1_048_576.0;
/// The most that CPU or memory of all processes may differ from the prediction.
pub(crate) const MAX_MODEL_DEVIATION_PERCENT: f64 = 25.0;

/// What was predicted and measured for one role, or for all.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    name: String,
    predicted_cores: f64,
    measured_cores: f64,
    predicted_mib: f64,
    measured_mib: f64,
}

/// The name of the sum over all roles.
const ALL: &str = "all processes";

impl Check {
    /// How many percent the predictions of CPU and of memory differ from what was measured, whichever
    /// is more. Absent for a single role.
    pub(crate) fn deviation(&self) -> Option<f64> {
        let percent = |predicted: f64, measured: f64| (predicted / measured - 1.0).abs() * 100.0;
        let cpu = percent(self.predicted_cores, self.measured_cores);
        let memory = percent(self.predicted_mib, self.measured_mib);
        (self.name == ALL).then(|| cpu.max(memory))
    }

    pub(crate) fn row(&self) -> [String; 8] {
        let empty = String::new;
        [
            format!("capacity of {DEVICES} devices, {}", self.name),
            "predicted ÷ measured".to_owned(),
            empty(),
            empty(),
            empty(),
            empty(),
            format!(
                "{:.3} ÷ {:.3} cores, {:.1} ÷ {:.1} MiB",
                self.predicted_cores, self.measured_cores, self.predicted_mib, self.measured_mib
            ),
            format!(
                "CPU {:.2}, memory {:.2}",
                self.predicted_cores / self.measured_cores,
                self.predicted_mib / self.measured_mib
            ),
        ]
    }
}

/// Measures one installation.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let coefficients = super::read(&root)?;
    let mut installation = Installation::start(bench).await?;
    let staying = DEVICES - RETURNING;
    installation.open(staying, RETURNING).await?;
    let mut caller = installation.caller(bench, staying, PAUSE_MS).await?;
    caller.run(IN_FLIGHT, WARM_UP_WINDOW).await?;
    let before = installation.used()?;
    let come_back = async {
        sleep(RETURN_DELAY).await;
        installation.come_back(staying, RETURNING).await
    };
    let (reply, back) = tokio::join!(caller.run(IN_FLIGHT, WINDOW), come_back);
    let reply = reply?;
    back?;
    installation.wait().await?;
    let after = installation.used()?;
    let seconds = reply.elapsed_us / 1e6;
    let devices = f64::from(DEVICES);
    let load = Load {
        devices,
        calls_per_device_second: reply.count as f64 / seconds / devices,
        reconnect_fraction: f64::from(RETURNING) / devices,
        reconnect_seconds: seconds,
        ..Load::default()
    };
    let cores = thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let mut sum = Check {
        name: ALL.to_owned(),
        predicted_cores: 0.0,
        measured_cores: 0.0,
        predicted_mib: 0.0,
        measured_mib: 0.0,
    };
    for (role, predicted_cores, bytes) in predict(&coefficients, &load, cores) {
        let measured = before
            .iter()
            .zip(&after)
            .find(|(used, _)| used.role == role);
        let Some((before, after)) = measured else {
            continue;
        };
        // The tables of PostgreSQL are on disk, and in its shared memory.
        let has_memory = role != Role::Postgres;
        let check = Check {
            name: role.plural().to_owned(),
            predicted_cores,
            measured_cores: (after.cpu_s - before.cpu_s) / seconds,
            predicted_mib: if has_memory { bytes / MIB } else { 0.0 },
            measured_mib: if has_memory { after.bytes / MIB } else { 0.0 },
        };
        sum.predicted_cores += check.predicted_cores;
        sum.measured_cores += check.measured_cores;
        sum.predicted_mib += check.predicted_mib;
        sum.measured_mib += check.measured_mib;
        report.capacity.push(check);
    }
    report.capacity.push(sum);
    Ok(())
}
