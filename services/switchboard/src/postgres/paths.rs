//! Folders of the private Postgres: cluster, log and socket.
//!
//! Invariant: no other user can write to them, and the socket path fits the kernel's limit.

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

use super::{
    PostgresError,
    account::Account,
    outside::{self, SYSTEM_FOLDER},
};

/// Prefix of temporary socket folders.
const SOCKET_PREFIX: &str = "/tmp/switchboard-";
/// Name of the socket. The number is part of the name; there is no port.
const SOCKET_NAME: &str = ".s.PGSQL.5432";
/// Maximum length of a socket path in bytes: `sun_path` without NUL, the smallest value of all
/// platforms.
const MAX_SOCKET_PATH_BYTES: usize = 103;

/// Paths of cluster and log.
#[derive(Debug)]
pub(super) struct Paths {
    /// The cluster, `PGDATA`.
    pub(super) cluster: PathBuf,
    /// The log of Postgres.
    pub(super) log: PathBuf,
}

/// Folder of the socket.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
    temporary: bool,
}

impl Paths {
    /// Returns the paths below the data folder. Under root, `postgres` can be a link to a folder
    /// that the unprivileged user can reach.
    ///
    /// # Errors
    /// When a folder cannot be created, or its permissions cannot be changed.
    pub(super) fn choose(
        data_folder: &Path,
        account: Option<&Account>,
    ) -> Result<Self, PostgresError> {
        let log = data_folder.join("postgres.log");
        let inside = data_folder.join("postgres");
        if let Ok(target) = fs::read_link(&inside) {
            outside::note_data_folder(&target, data_folder)?;
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
        let cluster = create_system_folder(&inside, account)?;
        outside::note_data_folder(&cluster, data_folder)?;
        info!(folder = %cluster.display(), "the database is outside the data folder, because PostgreSQL's user cannot reach it");
        Ok(Self { cluster, log })
    }
}

/// Creates a folder that only the account can enter, and a link to it.
fn create_system_folder(link: &Path, account: &Account) -> Result<PathBuf, PostgresError> {
    let parent = Path::new(SYSTEM_FOLDER);
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(parent)
        .map_err(PostgresError::file("cannot create the folder", parent))?;
    let home = mkdtemp(&parent.join(format!("{}XXXXXX", outside::PREFIX)))
        .map_err(|error| PostgresError::file("cannot create a folder in", parent)(error.into()))?;
    account.own(&home)?;
    let cluster = home.join("postgres");
    symlink(&cluster, link).map_err(PostgresError::file("cannot create the link", link))?;
    Ok(cluster)
}

impl SocketFolder {
    /// Uses the folder of the cluster if the path is short enough, otherwise a temporary folder.
    ///
    /// # Errors
    /// When no folder can be created.
    pub(super) fn choose(cluster: &Path, account: Option<&Account>) -> Result<Self, PostgresError> {
        let length = cluster.as_os_str().len() + 1 + SOCKET_NAME.len();
        if length <= MAX_SOCKET_PATH_BYTES {
            return Ok(Self {
                path: cluster.to_owned(),
                temporary: false,
            });
        }
        let template = format!("{SOCKET_PREFIX}XXXXXX");
        let path = mkdtemp(template.as_str()).map_err(|error| {
            PostgresError::file("cannot create", Path::new(&template))(error.into())
        })?;
        if let Some(account) = account {
            account.own(&path)?;
        }
        Ok(Self {
            path,
            temporary: true,
        })
    }

    /// Returns the folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the database URL.
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
            // The folder is empty and private; a leftover does no harm.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the temporary socket folder of an earlier run.
///
/// # Errors
/// When it exists and cannot be removed.
pub(super) fn remove_socket_folder(folder: &str) -> io::Result<()> {
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
    fn long_path_uses_temporary_socket_folder() {
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
    fn only_own_socket_folders_are_removed() {
        let other = tempfile::tempdir().unwrap();
        remove_socket_folder(&other.path().to_string_lossy()).unwrap();
        assert!(other.path().is_dir());
        remove_socket_folder("/tmp/switchboard-Never1").unwrap();
    }
}
