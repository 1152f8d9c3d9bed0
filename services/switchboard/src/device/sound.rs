//! Programs of this machine that record and play sound, through pipes.
//!
//! Invariant: a running program is stopped and reaped with its owner.

use std::{
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::Context as _;

use crate::exit::Failure;

/// Programs that write samples to stdout, best first.
const RECORDERS: [&str; 4] = [
    "pw-record --rate {rate} --channels 1 --format s16 --latency 60ms -",
    "parecord --raw --rate={rate} --channels=1 --format=s16le --latency-msec=60",
    "arecord -q -t raw -f S16_LE -c 1 -r {rate}",
    "rec -q --buffer 1920 -t raw -r {rate} -c 1 -b 16 -e signed-integer -L -",
];

/// Programs that play samples from stdin.
const PLAYERS: [&str; 4] = [
    "pw-play --rate {rate} --channels 1 --format s16 --latency 100ms -",
    "paplay --raw --rate={rate} --channels=1 --format=s16le --latency-msec=100",
    "aplay -q -t raw -f S16_LE -c 1 -r {rate} --buffer-time=200000",
    "play -q -t raw -r {rate} -c 1 -b 16 -e signed-integer -L -",
];

/// An installed program for 16-bit samples of one channel.
#[derive(Debug, Clone)]
pub(crate) struct SoundProgram {
    /// Its name, without the folder.
    pub(crate) name: &'static str,
    path: PathBuf,
    arguments: Vec<String>,
}

/// A program that runs. Dropping it stops it.
#[derive(Debug)]
pub(super) struct RunningProgram {
    name: &'static str,
    child: Child,
}

impl SoundProgram {
    /// Finds a program that records at this rate.
    ///
    /// # Errors
    /// When none is installed.
    pub(super) fn recorder(rate: u32) -> Result<Self, Failure> {
        Self::find(&RECORDERS, rate, "record")
    }

    /// Finds a program that plays at this rate.
    ///
    /// # Errors
    /// When none is installed.
    pub(super) fn player(rate: u32) -> Result<Self, Failure> {
        Self::find(&PLAYERS, rate, "play")
    }

    fn find(commands: &[&'static str], rate: u32, verb: &str) -> Result<Self, Failure> {
        let mut known = commands
            .iter()
            .filter_map(|command| command.split_once(' '));
        let names: Vec<_> = known.clone().map(|(name, _)| name).collect();
        let found =
            known.find_map(|(name, arguments)| Some((name, which::which(name).ok()?, arguments)));
        let Some((name, path, arguments)) = found else {
            return Err(Failure::unavailable(format!(
                "no program to {verb} sound is installed (looked for {} on PATH): install one, for \
                 example with `apt-get install alsa-utils` or `brew install sox`",
                names.join(", ")
            )));
        };
        let arguments = arguments.replace("{rate}", &rate.to_string());
        let mut program = Self {
            name,
            path,
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        };
        if name.starts_with("pw-") && program.knows_raw() {
            program.arguments.insert(0, "--raw".to_owned());
        }
        Ok(program)
    }

    /// PipeWire before 1.4 has raw samples in pipes and rejects the flag; later ones need it.
    fn knows_raw(&self) -> bool {
        let help = Command::new(&self.path).arg("--help").output();
        help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--raw"))
    }

    /// Starts to record.
    pub(super) fn record(&self) -> anyhow::Result<(RunningProgram, ChildStdout)> {
        let mut running = self.start(Stdio::null(), Stdio::piped())?;
        let stdout = running.child.stdout.take().context("no pipe")?;
        Ok((running, stdout))
    }

    /// Starts to play.
    pub(super) fn play(&self) -> anyhow::Result<(RunningProgram, ChildStdin)> {
        let mut running = self.start(Stdio::piped(), Stdio::null())?;
        let stdin = running.child.stdin.take().context("no pipe")?;
        Ok((running, stdin))
    }

    fn start(&self, stdin: Stdio, stdout: Stdio) -> anyhow::Result<RunningProgram> {
        let mut command = Command::new(&self.path);
        // In a group of its own, Ctrl-C does not reach it, and is not a failure of the program.
        let command = command.args(&self.arguments).process_group(0);
        let child = command.stdin(stdin).stdout(stdout).spawn();
        let name = self.name;
        let child = child.with_context(|| format!("cannot start {name}"))?;
        Ok(RunningProgram { name, child })
    }
}

impl RunningProgram {
    /// Whether it has not ended.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Why it has ended, if it has failed.
    pub(super) fn failure(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        (!status.success()).then(|| format!("{} ended with {status}", self.name))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Both fail only if it has ended and is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
