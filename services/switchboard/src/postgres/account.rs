//! Who runs Postgres: we ourselves, or an unprivileged user when we are root.
//! Never: Postgres as root, a folder opened to everyone so that it can be reached.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nix::unistd::{Gid, Uid, User, chown, geteuid};
use tokio::process::Command;

use super::PostgresError;

/// Who Postgres may run as under root, the best first.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// An unprivileged user that root runs Postgres as.
#[derive(Debug, Clone)]
pub(super) struct Account {
    uid: Uid,
    gid: Gid,
}

impl Account {
    /// None when this process is not root: then Postgres runs as the same user.
    ///
    /// # Errors
    /// [`PostgresError::NoAccount`] when root has nobody to run it as.
    pub(super) fn for_postgres() -> Result<Option<Self>, PostgresError> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        CANDIDATES
            .iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| {
                Some(Self {
                    uid: user.uid,
                    gid: user.gid,
                })
            })
            .ok_or(PostgresError::NoAccount)
    }

    /// Makes the program run as this user, without any of our groups.
    pub(super) fn run(&self, command: &mut Command) {
        command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
    }

    /// Gives a file or folder to this user.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(super) fn own(&self, path: &Path) -> Result<(), PostgresError> {
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(|error| PostgresError::file("cannot give away", path)(error.into()))
    }

    /// Whether this user can get at what lies inside `folder`.
    pub(super) fn reaches(&self, folder: &Path) -> bool {
        folder
            .ancestors()
            .all(|ancestor| self.may_traverse(ancestor))
    }

    /// Lets this user's group, and nobody else, pass through a folder that only root could enter.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(super) fn admit(&self, folder: &Path) -> Result<(), PostgresError> {
        let failed = |error| PostgresError::file("cannot change access to", folder)(error);
        let mode = fs::metadata(folder).map_err(failed)?.mode() & 0o7777;
        if self.may_traverse(folder) || mode & 0o070 != 0 {
            return Ok(());
        }
        chown(folder, None, Some(self.gid)).map_err(|error| {
            PostgresError::file("cannot change the group of", folder)(error.into())
        })?;
        let opened = fs::Permissions::from_mode(mode | 0o010);
        fs::set_permissions(folder, opened)
            .map_err(PostgresError::file("cannot change access to", folder))
    }

    fn may_traverse(&self, folder: &Path) -> bool {
        fs::metadata(folder).is_ok_and(|found| {
            let needed = if found.uid() == self.uid.as_raw() {
                0o100
            } else if found.gid() == self.gid.as_raw() {
                0o010
            } else {
                0o001
            };
            found.mode() & needed != 0
        })
    }
}
