//! Which folders the private Postgres uses: for its data, its log and its socket.
//! Never: a folder that another user can write, a socket path the kernel cuts off.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, symlink},
    },
    path::{Path, PathBuf},
};

use nix::unistd::mkdtemp;
use secrecy::SecretString;
use tracing::info;

use super::{PostgresError, account::Account};

/// Where root keeps a cluster whose data folder the unprivileged user cannot reach.
const SYSTEM_FOLDER: &str = "/var/lib/switchboard";
/// What a temporary socket folder's name begins with.
const SOCKET_PREFIX: &str = "/tmp/switchboard-";
/// The socket's name within its folder; the number is only a name, there is no port.
const SOCKET_NAME: &str = ".s.PGSQL.5432";
/// The longest path of a socket in bytes (`sun_path` less its NUL, the smallest of all platforms).
const MAX_SOCKET_PATH: usize = 103;

/// Where the data and the log are.
#[derive(Debug)]
pub(super) struct Place {
    /// The cluster, `PGDATA`.
    pub(super) cluster: PathBuf,
    /// What Postgres says.
    pub(super) log: PathBuf,
}

/// Where the socket is.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
    temporary: bool,
}

impl Place {
    /// `postgres` in the data folder: a folder, or under root possibly a link to one that the
    /// unprivileged user can reach.
    ///
    /// # Errors
    /// When a folder cannot be made or its access not be changed.
    pub(super) fn choose(
        data_folder: &Path,
        account: Option<&Account>,
    ) -> Result<Self, PostgresError> {
        let log = data_folder.join("postgres.log");
        let inside = data_folder.join("postgres");
        if let Ok(target) = fs::read_link(&inside) {
            return Ok(Self {
                cluster: target,
                log,
            });
        }
        let Some(account) = account else {
            return Ok(Self {
                cluster: inside,
                log,
            });
        };
        account.admit(data_folder)?;
        if account.reaches(data_folder) {
            return Ok(Self {
                cluster: inside,
                log,
            });
        }
        let cluster = outside(&inside, account)?;
        info!(folder = %cluster.display(), "the database lives outside the data folder, which PostgreSQL's user cannot reach");
        Ok(Self { cluster, log })
    }
}

/// Makes a folder that only the account can enter, and links to it.
fn outside(link: &Path, account: &Account) -> Result<PathBuf, PostgresError> {
    let parent = Path::new(SYSTEM_FOLDER);
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(parent)
        .map_err(PostgresError::file("cannot make the folder", parent))?;
    let home = mkdtemp(&parent.join("up-XXXXXX"))
        .map_err(|error| PostgresError::file("cannot make a folder in", parent)(error.into()))?;
    account.own(&home)?;
    let cluster = home.join("postgres");
    symlink(&cluster, link).map_err(PostgresError::file("cannot make the link", link))?;
    Ok(cluster)
}

impl SocketFolder {
    /// The cluster's own folder, which only its user can enter, if the path is short enough.
    ///
    /// # Errors
    /// When no folder can be made for it.
    pub(super) fn choose(cluster: &Path, account: Option<&Account>) -> Result<Self, PostgresError> {
        let length = cluster.as_os_str().len() + 1 + SOCKET_NAME.len();
        if length <= MAX_SOCKET_PATH {
            return Ok(Self {
                path: cluster.to_owned(),
                temporary: false,
            });
        }
        let template = format!("{SOCKET_PREFIX}XXXXXX");
        let path = mkdtemp(template.as_str()).map_err(|error| {
            PostgresError::file("cannot make", Path::new(&template))(error.into())
        })?;
        if let Some(account) = account {
            account.own(&path)?;
        }
        Ok(Self {
            path,
            temporary: true,
        })
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How the database behind the socket is named.
    pub(super) fn url(&self) -> SecretString {
        let mut host = String::new();
        for byte in self.path.as_os_str().as_bytes() {
            if byte.is_ascii_alphanumeric() || b"-._".contains(byte) {
                host.push(char::from(*byte));
            } else {
                host.push_str(&format!("%{byte:02X}"));
            }
        }
        format!("postgres://switchboard@localhost/postgres?host={host}&sslmode=disable").into()
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        if self.temporary {
            // What is left of it is empty and private; the next start does not need it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the temporary socket folder of a Postgres that was left behind.
///
/// # Errors
/// When it is there and cannot be removed.
pub(super) fn forget_socket(folder: &str) -> io::Result<()> {
    let ours = folder
        .strip_prefix(SOCKET_PREFIX)
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    match ours.then(|| fs::remove_dir_all(folder)) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_long_path_gets_a_short_socket() {
        let short = SocketFolder::choose(Path::new("/srv/a b"), None).unwrap();
        assert_eq!(
            short.url().expose_secret(),
            "postgres://switchboard@localhost/postgres?host=%2Fsrv%2Fa%20b&sslmode=disable"
        );
        let long = SocketFolder::choose(Path::new(&"/x".repeat(50)), None).unwrap();
        let path = long.path().to_owned();
        assert!(path.starts_with("/tmp") && path.is_dir());
        drop(long);
        assert!(!path.exists());
    }

    #[test]
    fn only_our_own_socket_folders_are_removed() {
        let other = tempfile::tempdir().unwrap();
        forget_socket(&other.path().to_string_lossy()).unwrap();
        assert!(other.path().is_dir());
        forget_socket("/tmp/switchboard-Never1").unwrap();
    }
}
