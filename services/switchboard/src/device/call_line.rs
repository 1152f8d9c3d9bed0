//! The line about a call that the user at the device reads.

use std::time::Duration;

use crate::exit::{Color, print_stderr_colored};

/// Characters of the id of a call that are shown, from its end: its beginning is a time.
const ID_CHARS: usize = 8;
/// Maximum characters of a reason.
const MAX_REASON_CHARS: usize = 120;

/// How a call ended on the device.
pub(super) enum CallEnd<'a> {
    Succeeded,
    /// With the error that the caller receives.
    Failed(&'a str),
    /// The caller no longer waits.
    Cancelled,
}

/// Prints service, outcome, duration, reason and shortened id of a call on stderr.
pub(super) fn print(service: &str, call_id: &str, took: Duration, end: &CallEnd<'_>) {
    let (outcome, color) = match end {
        CallEnd::Succeeded => ("succeeded", Color::Green),
        CallEnd::Failed(_) => ("failed", Color::Red),
        CallEnd::Cancelled => ("cancelled", Color::Yellow),
    };
    print_stderr_colored(&[
        (&format!("{service} "), None),
        (outcome, Some(color)),
        (&details(call_id, took, end), None),
    ]);
}

fn details(call_id: &str, took: Duration, end: &CallEnd<'_>) -> String {
    let start = call_id.char_indices().rev().nth(ID_CHARS - 1);
    let id = match start {
        Some((start, _)) if start > 0 => format!("…{}", call_id.get(start..).unwrap_or_default()),
        _ => call_id.to_owned(),
    };
    let reason = match end {
        CallEnd::Failed(error) => {
            // One line for each call, whatever the error of a program is.
            let line = error.lines().next().unwrap_or_default();
            let reason: String = line.chars().take(MAX_REASON_CHARS).collect();
            format!(": {reason}")
        }
        _ => String::new(),
    };
    format!(" in {} ms{reason} (call {id})", took.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_one_short_line() {
        let took = Duration::from_millis(1_250);
        let check = |id: &str, end: CallEnd<'_>, expected: &str| {
            assert_eq!(details(id, took, &end), expected);
        };
        let id = "call_0190a6f3c2b17e5f8a9b0c1d2e3f4a5b";
        check(id, CallEnd::Succeeded, " in 1250 ms (call …2e3f4a5b)");
        check("c-1", CallEnd::Cancelled, " in 1250 ms (call c-1)");
        let error = format!("no such file\n{}", "x".repeat(200));
        let failed = CallEnd::Failed(&error);
        check("c-1", failed, " in 1250 ms: no such file (call c-1)");
    }
}
