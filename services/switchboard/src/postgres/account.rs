//! The operating system user that runs Postgres: the current one, or an unprivileged one under
//! root.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nix::unistd::{Gid, Uid, User, chown, geteuid};
use tokio::process::Command;

use super::PostgresError;

/// Users to run Postgres as under root, in order of preference.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// An unprivileged user.
#[derive(Debug, Clone)]
pub(super) struct Account {
    uid: Uid,
    gid: Gid,
}

impl Account {
    /// Selects the user to run Postgres as; `None` is the current user, unless it is root.
    ///
    /// # Errors
    /// [`PostgresError::NoAccount`] when there is no suitable user.
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

    /// Runs a command as this user, with its primary group only.
    pub(super) fn run(&self, command: &mut Command) {
        command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
    }

    /// Changes the owner of a file or folder to this user.
    ///
    /// # Errors
    /// When the file system denies it.
    pub(super) fn own(&self, path: &Path) -> Result<(), PostgresError> {
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(|error| PostgresError::file("cannot change the owner of", path)(error.into()))
    }

    /// Returns whether this user can traverse `folder` and its ancestors.
    pub(super) fn reaches(&self, folder: &Path) -> bool {
        folder
            .ancestors()
            .all(|ancestor| self.may_traverse(ancestor))
    }

    /// Lets this user's group traverse a folder that only root could enter.
    ///
    /// # Errors
    /// When the file system denies it.
    pub(super) fn admit(&self, folder: &Path) -> Result<(), PostgresError> {
        let failed = |error| PostgresError::file("cannot change the permissions of", folder)(error);
        let mode = fs::metadata(folder).map_err(failed)?.mode() & 0o7777;
        if self.may_traverse(folder) || mode & 0o070 != 0 {
            return Ok(());
        }
        chown(folder, None, Some(self.gid)).map_err(|error| {
            PostgresError::file("cannot change the group of", folder)(error.into())
        })?;
        let opened = fs::Permissions::from_mode(mode | 0o010);
        fs::set_permissions(folder, opened).map_err(PostgresError::file(
            "cannot change the permissions of",
            folder,
        ))
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
