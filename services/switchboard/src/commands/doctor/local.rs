//! Checks of this machine: the data folder, databases of `up`, and PostgreSQL's programs.

use std::{io::ErrorKind, path::Path};

use super::{
    Arguments,
    finding::{Check, Finding, Problem},
    target::Target,
};
use crate::{data_folder::Instance, postgres, shell};

/// Reads the description of the `up` of the data folder.
pub(super) fn data_folder(arguments: &Arguments) -> (Finding, Option<Instance>) {
    let check = Check::DataFolder;
    let how = "read its up.json";
    let Ok(path) = arguments.api.data.path() else {
        let problem = Problem::set("there is no home folder for it", "--data-dir");
        return (check.line(how, Err(problem)), None);
    };
    let shown = path.display();
    match arguments.api.data.instance() {
        Ok(Some(instance)) => {
            let detail = format!("{shown} contains the data of an `up`");
            (check.line(how, Ok(detail)), Some(instance))
        }
        Ok(None) => {
            let detail = format!("{shown} has no data; `switchboard up` creates it");
            (check.line(how, Ok(detail)), None)
        }
        Err(error) => {
            let file = path.join("up.json");
            let problem = match std::fs::read(&file) {
                Err(reason) if reason.kind() == ErrorKind::NotADirectory => {
                    Problem::set(error, "--data-dir")
                }
                Err(reason) if reason.kind() == ErrorKind::PermissionDenied => {
                    let what = format!("{error}; only the user who runs `up` can read it");
                    Problem::set(what, "the user, or --data-dir")
                }
                _ => {
                    let file = shell::quote_path(&file);
                    Problem::run(error, format!("mv {file} {file}.damaged"))
                }
            };
            (check.line(how, Err(problem)), None)
        }
    }
}

/// Looks for databases whose data folder is gone.
pub(super) fn databases(data_folder: Option<&Path>) -> Finding {
    let how = "compared the databases in /var/lib/switchboard with their data folders";
    let check = Check::OrphanedDatabases;
    let mut clusters = match postgres::clusters_outside() {
        Ok(clusters) => clusters,
        Err(error) if error.source.kind() == ErrorKind::PermissionDenied => {
            let reason = "only root has databases outside of data folders, and may list them";
            return check.skipped("listed /var/lib/switchboard", reason);
        }
        Err(error) => {
            let path = shell::quote_path(&error.path);
            let fix = match error.can_be_moved() {
                true => format!("mv {path} {path}.damaged"),
                // It may contain a database that is in use.
                false => format!("ls -la {path}"),
            };
            let problem = Problem::run(error, fix);
            return check.line("listed /var/lib/switchboard", Err(problem));
        }
    };
    // A data folder that has been moved still links to its database.
    let own = data_folder.and_then(|folder| folder.join("postgres").read_link().ok());
    clusters
        .orphaned
        .retain(|orphan| own != Some(orphan.folder.join("postgres")));
    let folders = |clusters: &[postgres::OrphanedCluster]| {
        let folders = clusters.iter().map(|one| shell::quote_path(&one.folder));
        folders.collect::<Vec<_>>().join(" ")
    };
    if clusters.orphaned.is_empty() {
        let (in_use, unknown) = (clusters.in_use, clusters.without_note);
        let detail = match unknown {
            0 => format!("{in_use} in use, none without its data folder"),
            _ => format!("{in_use} in use; {unknown} of an earlier version, not checked"),
        };
        return check.line(how, Ok(detail));
    }
    let gone = clusters.orphaned.iter().map(|orphan| {
        let (folder, data) = (orphan.folder.display(), orphan.data_folder.display());
        format!("{folder} is not used by its data folder {data}")
    });
    let gone: Vec<_> = gone.collect();
    let what = format!(
        "{}, which is gone or has another database (if it was moved, start `switchboard up` there \
         first)",
        gone.join(", ")
    );
    let remove = format!("rm -r {}", folders(&clusters.orphaned));
    check.line(how, Err(Problem::run(what, remove)))
}

/// Looks for the programs of the private Postgres.
pub(super) fn programs(arguments: &Arguments, target: &Target) -> Finding {
    if target.is_elsewhere() {
        let reason = "only an `up` on this machine needs them";
        return Check::Programs.skipped("read the settings", reason);
    }
    if let Some(reason) = target.unreadable_settings(arguments.postgres_bin_dir.is_some()) {
        return Check::Programs.skipped("read the settings", reason);
    }
    let folder = arguments.postgres_bin_dir.as_deref();
    let how = match folder {
        Some(folder) => format!("ran `postgres --version` of {}", folder.display()),
        None => "ran `postgres --version` in PATH and the usual install locations".to_owned(),
    };
    let found = postgres::find(folder);
    let result = match found.first() {
        Some(newest) => Ok(format!(
            "version {} at {}",
            newest.major,
            newest.postgres.display()
        )),
        None => Err(Problem::set(
            format!(
                "no PostgreSQL server ({} or newer) was found; install it {}",
                switchboard_store::MIN_POSTGRES_VERSION,
                postgres::instructions()
            ),
            "--postgres-bin-dir or DATABASE_URL",
        )),
    };
    Check::Programs.line(how, result)
}
