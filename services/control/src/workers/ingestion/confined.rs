//! The child process that parses a document, with limited memory and CPU time, and
//! without files, network or secrets.
//!
//! Invariant: nothing of the document is written except to its output.

use std::io::{self, Read, Write};

use nix::sys::resource::{Resource, setrlimit};
use sha2::{Digest, Sha256};
use switchboard_store::BookFault;

use super::{
    Format,
    chunks::{self, Chunk},
    parser_process::Header,
    text::{self, fault},
};

/// The limit of its address space: a document can expand to a thousand times its size.
const MEMORY_BYTES: u64 = 1024 * 1024 * 1024;
/// The limit of its CPU time.
const CPU_SECONDS: u64 = 60;
/// The stack, for deeply nested documents. The process aborts when it is exhausted.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Parses a document of this size from `input`. Writes a header and then the chunks to `output`,
/// one line each, or only a header with the fault of the document. The limits apply to this process
/// from then on.
///
/// # Errors
/// When the limits cannot be set, or the parent process is gone.
pub fn read_confined(
    format: Format,
    size_bytes: u64,
    input: impl Read,
    output: impl Write,
) -> io::Result<()> {
    confine()?;
    let mut document = Vec::new();
    input.take(size_bytes).read_to_end(&mut document)?;
    if u64::try_from(document.len()).is_ok_and(|read| read < size_bytes) {
        // The parent process is gone.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let parser = thread.spawn(move || parse(format, &document))?;
    let parsed = parser.join().unwrap_or_else(|_| {
        Err(fault(
            "unreadable",
            "The document is damaged; the parser failed on it.",
        ))
    });
    let mut output = io::BufWriter::new(output);
    match parsed {
        Ok(chunks) => write_chunks(&chunks, &mut output)?,
        Err(fault) => write_line(&Header::Fault(fault), &mut output)?,
    }
    output.flush()
}

/// Takes away what a compromised parser could misuse.
fn confine() -> io::Result<()> {
    // After the soft limit, the process has a second until the kernel kills it.
    setrlimit(Resource::RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + 1)?;
    let limits = [
        (Resource::RLIMIT_AS, MEMORY_BYTES),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, 0),
    ];
    for (resource, limit) in limits {
        setrlimit(resource, limit, limit)?;
    }
    Ok(())
}

fn parse(format: Format, document: &[u8]) -> Result<Vec<Chunk>, BookFault> {
    let chunks = chunks::split(&text::sections(format, document)?);
    if chunks.is_empty() {
        let detail = match format {
            Format::Pdf => {
                "The document has no text; scanned pages are pictures and are not recognised."
            }
            _ => "The document has no text.",
        };
        return Err(fault("no_text", detail));
    }
    Ok(chunks)
}

fn write_chunks(chunks: &[Chunk], output: &mut impl Write) -> io::Result<()> {
    let mut hasher = Sha256::new();
    for chunk in chunks {
        hasher.update(serde_json::to_vec(chunk)?);
    }
    let head = Header::Chunks {
        count: i32::try_from(chunks.len()).unwrap_or(i32::MAX),
        sha256: hasher.finalize().to_vec(),
    };
    write_line(&head, output)?;
    chunks
        .iter()
        .try_for_each(|chunk| write_line(chunk, output))
}

fn write_line(line: &impl serde::Serialize, output: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")
}
