//! Clean-up after a killed run: stops its Postgres and removes its files.
//!
//! Invariant: signals go only to a Postgres that runs on this cluster.

use std::{fs, io, path::Path, time::Duration};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::Instant;
use tracing::info;

use super::{PostgresError, paths, status};

/// Timeout after each signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Makes sure that no Postgres runs on this cluster. The caller holds the lock of the data folder.
///
/// # Errors
/// When it does not stop, or its files cannot be removed.
pub(super) async fn stop(cluster: &Path) -> Result<(), PostgresError> {
    let Some(found) = status::read(cluster) else {
        return Ok(());
    };
    let pid = Pid::from_raw(found.pid);
    if is_postgres_on(pid, cluster) {
        info!(pid = found.pid, "stopping the PostgreSQL of an earlier run");
        // First a fast shutdown, which closes all sessions; then an immediate one, which requires
        // recovery.
        let ended = signal_and_wait(pid, cluster, Signal::SIGINT).await
            || signal_and_wait(pid, cluster, Signal::SIGQUIT).await;
        if !ended {
            return Err(PostgresError::DoesNotStop(found.pid));
        }
    }
    paths::remove_socket_folder(&found.socket_folder).map_err(PostgresError::file(
        "cannot remove",
        Path::new(&found.socket_folder),
    ))?;
    remove_stale_status(cluster)
}

/// Removes a status file whose process id belongs to another process, because Postgres would treat
/// that as a running server. A file with an unused process id stays: Postgres finds in it the
/// shared memory of sessions that are still ending.
fn remove_stale_status(cluster: &Path) -> Result<(), PostgresError> {
    let taken = status::read(cluster).is_some_and(|left| is_alive(Pid::from_raw(left.pid)));
    if !taken {
        return Ok(());
    }
    let file = cluster.join(status::FILE);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PostgresError::file("cannot remove", &file)(error))
        }
        _ => Ok(()),
    }
}

async fn signal_and_wait(pid: Pid, cluster: &Path, signal: Signal) -> bool {
    if kill(pid, signal) == Err(Errno::ESRCH) {
        return true;
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while Instant::now() < deadline {
        if !is_postgres_on(pid, cluster) {
            return true;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    false
}

/// Returns whether a Postgres runs on this cluster.
pub(super) fn is_running(cluster: &Path) -> bool {
    let found = status::read(cluster);
    found.is_some_and(|found| is_postgres_on(Pid::from_raw(found.pid), cluster))
}

/// Returns whether the process is a running Postgres on this cluster.
fn is_postgres_on(pid: Pid, cluster: &Path) -> bool {
    if !is_alive(pid) {
        return false;
    }
    if cfg!(target_os = "linux") {
        // The working folder of a postmaster is its cluster.
        let process = Path::new("/proc").join(pid.to_string());
        let there = fs::read_link(process.join("cwd"));
        let program = fs::read_to_string(process.join("comm"));
        let same = there.is_ok_and(|cwd| fs::canonicalize(cluster).is_ok_and(|own| own == cwd));
        same && program.is_ok_and(|name| name.trim() == "postgres")
    } else {
        let listed = std::process::Command::new("ps")
            .args(["-o", "command=", "-p", &pid.to_string()])
            .output();
        listed.is_ok_and(|output| {
            let command = String::from_utf8_lossy(&output.stdout);
            command.contains("postgres") && command.contains(&*cluster.to_string_lossy())
        })
    }
}

fn is_alive(pid: Pid) -> bool {
    kill(pid, None) != Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stale_status_file_is_removed() {
        let cluster = tempfile::tempdir().unwrap();
        let file = cluster.path().join(status::FILE);
        // This process: alive, but not a Postgres.
        fs::write(
            &file,
            format!("{}\n/data\n17\n5432\n/sock\n", std::process::id()),
        )
        .unwrap();
        stop(cluster.path()).await.unwrap();
        assert!(!file.exists());
        stop(cluster.path()).await.unwrap();
    }
}
