//! Initialisation of a cluster, and selection of the matching installation.
//!
//! Invariant: a folder under the final name is a complete cluster.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
    process::Stdio,
};

use tokio::process::Command;
use tracing::info;

use super::{Binaries, PostgresError, account::Account};

/// Returns the installation that matches the cluster, or the newest one if there is no cluster yet.
///
/// # Errors
/// [`PostgresError::OtherVersion`] when the cluster needs a version that is not installed.
pub(super) fn matching<'a>(
    found: &'a [Binaries],
    cluster: &Path,
) -> Result<&'a Binaries, PostgresError> {
    let Some(wanted) = major_version(cluster)? else {
        return found.first().ok_or(PostgresError::NotFound);
    };
    found
        .iter()
        .find(|binaries| binaries.major == wanted)
        .ok_or_else(|| {
            let majors: Vec<String> = found
                .iter()
                .map(|binaries| binaries.major.to_string())
                .collect();
            PostgresError::OtherVersion {
                cluster: cluster.to_owned(),
                wanted,
                found: majors.join(", "),
            }
        })
}

/// Initialises the cluster if there is none.
///
/// # Errors
/// When `initdb` or a file system operation fails.
pub(super) async fn ensure(
    binaries: &Binaries,
    cluster: &Path,
    account: Option<&Account>,
) -> Result<(), PostgresError> {
    if major_version(cluster)?.is_some() {
        return Ok(());
    }
    info!(folder = %cluster.display(), version = binaries.major, "initialising a PostgreSQL cluster");
    // Initialised under a temporary name and renamed when complete, so that a crash leaves no
    // partial cluster.
    let partial = cluster.with_extension("partial");
    make_empty(&partial, account)?;
    initialise(binaries, &partial, account).await?;
    fs::rename(&partial, cluster).map_err(PostgresError::file("cannot create", cluster))?;
    let parent = cluster.parent().unwrap_or(Path::new("/"));
    File::open(parent)
        .and_then(|folder| folder.sync_all())
        .map_err(PostgresError::file("cannot write", parent))
}

fn make_empty(folder: &Path, account: Option<&Account>) -> Result<(), PostgresError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(PostgresError::file("cannot remove", folder)(error));
        }
        _ => {}
    }
    DirBuilder::new()
        .mode(0o700)
        .create(folder)
        .map_err(PostgresError::file("cannot create the folder", folder))?;
    account.map_or(Ok(()), |account| account.own(folder))
}

async fn initialise(
    binaries: &Binaries,
    folder: &Path,
    account: Option<&Account>,
) -> Result<(), PostgresError> {
    let mut command = program(&binaries.initdb, account);
    command
        .arg("--pgdata")
        .arg(folder)
        // The socket is in a folder that only this user can enter; there is no other listener.
        .args([
            "--auth-local=trust",
            "--auth-host=reject",
            "--username=switchboard",
        ])
        .args(["--encoding=UTF8", "--locale=C"])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command
        .output()
        .await
        .map_err(PostgresError::file("cannot run", &binaries.initdb))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(PostgresError::Program {
        program: "initdb",
        status: output.status.to_string(),
        output: stderr,
    })
}

/// Creates a command that runs a Postgres program as its user, without PG* variables of the
/// environment.
pub(super) fn program(path: &Path, account: Option<&Account>) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    // Its user may not be able to enter the current folder.
    command.current_dir("/").env("LC_ALL", "C");
    if let Some(account) = account {
        account.run(&mut command);
    }
    command
}

fn major_version(cluster: &Path) -> Result<Option<u32>, PostgresError> {
    let file = cluster.join("PG_VERSION");
    match fs::read_to_string(&file) {
        Ok(text) => {
            let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let major = text.trim().parse().map_err(damaged);
            major
                .map(Some)
                .map_err(PostgresError::file("cannot parse", &file))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PostgresError::file("cannot read", &file)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_requires_its_version() {
        let binaries = |major| Binaries {
            postgres: "p".into(),
            initdb: "i".into(),
            major,
        };
        let found = [binaries(17), binaries(15)];
        let cluster = tempfile::tempdir().unwrap();
        let check = |version: &str, expect: &str| {
            fs::write(cluster.path().join("PG_VERSION"), version).unwrap();
            let got = matching(&found, cluster.path());
            let got = got.map_or_else(|error| error.to_string(), |b| b.major.to_string());
            assert!(got.contains(expect), "{version:?}: {got}");
        };
        assert_eq!(matching(&found, Path::new("/nowhere")).unwrap().major, 17);
        check("15\n", "15");
        check(
            "14\n",
            "was written by PostgreSQL 14, and only 17, 15 is installed",
        );
        check("x\n", "cannot parse");
    }
}
