//! The Postgres of an earlier run that was killed: found, ended, its traces removed.
//! Never: a signal to a process that is not a Postgres on this very cluster.

use std::{fs, io, path::Path, time::Duration};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::Instant;
use tracing::info;

use super::{PostgresError, place, status};

/// How long each way of asking gets.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// Makes sure that no Postgres runs on this cluster. The caller holds the data folder's lock.
///
/// # Errors
/// When one runs and does not end, or its files cannot be removed.
pub(super) async fn end(cluster: &Path) -> Result<(), PostgresError> {
    let Some(found) = status::read(cluster) else {
        return Ok(());
    };
    let pid = Pid::from_raw(found.pid);
    if is_postgres_on(pid, cluster) {
        info!(
            pid = found.pid,
            "ending the PostgreSQL that an earlier run left behind"
        );
        // Fast first: sessions end, everything is written. Then at once, which costs a recovery.
        let ended =
            ask(pid, cluster, Signal::SIGINT).await || ask(pid, cluster, Signal::SIGQUIT).await;
        if !ended {
            return Err(PostgresError::Immortal(found.pid));
        }
    }
    place::forget_socket(&found.socket_folder).map_err(PostgresError::file(
        "cannot remove",
        Path::new(&found.socket_folder),
    ))?;
    unblock(cluster)
}

/// Removes a stale status file whose number now belongs to somebody else: Postgres would take that
/// for a running server. A number that is nobody's stays, because the file also tells Postgres
/// which shared memory to look at for sessions that are still ending.
fn unblock(cluster: &Path) -> Result<(), PostgresError> {
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

async fn ask(pid: Pid, cluster: &Path, signal: Signal) -> bool {
    if kill(pid, signal) == Err(Errno::ESRCH) {
        return true;
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if !is_postgres_on(pid, cluster) {
            return true;
        }
        tokio::time::sleep(POLL).await;
    }
    false
}

/// Whether this process is alive, a Postgres, and works in this folder.
fn is_postgres_on(pid: Pid, cluster: &Path) -> bool {
    if !is_alive(pid) {
        return false;
    }
    if cfg!(target_os = "linux") {
        // A postmaster's working folder is its cluster.
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
    async fn a_stale_file_is_removed_and_its_number_left_alone() {
        let cluster = tempfile::tempdir().unwrap();
        let file = cluster.path().join(status::FILE);
        // Our own number: alive, and no Postgres.
        fs::write(
            &file,
            format!("{}\n/data\n17\n5432\n/sock\n", std::process::id()),
        )
        .unwrap();
        end(cluster.path()).await.unwrap();
        assert!(!file.exists());
        end(cluster.path()).await.unwrap();
    }
}
