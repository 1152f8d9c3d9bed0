//! Discovery of installed PostgreSQL servers. The version is read from the program, not from its
//! folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::{AccessFlags, access};
use switchboard_store::MIN_POSTGRES_VERSION;

/// Install locations of packages outside PATH: parent folder, prefix of its entries, and subfolder.
const PACKAGED: [(&str, &str, &str); 7] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),
    ("/Library/PostgreSQL", "", "bin"),
];

/// An installed PostgreSQL.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    /// The server program.
    pub(crate) postgres: PathBuf,
    /// The program that initialises a cluster.
    pub(crate) initdb: PathBuf,
    /// Major version; a cluster requires the one that created it.
    pub(crate) major: u32,
}

/// Returns the installations of supported versions, newest first: those in `only` if given, otherwise on PATH and
/// in the locations of packages.
pub(crate) fn find(only: Option<&Path>) -> Vec<Binaries> {
    let folders = only.map_or_else(usual_folders, |folder| vec![folder.to_owned()]);
    let mut found: Vec<Binaries> = folders
        .iter()
        .filter_map(|folder| probe_folder(folder))
        .collect();
    found.sort_by_key(|binaries| std::cmp::Reverse(binaries.major));
    found.dedup_by(|a, b| a.postgres == b.postgres);
    found
}

fn usual_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for (parent, prefix, below) in PACKAGED {
        let Ok(entries) = fs::read_dir(parent) else {
            continue;
        };
        let versions = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(|entry| entry.path().join(below));
        folders.extend(versions);
    }
    folders
}

fn probe_folder(folder: &Path) -> Option<Binaries> {
    // initdb expects its `postgres` and its templates next to the real file.
    let postgres = fs::canonicalize(folder.join("postgres")).ok()?;
    let initdb = [postgres.with_file_name("initdb"), folder.join("initdb")]
        .into_iter()
        .find(|program| access(program, AccessFlags::X_OK).is_ok())?;
    let output = Command::new(&postgres).arg("--version").output().ok()?;
    let major = major_version(&String::from_utf8_lossy(&output.stdout))?;
    (major >= MIN_POSTGRES_VERSION).then_some(Binaries {
        postgres,
        initdb,
        major,
    })
}

/// Parses `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn major_version(line: &str) -> Option<u32> {
    let version = line.strip_prefix("postgres (PostgreSQL) ")?;
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_parsed() {
        fn check(line: &str, expect: Option<u32>) {
            assert_eq!(major_version(line), expect, "{line:?}");
        }
        check(
            "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n",
            Some(15),
        );
        check("postgres (PostgreSQL) 18beta2\n", Some(18));
        check("postgres (PostgreSQL) \n", None);
        check("mysqld 8", None);
    }

    #[test]
    fn empty_folder_has_no_binaries() {
        let folder = tempfile::tempdir().unwrap();
        assert!(find(Some(folder.path())).is_empty());
    }
}
