//! `cargo xtask console`: checks the console: its vendored libraries, its types against the API
//! document, its pure parts in Node, and what a person does with it, in a browser.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};

use crate::{clients, packages};

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    part: Option<Part>,
}

/// One part of the check; without one, all of them run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
enum Part {
    /// Write the libraries of tests/console/package.json to console/vendor
    Vendor,
    /// Check the libraries, the types and the pure parts
    Pure,
    /// Run the journeys in a browser, against a built `target/debug/switchboard`
    Journeys {
        /// Replace the pictures of docs/console.md
        #[arg(long)]
        pictures: bool,
    },
}

/// Runs the parts in order.
///
/// # Errors
/// The first part that fails; its messages are on stdout and stderr.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = clients::install_node()?;
    let node = programs.join(clients::NODE);
    let packages = clients::install_console()?;
    let script = |name: &str| {
        let mut command = Command::new(&node);
        command.arg(scripts().join(name));
        command
    };
    if options.part == Some(Part::Vendor) {
        return succeed(script("vendor.mjs").arg(&packages));
    }
    let journeys_only = matches!(options.part, Some(Part::Journeys { .. }));
    if !journeys_only {
        succeed(script("vendor.mjs").arg(&packages).arg("--check"))?;
        succeed(script("types.mjs").arg(&packages).arg(output("types")))?;
        let files = fs::read_dir(scripts())?.collect::<Result<Vec<_>, _>>()?;
        let tests = files.into_iter().map(|file| file.path());
        let tests = tests.filter(|path| path.to_string_lossy().ends_with(".test.mjs"));
        succeed(Command::new(&node).arg("--test").args(tests))?;
    }
    if options.part == Some(Part::Pure) {
        return Ok(());
    }
    let pictures = matches!(options.part, Some(Part::Journeys { pictures: true }));
    succeed(
        script("journeys.mjs")
            .arg(packages::debug_binary())
            .arg(&packages)
            .arg(output("pictures"))
            .arg(&programs)
            .args(pictures.then_some("--pictures")),
    )
}

/// The folder of the scripts.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/console")
}

/// A folder below the target folder, which is never committed.
fn output(name: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(target).join("console").join(name)
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{command:?} could not be started"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
