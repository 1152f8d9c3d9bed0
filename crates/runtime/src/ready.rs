//! The line on stdout that says a process can serve, for whoever started it.
//! Never: anything else on stdout; logs go to stderr.

use std::io::{self, Write};

use serde::Serialize;

#[derive(Serialize)]
struct Line<'a, F> {
    event: &'static str,
    #[serde(flatten)]
    fields: &'a F,
}

/// Prints `{"event":"ready",…}` with the members of `fields`, a JSON object, and flushes.
///
/// # Errors
/// When stdout is closed or `fields` is no object.
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
    fn prints_one_line_of_json() {
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
