//! Files as subcommands take and give them, with `-` for stdin and stdout.
//! Never: more of a file in memory than was allowed.

use std::{io::Read as _, path::Path};

use anyhow::Context as _;

use crate::exit::{self, Failure};

/// The largest file that is read where nothing else is said, in bytes; the API takes less.
pub(crate) const LARGEST_FILE: u64 = 16 * 1024 * 1024;

/// Whether it stands for stdin or stdout.
pub(crate) fn is_stream(file: &Path) -> bool {
    file == Path::new("-")
}

/// All bytes of a file, or of stdin when it is `-`.
pub(crate) fn read_input(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let shown = || format!("{} cannot be read", file.display());
    let mut bytes = Vec::new();
    if is_stream(file) {
        let stdin = std::io::stdin().lock();
        stdin
            .take(most + 1)
            .read_to_end(&mut bytes)
            .context("stdin cannot be read")?;
    } else {
        let opened = std::fs::File::open(file).with_context(shown)?;
        opened
            .take(most + 1)
            .read_to_end(&mut bytes)
            .with_context(shown)?;
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > most) {
        return Err(Failure::usage(format!(
            "{} has more than {most} bytes",
            file.display()
        )));
    }
    Ok(bytes)
}

/// Writes bytes to a file, or to stdout when none is named or it is `-`.
pub(crate) fn write_output(file: Option<&Path>, bytes: &[u8]) -> Result<(), Failure> {
    match file.filter(|file| !is_stream(file)) {
        Some(file) => std::fs::write(file, bytes)
            .with_context(|| format!("{} cannot be written", file.display()))
            .map_err(Failure::from),
        None => exit::print_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_has_a_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"four").unwrap();
        assert_eq!(read_input(file.path(), 4).unwrap(), b"four");
        assert!(read_input(file.path(), 3).is_err());
        assert!(read_input(Path::new("/no/such/file"), 3).is_err());
    }
}
