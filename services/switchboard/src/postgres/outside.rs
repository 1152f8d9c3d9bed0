//! Clusters outside their data folder, and those whose data folder is gone.
//!
//! Invariant: nothing is removed here. A data folder may be on a disk that is not mounted.

use std::{
    ffi::OsStr,
    fs,
    io::{self, ErrorKind},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use super::{PostgresError, stale_server};

/// Parent of clusters whose data folder the unprivileged user cannot reach.
pub(super) const SYSTEM_FOLDER: &str = "/var/lib/switchboard";
/// Beginning of the names in it.
pub(super) const PREFIX: &str = "up-";
/// File beside a cluster with the path of its data folder.
const DATA_FOLDER: &str = "data-folder";

/// The clusters outside their data folders.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ClustersOutside {
    /// Those that a data folder links to, or on which a Postgres runs.
    pub(crate) in_use: usize,
    /// Those whose data folder is not noted: an earlier version made them. Their next start notes it.
    pub(crate) without_note: usize,
    /// Those that their data folder no longer links to.
    pub(crate) orphaned: Vec<OrphanedCluster>,
}

/// A cluster that its data folder no longer links to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OrphanedCluster {
    /// Its folder, with the note.
    pub(crate) folder: PathBuf,
    /// Its data folder at its last start.
    pub(crate) data_folder: PathBuf,
}

/// The clusters outside their data folders cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub(crate) struct ListError {
    /// The file or folder that cannot be read.
    pub(crate) path: PathBuf,
    /// The reason.
    pub(crate) source: io::Error,
}

impl ListError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { path, source }
    }

    /// Whether no database is moved with the path: it is a note, or a file in place of the folder.
    pub(crate) fn can_be_moved(&self) -> bool {
        self.path.ends_with(DATA_FOLDER) || self.source.kind() == ErrorKind::NotADirectory
    }
}

/// Notes beside a cluster which data folder it belongs to. The data folder may have been moved.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn note_data_folder(cluster: &Path, data_folder: &Path) -> Result<(), PostgresError> {
    let Some(folder) = cluster.parent().filter(|folder| folder.is_dir()) else {
        return Ok(());
    };
    let file = folder.join(DATA_FOLDER);
    let noted = data_folder.as_os_str().as_bytes();
    if fs::read(&file).is_ok_and(|found| found == noted) {
        return Ok(());
    }
    fs::write(&file, noted).map_err(PostgresError::file("cannot write", &file))
}

/// Returns the clusters outside their data folders.
///
/// # Errors
/// When they cannot be listed: only root may.
pub(crate) fn clusters_outside() -> Result<ClustersOutside, ListError> {
    clusters_in(Path::new(SYSTEM_FOLDER))
}

fn clusters_in(parent: &Path) -> Result<ClustersOutside, ListError> {
    let mut clusters = ClustersOutside::default();
    let entries = match fs::read_dir(parent) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(clusters),
        entries => entries.map_err(ListError::at(parent))?,
    };
    for entry in entries {
        let entry = entry.map_err(ListError::at(parent))?;
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let folder = entry.path();
        let kind = entry.file_type().map_err(ListError::at(&folder))?;
        if kind.is_dir() {
            clusters.add(folder)?;
        }
    }
    clusters.orphaned.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(clusters)
}

impl ClustersOutside {
    fn add(&mut self, folder: PathBuf) -> Result<(), ListError> {
        let cluster = folder.join("postgres");
        let note = folder.join(DATA_FOLDER);
        let data_folder = match fs::read(&note) {
            Ok(noted) => PathBuf::from(std::ffi::OsString::from_vec(noted)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.without_note += 1;
                return Ok(());
            }
            Err(error) => return Err(ListError::at(&note)(error)),
        };
        let link = fs::read_link(data_folder.join(OsStr::new("postgres")));
        if link.is_ok_and(|target| target == cluster) || stale_server::is_running(&cluster) {
            self.in_use += 1;
        } else {
            self.orphaned.push(OrphanedCluster {
                folder,
                data_folder,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn cluster_is_orphaned_without_its_data_folder() {
        let all = tempfile::tempdir().unwrap();
        let (parent, data) = (all.path().join("lib"), all.path().join("data"));
        assert_eq!(clusters_in(&parent).unwrap(), ClustersOutside::default());
        let folder = parent.join("up-abcdef");
        let cluster = folder.join("postgres");
        fs::create_dir_all(&cluster).unwrap();
        fs::create_dir_all(parent.join("objects")).unwrap();
        fs::create_dir(&data).unwrap();
        assert_eq!(clusters_in(&parent).unwrap().without_note, 1);

        note_data_folder(&cluster, Path::new("/no/such")).unwrap();
        note_data_folder(&cluster, &data).unwrap();
        symlink(&cluster, data.join("postgres")).unwrap();
        assert_eq!(clusters_in(&parent).unwrap().in_use, 1);

        // Another installation at the same place.
        fs::remove_file(data.join("postgres")).unwrap();
        symlink("/elsewhere", data.join("postgres")).unwrap();
        let orphan = OrphanedCluster {
            folder,
            data_folder: data.clone(),
        };
        assert_eq!(clusters_in(&parent).unwrap().orphaned, [orphan]);
        fs::remove_dir_all(&data).unwrap();
        assert_eq!(clusters_in(&parent).unwrap().orphaned.len(), 1);
    }

    #[test]
    fn only_what_contains_no_database_can_be_moved() {
        let all = tempfile::tempdir().unwrap();
        let parent = all.path().join("lib");
        let note = parent.join("up-abcdef").join(DATA_FOLDER);
        fs::create_dir_all(&note).unwrap();
        let error = clusters_in(&parent).unwrap_err();
        assert!(error.can_be_moved() && error.path == note, "{error}");
        assert!(
            error.to_string().contains(note.to_str().unwrap()),
            "{error}"
        );
        let error = ListError::at(&parent)(ErrorKind::Other.into());
        assert!(!error.can_be_moved(), "{error}");

        let file = all.path().join("file");
        fs::write(&file, "").unwrap();
        let error = clusters_in(&file).unwrap_err();
        assert!(error.can_be_moved() && error.path == file, "{error}");
    }
}
