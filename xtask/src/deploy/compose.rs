//! Checks the compose file: its schema, its lint, and compose itself, with and without the environment
//! that `make-env` writes.
//!
//! Invariant: compose's output is not printed, because it contains secrets.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, ensure};

use super::{root, succeed};

const FILE: &str = "docker-compose.yml";
const LINT: &str = "deploy/dclint.json";
const MAKE_ENV: &str = "deploy/make-env";
const COLLECTOR: &str = "deploy/collector/collector.yml";
/// The port for spans over HTTP.
const ENDPOINT: &str = "SWITCHBOARD_OTLP_ENDPOINT=http://collector:";

pub(super) fn check(schema: &Path, node: &Path) -> anyhow::Result<()> {
    let vendored = ["--builtin-schema", "vendor.compose-spec", FILE];
    succeed(schema, vendored)?;
    let dclint = node.join("node_modules/dclint/bin/dclint.cjs");
    let dclint = dclint.display().to_string();
    succeed(
        node.join("node_modules/node/bin/node"),
        [&dclint, "--config", LINT, "--max-warnings", "0", FILE],
    )?;
    environment()
}

/// Without an environment compose must fail and name `make-env`; with one it must accept the file.
fn environment() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (none, made) = (folder.path().join("none"), folder.path().join("made"));
    fs::write(&none, "")?;
    let refused = compose(&none)?;
    ensure!(
        !refused.status.success() && text_of(&refused).contains(MAKE_ENV),
        "compose takes {FILE} without an environment, or does not name {MAKE_ENV}: {}",
        text_of(&refused)
    );
    let first = make_env(&made)?;
    ensure!(first.status.success(), "{MAKE_ENV}: {}", text_of(&first));
    let written = fs::read_to_string(&made)?;
    let collector = fs::read_to_string(root().join(COLLECTOR))?;
    ensure!(
        traces_arrive(&written, &collector),
        "{MAKE_ENV} sends traces where {COLLECTOR} takes no HTTP"
    );
    let read = compose(&made)?;
    ensure!(read.status.success(), "{FILE}: {}", text_of(&read));
    let read = String::from_utf8_lossy(&read.stdout);
    let twice = limited_twice(&read);
    ensure!(
        twice.is_empty(),
        "{FILE}: {} have pids_limit and deploy.resources.limits, which Docker Compose refuses side by side: write cpus and \
         mem_limit beside pids_limit, and no deploy",
        twice.join(", ")
    );
    let second = make_env(&made)?;
    ensure!(
        !second.status.success() && fs::read_to_string(&made)? == written,
        "{MAKE_ENV} changes an environment that is there"
    );
    let set = |name: &str| text_of(&second).contains(name);
    ensure!(
        ["COMPOSE_PROFILES=", ENDPOINT].into_iter().all(set),
        "{MAKE_ENV} keeps an existing environment without naming the settings to add"
    );
    Ok(())
}

/// Services that set limits in both places that compose supports, after expansion of anchors. Docker
/// Compose 2 compares the two process limits, where a missing one is 0, and refuses the pair.
fn limited_twice(read: &str) -> Vec<&str> {
    let lines = read.lines().skip_while(|line| *line != "services:");
    // A multi-line text may contain empty lines.
    let is_inside = |line: &&str| line.is_empty() || line.starts_with(' ');
    let inside = lines.skip(1).take_while(is_inside);
    let (mut counted, mut limited) = (BTreeSet::new(), BTreeSet::new());
    let mut service = "";
    for line in inside {
        let words = line.trim_start();
        match (line.len() - words.len(), words.split(':').next()) {
            (2, Some(name)) => service = name,
            (4, Some("pids_limit")) => _ = counted.insert(service),
            // At this depth the only limits are those of deploy.resources.
            (8, Some("limits")) => _ = limited.insert(service),
            _ => {}
        }
    }
    counted.intersection(&limited).copied().collect()
}

/// Whether the processes use the port at which the collector receives OTLP over HTTP.
fn traces_arrive(environment: &str, collector: &str) -> bool {
    let port = environment
        .lines()
        .find_map(|line| line.strip_prefix(ENDPOINT));
    let mut receivers = collector.lines().map(str::trim);
    let taken = receivers
        .any(|line| line == "http:")
        .then(|| receivers.next())
        .flatten();
    port.is_some_and(|port| taken == Some(format!("endpoint: 0.0.0.0:{port}").as_str()))
}

fn make_env(file: &Path) -> anyhow::Result<Output> {
    let mut command = Command::new(root().join(MAKE_ENV));
    command
        .arg("--observability")
        .env("SWITCHBOARD_ENV_FILE", file);
    let output = command.stdin(Stdio::null()).output();
    output.with_context(|| format!("{MAKE_ENV} could not be started"))
}

/// `config` with the settings of the file only. The output contains secrets.
fn compose(environment: &Path) -> anyhow::Result<Output> {
    let mut command = Command::new("docker-compose");
    if !works("docker-compose") && works("docker") {
        command = Command::new("docker");
        command.arg("compose");
    }
    let kept = ["PATH", "HOME"].map(|name| (name, env::var_os(name).unwrap_or_default()));
    command
        .arg("--env-file")
        .arg(environment)
        .args(["--file", FILE, "config"])
        .current_dir(root())
        .env_clear()
        .envs(kept)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().context("compose could not be started")?;
    Ok(child.wait_with_output()?)
}

fn works(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version");
    command.stdin(Stdio::null()).output().is_ok()
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_arrive_at_the_port_for_http() {
        let collector = "
      grpc:
        endpoint: 0.0.0.0:4317
      http:
        endpoint: 0.0.0.0:4318
";
        let environment = |port| format!("A=b\n{ENDPOINT}{port}\n");
        assert!(traces_arrive(&environment(4318), collector));
        assert!(!traces_arrive(&environment(4317), collector));
        assert!(!traces_arrive("A=b\n", collector));
        assert!(!traces_arrive(&environment(4318), "receivers:\n"));
    }

    #[test]
    fn limits_at_two_places_are_found() {
        let read = |first: &str, second: &str| {
            format!(
                "networks:\n  inside:\n    pids_limit: 1\nservices:\n  a:\n{first}\n    command: 'a\n\n      b'\n  b:\n{second}\nversion: '3.9'\n"
            )
        };
        let limits = "    deploy:\n      resources:\n        limits:\n          cpus: '1'";
        let both = format!("{limits}\n    pids_limit: 64");
        let other = format!("    pids_limit: 64\n{limits}");
        let set = "    cpus: 1.0\n    mem_limit: 1G\n    pids_limit: 64";
        for (first, second, expected) in [
            (set, set, vec![]),
            (&both, set, vec!["a"]),
            (&other, &both, vec!["a", "b"]),
            (limits, set, vec![]),
            (
                "    deploy:\n      replicas: 2\n    pids_limit: 64",
                set,
                vec![],
            ),
        ] {
            assert_eq!(
                limited_twice(&read(first, second)),
                expected,
                "{first} {second}"
            );
        }
    }
}
