//! The ready line: one JSON object on stdout for the program that started this process. Logs go to
//! stderr.

use std::io::{self, Write};

use serde::Serialize;

#[derive(Serialize)]
struct Line<'a, F> {
    event: &'static str,
    #[serde(flatten)]
    fields: &'a F,
}

/// Prints `{"event":"ready",…}` with the members of `fields`, a JSON object, and flushes stdout.
///
/// # Errors
/// When stdout is closed or `fields` is not an object.
pub fn ready(fields: &impl Serialize) -> io::Result<()> {
    write(&mut io::stdout().lock(), fields)
}

fn write(out: &mut impl Write, fields: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Line {
        event: "ready",
        fields,
    })?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_line_is_one_line_of_json() {
        let mut out = Vec::new();
        write(
            &mut out,
            &serde_json::json!({"http_url": "http://127.0.0.1:1"}),
        )
        .unwrap();
        assert_eq!(
            out,
            b"{\"event\":\"ready\",\"http_url\":\"http://127.0.0.1:1\"}\n"
        );
    }
}
