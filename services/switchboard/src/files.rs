//! Input and output files of subcommands; `-` is stdin or stdout.

use std::{
    io::{IsTerminal as _, Read as _},
    path::Path,
};

use anyhow::Context as _;

use crate::exit::{self, Failure};

/// Default maximum size of an input file; the limits of the API are lower.
pub(crate) const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Returns whether the path is `-`.
pub(crate) fn is_stream(file: &Path) -> bool {
    file == Path::new("-")
}

/// Prints what is expected if stdin is a terminal.
pub(crate) fn hint_stdin(what: &str) {
    if std::io::stdin().is_terminal() {
        exit::print_stderr(&format!(
            "switchboard: reading {what} from the terminal until Ctrl-D"
        ));
    }
}

/// Reads a file, or stdin if it is `-`, up to a maximum size.
pub(crate) fn read_input(file: &Path, max_bytes: u64) -> Result<Vec<u8>, Failure> {
    let unreadable = || format!("cannot read {}", file.display());
    let mut bytes = Vec::new();
    if is_stream(file) {
        hint_stdin("the input");
        let stdin = std::io::stdin().lock();
        stdin
            .take(max_bytes + 1)
            .read_to_end(&mut bytes)
            .context("cannot read stdin")?;
    } else {
        let opened = std::fs::File::open(file).with_context(unreadable)?;
        let size = opened.metadata().with_context(unreadable)?.len();
        if size > max_bytes {
            return Err(too_large(
                &file.display().to_string(),
                &size.to_string(),
                max_bytes,
            ));
        }
        opened
            .take(max_bytes + 1)
            .read_to_end(&mut bytes)
            .with_context(unreadable)?;
    }
    // The size of stdin, a pipe, or a file that grows is not known before it is read.
    if u64::try_from(bytes.len()).is_ok_and(|length| length > max_bytes) {
        let name = if is_stream(file) {
            "stdin".into()
        } else {
            file.to_string_lossy()
        };
        return Err(too_large(
            &name,
            &format!("more than {max_bytes}"),
            max_bytes,
        ));
    }
    Ok(bytes)
}

fn too_large(name: &str, size: &str, max_bytes: u64) -> Failure {
    Failure::usage(format!(
        "{name} has {size} bytes; at most {max_bytes} bytes are accepted"
    ))
}

/// Writes to a file, or to stdout if it is missing or `-`.
pub(crate) fn write_output(file: Option<&Path>, bytes: &[u8]) -> Result<(), Failure> {
    match file.filter(|file| !is_stream(file)) {
        Some(file) => std::fs::write(file, bytes)
            .with_context(|| format!("cannot write {}", file.display()))
            .map_err(Failure::from),
        None => exit::print_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_over_limit_is_rejected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"four").unwrap();
        assert_eq!(read_input(file.path(), 4).unwrap(), b"four");
        let error = read_input(file.path(), 3).unwrap_err().to_string();
        assert!(error.contains("has 4 bytes; at most 3 bytes"), "{error}");
        assert!(read_input(Path::new("/no/such/file"), 3).is_err());
    }
}
