//! A private PostgreSQL server, started from the binaries installed on this machine.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use anyhow::{Context as _, ensure};
use nix::unistd::{User, geteuid};
use tokio::process::Command;

use switchboard_test_support::process::Process;

use super::server::{free_address, wait_listening};

/// Rows of all tables, as counted by ANALYZE, and bytes of tables with their indexes.
const SIZE: &str = "SELECT sum(reltuples), sum(pg_total_relation_size(oid)) FROM pg_class \
                    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace \
                    AND reltuples >= 0";
const INSTALL: &str = "PostgreSQL is missing: apt-get install postgresql";

/// The server stops when the last reference to its process is dropped.
pub(crate) struct Postgres {
    pub(crate) url: String,
    pub(crate) process: Arc<Process>,
}

impl Postgres {
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let (programs, owner) = (programs()?, owner()?);
        let address = free_address()?;
        let port = address.port().to_string();
        let data = folder.join(format!("postgres-{port}"));
        fs::create_dir(&data)?;
        if let Some(owner) = &owner {
            // The temporary folder is private to this user; the server needs search permission.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
            chown(&data, Some(owner.uid.as_raw()), Some(owner.gid.as_raw()))?;
        }
        initialize(&programs, &data, owner.as_ref()).await?;

        let mut serve = command(&programs, "postgres", owner.as_ref());
        serve.arg("-D").arg(&data).arg("-k").arg(&data);
        serve.args(["-h", "127.0.0.1", "-p", &port, "-c", "fsync=off"]);
        let mut process = Process::start(folder, "postgres", serve.stdout(Stdio::null()))?;
        wait_listening(&mut process, address).await?;
        let url = format!("postgres://postgres@{address}/postgres");
        Ok(Self {
            url,
            process: process.into(),
        })
    }

    /// The rows of all tables, and the bytes of tables and indexes.
    pub(crate) async fn size(&self) -> anyhow::Result<(f64, f64)> {
        let mut client = Command::new("psql");
        client
            .arg(&self.url)
            .args(["--no-psqlrc", "--tuples-only", "--no-align"]);
        client.args(["--quiet", "--command", "ANALYZE", "--command", SIZE]);
        let output = client
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("psql is missing: apt-get install postgresql-client")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql failed: {stderr}");
        let text = String::from_utf8(output.stdout)?;
        let (rows, bytes) = text
            .trim()
            .split_once('|')
            .context("psql printed no sizes")?;
        Ok((rows.parse()?, bytes.parse()?))
    }
}

/// Initialises an empty database cluster.
async fn initialize(programs: &Path, data: &Path, owner: Option<&User>) -> anyhow::Result<()> {
    let mut initdb = command(programs, "initdb", owner);
    initdb.args([
        "--username",
        "postgres",
        "--auth",
        "trust",
        "--no-sync",
        "--pgdata",
    ]);
    let created = initdb.arg(data).kill_on_drop(true).output().await?;
    let stderr = String::from_utf8_lossy(&created.stderr);
    ensure!(created.status.success(), "initdb failed: {stderr}");
    Ok(())
}

/// A command that runs as `owner` in a folder that every user may enter.
fn command(programs: &Path, name: &str, owner: Option<&User>) -> Command {
    let mut command = Command::new(programs.join(name));
    command.current_dir("/").stdin(Stdio::null());
    if let Some(owner) = owner {
        command.uid(owner.uid.as_raw()).gid(owner.gid.as_raw());
    }
    command
}

/// The folder with `initdb` and `postgres` of the newest installed version.
fn programs() -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let mut complete = folders
        .into_iter()
        .rev()
        .filter(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
    complete.next().context(INSTALL)
}

/// The user that the server runs as, if this process is root: PostgreSQL refuses to run as root.
fn owner() -> anyhow::Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres")?.context("user postgres does not exist")?;
    Ok(Some(user))
}
