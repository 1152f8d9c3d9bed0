//! `cargo xtask packages`: builds the wheel and the npm packages of the binary in the dev profile,
//! installs each from its file into an empty folder, and starts `switchboard up` from it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::clients;

/// The pinned packages of `tests/clients/packages.txt`.
const REQUIREMENTS: &str = "packages";
/// How long a freshly installed `switchboard up` may take until its ready line: it creates a
/// database first.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Builds, installs and runs one package of each kind.
///
/// # Errors
/// A package that does not build, install, or start and stop a system in order.
pub(crate) fn run() -> anyhow::Result<()> {
    let python = clients::install_requirements(REQUIREMENTS)?;
    let work = tempfile::Builder::new().prefix("switchboard-").tempdir()?;
    let packed = work.path().join("packed");
    let installed = wheel(&python, &packed, work.path())?;
    starts(&installed).context("the program of the wheel")?;
    let installed = npm(&packed, work.path())?;
    starts(&installed).context("the program of the npm packages")?;
    println!("packages: a wheel and two npm packages install and run");
    Ok(())
}

/// Builds the wheel and installs it into an environment of its own; returns its program.
fn wheel(python: &Path, packed: &Path, work: &Path) -> anyhow::Result<PathBuf> {
    succeed(
        Command::new(python.with_file_name("maturin"))
            .args(["build", "--profile", "dev", "--compatibility", "linux"])
            .arg("--out")
            .arg(packed)
            .current_dir(root().join("deploy/pypi")),
    )?;
    let environment = work.join("wheel");
    succeed(Command::new(python).args(["-m", "venv"]).arg(&environment))?;
    succeed(
        Command::new(environment.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--no-index"])
            .arg(only(packed, ".whl")?),
    )?;
    Ok(environment.join("bin/switchboard"))
}

/// Packs the program that the wheel's build left in the target folder, installs both packages, and
/// returns the command that npm makes of them.
fn npm(packed: &Path, work: &Path) -> anyhow::Result<PathBuf> {
    let (platform, binary) = (platform()?, debug_binary());
    succeed(
        Command::new("node")
            .arg(root().join("deploy/npm/pack.mjs"))
            .args(["--platform", platform, "--binary"])
            .arg(binary)
            .arg("--out")
            .arg(packed),
    )?;
    let folder = work.join("npm");
    fs::create_dir(&folder)?;
    fs::write(folder.join("package.json"), "{}")?;
    let version = env!("CARGO_PKG_VERSION");
    let own = packed.join(format!("switchboard-{platform}-{version}.tgz"));
    let main = packed.join(format!("switchboard-{version}.tgz"));
    // The other platforms' packages are optional, and published nowhere yet.
    succeed(
        Command::new("npm")
            .args(["install", "--silent", "--offline", "--no-audit"])
            .args([own, main])
            .current_dir(&folder),
    )?;
    Ok(folder.join("node_modules/.bin/switchboard"))
}

/// Starts a system with the installed program, waits for its ready line, and ends it.
fn starts(program: &Path) -> anyhow::Result<()> {
    let data = tempfile::Builder::new().prefix("switchboard-").tempdir()?;
    let mut child = Command::new(program)
        .arg("up")
        .args(["--device-listen", "127.0.0.1:0"])
        .args(["--http-listen", "127.0.0.1:0"])
        .args(["--admin-listen", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(data.path().join("data"))
        .env_remove("DATABASE_URL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} does not start", program.display()))?;
    let ready = ready_line(&mut child);
    kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
    let status = child.wait()?;
    let ready: serde_json::Value = serde_json::from_str(&ready?)?;
    ensure!(ready["event"] == "ready", "the first line is {ready}");
    ensure!(status.success(), "SIGTERM ended it with {status}");
    Ok(())
}

fn ready_line(child: &mut Child) -> anyhow::Result<String> {
    let output = child.stdout.take().context("stdout is not a pipe")?;
    let (send, receive) = sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        // The receiver is gone when the deadline passed first.
        let _ = send.send(read.map(|_| line));
    });
    let line = receive
        .recv_timeout(READY_TIMEOUT)
        .context("no ready line before the deadline")??;
    Ok(line)
}

/// The platform as the npm packages name it.
fn platform() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("linux-x64"),
        "aarch64" => Ok("linux-arm64"),
        other => bail!("there is no npm package for {other}"),
    }
}

/// The one file in a folder with this extension.
fn only(folder: &Path, extension: &str) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(extension) {
            found.push(path);
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => bail!("one {extension} file is expected, found {found:?}"),
    }
}

/// Runs a command without input.
///
/// # Errors
/// The command cannot be started, or fails.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{command:?} could not be started"))?;
    ensure!(status.success(), "{command:?} failed ({status})");
    Ok(())
}

/// The program as the dev profile builds it.
pub(crate) fn debug_binary() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), PathBuf::from);
    target.join("debug/switchboard")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
