//! `postmaster.pid`: what a running Postgres says about itself.
//! Never: trust in a process number alone; numbers are used again.

use std::{fs, path::Path};

/// The lines of the file that matter here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// The postmaster's process.
    pub(super) pid: i32,
    /// Where its socket is; empty before it has one.
    pub(super) socket_folder: String,
    /// Whether it takes connections.
    pub(super) ready: bool,
}

/// Name of the file within the cluster.
pub(super) const FILE: &str = "postmaster.pid";

/// What the Postgres on this cluster says, or said when it died; None when there is nothing to read.
pub(super) fn read(cluster: &Path) -> Option<Status> {
    fs::read_to_string(cluster.join(FILE))
        .ok()
        .and_then(|text| parse(&text))
}

/// Lines: pid, data folder, start time, port, socket folder, address, shared memory, status.
fn parse(text: &str) -> Option<Status> {
    let mut lines = text.lines();
    let pid: i32 = lines.next()?.trim().parse().ok()?;
    let socket_folder = lines.nth(3).unwrap_or_default().trim().to_owned();
    let ready = lines.nth(2).is_some_and(|status| status.trim() == "ready");
    // Below 2 there is no postmaster, and a signal would go to a whole group.
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
    fn the_file_is_read_at_every_stage_of_a_start() {
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
