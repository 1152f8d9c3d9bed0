//! The private Postgres of `switchboard up`: found on the machine, made once, started, kept alive.
//! Never: SQL, a port on the network, a server that runs as root, settings that trade data for speed.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use switchboard_runtime::shutdown::Shutdown;

use self::{
    account::Account,
    place::{Place, SocketFolder},
    server::Server,
};

mod account;
mod binaries;
mod cluster;
mod place;
mod predecessor;
mod server;
mod status;

pub(crate) use self::binaries::{Binaries, find};

/// How long a start may take, recovery after a crash included.
const START_WITHIN: Duration = Duration::from_secs(120);

/// Why there is no private Postgres.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostgresError {
    /// No server binaries of any usable version.
    #[error(
        "no PostgreSQL server ({} or newer) was found on this machine. Install it (Debian, Ubuntu: \
         `apt-get install postgresql`; Fedora: `dnf install postgresql-server`; Alpine: `apk add \
         postgresql`; macOS: `brew install postgresql@17`), name its folder with \
         --postgres-bin-dir, or use a server you have with DATABASE_URL",
        binaries::OLDEST_MAJOR
    )]
    NotFound,
    /// The data were written by a version that is not here.
    #[error(
        "the database in {} was written by PostgreSQL {wanted}, and only {found} is installed: \
         install PostgreSQL {wanted}, or move that folder away to begin anew", cluster.display()
    )]
    OtherVersion {
        /// Where the data are.
        cluster: PathBuf,
        /// The major version that wrote them.
        wanted: u32,
        /// The major versions there are.
        found: String,
    },
    /// Postgres refuses to run as root, and there is nobody else to run it as.
    #[error(
        "PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as"
    )]
    NoAccount,
    /// A file or folder could not be used.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it did not work.
        #[source]
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{program} failed ({status}): {output}")]
    Program {
        /// Which one.
        program: &'static str,
        /// How it ended.
        status: String,
        /// The end of what it said.
        output: String,
    },
    /// The Postgres of an earlier run does not end.
    #[error("PostgreSQL (process {0}) of an earlier run does not end: end it by hand")]
    Immortal(i32),
    /// Postgres runs and does not become ready.
    #[error("PostgreSQL was not ready within {} s; its log is {}", START_WITHIN.as_secs(), .0.display())]
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

/// Starts the Postgres of this data folder and returns the URL under which it is reached.
///
/// It lives on `shutdown`: restarted when it dies, shut down in order when that stops.
///
/// # Errors
/// When it cannot be found, made or started; see [`PostgresError`].
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
    let place = Place::choose(data_folder, account.as_ref())?;
    let binaries = cluster::matching(&found, &place.cluster)?;
    predecessor::end(&place.cluster).await?;
    cluster::ensure(binaries, &place.cluster, account.as_ref()).await?;
    let socket = SocketFolder::choose(&place.cluster, account.as_ref())?;
    let url = socket.url();
    Server {
        program: binaries.postgres.clone(),
        place,
        socket,
        account,
    }
    .keep_running(shutdown)
    .await?;
    Ok(url)
}
