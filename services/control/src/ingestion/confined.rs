//! The child process that reads a document: with little memory, little time, no files, and nothing to steal.
//! Never: a word about the document on anything but its output.

use std::io::{self, Read, Write};

use nix::sys::resource::{Resource, setrlimit};
use sha2::{Digest, Sha256};
use switchboard_store::BookFault;

use super::{
    Format,
    chunks::{self, Chunk},
    reader::Head,
    text::{self, fault},
};

/// How much address space it may use: a document can stand for a thousand times its size.
const MEMORY_BYTES: u64 = 1024 * 1024 * 1024;
/// How long it may compute.
const CPU_SECONDS: u64 = 60;
/// Room for documents that nest deeply; beyond it the process ends.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Reads a document of this size from `input`, and writes to `output` what its chunks are, then the chunks, a line
/// each; or what is wrong with it. Takes from this process, for good, what reading does not need.
///
/// # Errors
/// When the limits cannot be set, or the other side is gone.
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
        // Whoever sent it is gone, and waits for no answer.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let reading = thread.spawn(move || read(format, &document))?;
    let read = reading.join();
    let read = read.unwrap_or_else(|_| {
        Err(fault(
            "unreadable",
            "It is broken in a way that nothing here can read.",
        ))
    });
    let mut output = io::BufWriter::new(output);
    match read {
        Ok(chunks) => write_chunks(&chunks, &mut output)?,
        Err(fault) => write_line(&Head::Fault(fault), &mut output)?,
    }
    output.flush()
}

/// What this process could do harm with goes.
fn confine() -> io::Result<()> {
    // A second more before the system kills without a word why.
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

fn read(format: Format, document: &[u8]) -> Result<Vec<Chunk>, BookFault> {
    let chunks = chunks::cut(&text::sections(format, document)?);
    if chunks.is_empty() {
        let detail = match format {
            Format::Pdf => {
                "There is no text in it; text that was scanned is a picture, and is not read."
            }
            _ => "There is no text in it.",
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
    let head = Head::Chunks {
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
