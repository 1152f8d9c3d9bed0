//! `cargo xtask deploy`: checks the deployment files with the tools that read them. It needs no
//! container engine and starts no server.

mod alerts;
mod compose;
mod dashboards;

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

use crate::clients;

/// The requirements file `tests/clients/deploy.txt`.
const REQUIREMENTS: &str = "deploy";
/// The shell scripts of the repository.
const SCRIPTS: [&str; 8] = [
    ".ci/run",
    "check",
    "deploy/demo/make-organisation",
    "deploy/healthcheck",
    "deploy/make-env",
    "deploy/packages.sh",
    "deploy/speech/serve",
    "up",
];

/// Runs every check; the error names the first failure, the tool's output is above it.
///
/// # Errors
/// A file has a fault, or a tool is missing.
pub(crate) fn run() -> anyhow::Result<()> {
    let python = clients::install_requirements(REQUIREMENTS)?;
    let tool = |name: &str| python.with_file_name(name);
    alerts::check()?;
    dashboards::check()?;
    compose::check(&tool("check-jsonschema"), &clients::install_node()?)?;
    let balancer = "deploy/haproxy/haproxy.cfg";
    succeed("haproxy", ["-c", "-q", "-f", balancer])?;
    succeed(tool("hadolint"), ["deploy/Dockerfile"])?;
    succeed(
        tool("shellcheck"),
        [&["--external-sources"], SCRIPTS.as_slice()].concat(),
    )?;
    println!("deploy: every file holds");
    Ok(())
}

/// Runs a tool in the root folder.
fn succeed<P: AsRef<OsStr>, A: AsRef<OsStr>>(
    program: P,
    arguments: impl IntoIterator<Item = A>,
) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    let name = name(&command);
    let status = command.current_dir(root()).stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("{name} could not be started"))?;
    ensure!(status.success(), "{name} ({status}): see above");
    Ok(())
}

/// The command line without the installation folder of the program.
fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let words = [program].into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// The files of a folder with this extension, relative to the root.
fn files(folder: &str, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).with_context(|| folder.to_owned())? {
        let name = entry?.file_name();
        let path = Path::new(folder).join(name);
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("{folder} has no .{extension} files");
    }
    Ok(found)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.display().to_string())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
