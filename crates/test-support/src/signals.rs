//! Signals to processes that a test has started.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

/// Sends a signal to a child process.
pub(crate) fn send(pid: u32, signal: Signal) {
    kill(raw(pid), signal).expect("a child of this process");
}

/// Stops a child process. Returns when all of its threads have stopped: after `kill` alone, they may
/// still execute what arrives next.
pub(crate) fn pause(pid: u32) {
    send(pid, Signal::SIGSTOP);
    waitid(Id::Pid(raw(pid)), WaitPidFlag::WSTOPPED).expect("a child of this process");
}

/// Continues a stopped child process.
pub(crate) fn resume(pid: u32) {
    send(pid, Signal::SIGCONT);
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a pid"))
}
