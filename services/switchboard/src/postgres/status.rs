//! Parser of `postmaster.pid`. A process id alone does not identify a server, because ids are
//! reused.

use std::{fs, path::Path};

/// The relevant lines of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// Process id of the postmaster.
    pub(super) pid: i32,
    /// Folder of the socket; empty until it exists.
    pub(super) socket_folder: String,
    /// Whether the server accepts connections.
    pub(super) ready: bool,
}

/// Name of the file within the cluster.
pub(super) const FILE: &str = "postmaster.pid";

/// Reads the status of the current or last server on this cluster; `None` if there is no readable
/// file.
pub(super) fn read(cluster: &Path) -> Option<Status> {
    fs::read_to_string(cluster.join(FILE))
        .ok()
        .and_then(|text| parse(&text))
}

/// Lines: process id, data folder, start time, port, socket folder, address, shared memory, status.
fn parse(text: &str) -> Option<Status> {
    let mut lines = text.lines();
    let pid: i32 = lines.next()?.trim().parse().ok()?;
    let socket_folder = lines.nth(3).unwrap_or_default().trim().to_owned();
    let ready = lines.nth(2).is_some_and(|status| status.trim() == "ready");
    // Signals to process ids below 2 would reach a whole process group.
    (pid > 1).then_some(Status {
        pid,
        socket_folder,
        ready,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_file_is_parsed_at_every_stage() {
        fn check(text: &str, expect: Option<(i32, &str, bool)>) {
            let status = parse(text);
            let got = status
                .as_ref()
                .map(|s| (s.pid, s.socket_folder.as_str(), s.ready));
            assert_eq!(got, expect, "{text:?}");
        }
        check("", None);
        check("-1\n/d\n", None);
        check("12\n/data\n1700000000\n5432\n", Some((12, "", false)));
        check(
            "12\n/data\n17\n5432\n/sock\n\n  5432001   32769\nstarting\n",
            Some((12, "/sock", false)),
        );
        check(
            "12\n/data\n17\n5432\n/sock\n\n  5432001   32769\nready   \n",
            Some((12, "/sock", true)),
        );
    }
}
