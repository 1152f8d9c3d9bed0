//! The private Postgres of `switchboard up`: located, initialised, started and supervised.
//!
//! Invariant: it listens on a private socket only, never runs as root, and keeps durability
//! enabled.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use switchboard_runtime::shutdown::Shutdown;

use self::{
    account::Account,
    paths::{Paths, SocketFolder},
    server::Server,
};

mod account;
mod binaries;
mod cluster;
mod installation;
mod outside;
mod paths;
mod server;
mod stale_server;
mod status;

pub(crate) use self::{
    binaries::{Binaries, find},
    installation::instructions,
    outside::{OrphanedCluster, clusters_outside},
};

/// Timeout of a start, including crash recovery.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The private Postgres cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostgresError {
    /// No server of a supported version is installed.
    #[error(
        "no PostgreSQL server ({} or newer) was found on this machine. Install it {}, set its \
         folder with --postgres-bin-dir, or use an existing server with DATABASE_URL",
        switchboard_store::MIN_POSTGRES_VERSION,
        installation::instructions()
    )]
    NotFound,
    /// The cluster belongs to a version that is not installed.
    #[error(
        "the database in {} was written by PostgreSQL {wanted}, and only {found} is installed: \
         install PostgreSQL {wanted}, or move that folder away to start with an empty database", cluster.display()
    )]
    OtherVersion {
        /// Folder of the cluster.
        cluster: PathBuf,
        /// Major version of the cluster.
        wanted: u32,
        /// Installed major versions.
        found: String,
    },
    /// Postgres refuses to run as root, and there is no other user.
    #[error(
        "PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as"
    )]
    NoAccount,
    /// A file system operation failed.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// Path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {output}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// Exit status.
        status: String,
        /// Last lines of its output.
        output: String,
    },
    /// A Postgres of an earlier run does not stop.
    #[error("PostgreSQL (process {0}) of an earlier run does not stop: stop it manually")]
    DoesNotStop(i32),
    /// Postgres runs but does not accept connections.
    #[error("PostgreSQL was not ready within {} s; its log is {}", START_TIMEOUT.as_secs(), .0.display())]
    NotReady(PathBuf),
}

impl PostgresError {
    fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}

/// Starts the Postgres of this data folder and returns its URL.
///
/// It runs until `shutdown` stops, and is restarted if it dies.
///
/// # Errors
/// When it cannot be located, initialised or started; see [`PostgresError`].
pub(crate) async fn start(
    data_folder: &Path,
    binaries_folder: Option<&Path>,
    shutdown: &Shutdown,
) -> Result<SecretString, PostgresError> {
    let found = binaries::find(binaries_folder);
    if found.is_empty() {
        return Err(PostgresError::NotFound);
    }
    let account = Account::for_postgres()?;
    let paths = Paths::choose(data_folder, account.as_ref())?;
    let binaries = cluster::matching(&found, &paths.cluster)?;
    stale_server::stop(&paths.cluster).await?;
    cluster::ensure(binaries, &paths.cluster, account.as_ref()).await?;
    let socket = SocketFolder::choose(&paths.cluster, account.as_ref())?;
    let url = socket.url();
    Server {
        program: binaries.postgres.clone(),
        paths,
        socket,
        account,
    }
    .keep_running(shutdown)
    .await?;
    Ok(url)
}
