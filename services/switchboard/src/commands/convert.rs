//! `switchboard convert`: MCP messages between JSON and FlatBuffers, from stdin to stdout.
//! Never: a part of the output when a part of the input is wrong.

use std::{
    io::{Read as _, Write as _},
    process::ExitCode,
};

use switchboard_protocol::mcp::flat::{self, Framing, Subject};

use crate::exit::Failure;

/// The most bytes of a stream: it is held in memory until all of it is known to be right.
const MAX_STREAM_BYTES: usize = 256 * 1024 * 1024;

/// Converts MCP messages between JSON and FlatBuffers (schema mcp.fbs), from stdin to stdout.
///
/// All of stdin is one message. With --stream there are any number of them: JSON has one on each
/// line, FlatBuffers have each behind its size in 4 bytes, little-endian. Nothing is written
/// unless all of stdin is right.
///
/// Exit codes: 0 converted, 1 the input is wrong, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What stdin is
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Format,
    /// What stdout becomes: the other one
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// The table of the schema that stdin is about: Message is a JSON-RPC message, Tool a tool, …
    #[arg(long, value_name = "NAME", default_value = "Message", value_parser = subject)]
    table: Subject,
    /// Any number of messages instead of one
    #[arg(long)]
    stream: bool,
}

/// An encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text
    Json,
    /// Bytes, application/vnd.mcp+flatbuffers
    Flatbuffers,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments {
        from,
        to,
        table,
        stream,
    } = *arguments;
    if from == to {
        return Err(Failure::usage(
            "--from and --to name one format, so there is nothing to convert: give json to one of \
             them and flatbuffers to the other",
        ));
    }
    let input = read(if stream {
        MAX_STREAM_BYTES
    } else {
        flat::MAX_BYTES
    })?;
    let output = match (from, stream) {
        (Format::Json, false) => flat::encode_as(table, Framing::Alone, &input)
            .map_err(|error| Failure::general(format!("stdin: {error}")))?,
        (Format::Flatbuffers, false) => flat::decode_as(table, Framing::Alone, &input)
            .map(line)
            .map_err(|error| Failure::general(format!("stdin: {error}")))?,
        (Format::Json, true) => encode_lines(table, &input)?,
        (Format::Flatbuffers, true) => decode_stream(table, &input)?,
    };
    let mut out = std::io::stdout().lock();
    out.write_all(&output)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::general(format!("stdout cannot be written: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn read(limit: usize) -> Result<Vec<u8>, Failure> {
    let mut input = Vec::new();
    let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    std::io::stdin()
        .lock()
        .take(one_more)
        .read_to_end(&mut input)
        .map_err(|error| Failure::general(format!("stdin cannot be read: {error}")))?;
    if input.len() > limit {
        let text = format!("stdin: more than {limit} bytes, which is the most");
        return Err(Failure::general(text));
    }
    Ok(input)
}

fn line(text: String) -> Vec<u8> {
    let mut line = text.into_bytes();
    line.push(b'\n');
    line
}

/// Every line that is not blank, behind its size.
fn encode_lines(table: Subject, input: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut output = Vec::new();
    for (number, json) in (1_usize..).zip(input.split(|byte| *byte == b'\n')) {
        if json.trim_ascii().is_empty() {
            continue;
        }
        let buffer = flat::encode_as(table, Framing::SizePrefixed, json)
            .map_err(|error| Failure::general(format!("stdin, line {number}: {error}")))?;
        output.extend_from_slice(&buffer);
    }
    Ok(output)
}

/// Every buffer of the stream, one on each line.
fn decode_stream(table: Subject, input: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut output = Vec::new();
    let mut rest = input;
    let mut number = 0_usize;
    while !rest.is_empty() {
        number = number.saturating_add(1);
        let at = input.len().saturating_sub(rest.len());
        let wrong =
            |error| Failure::general(format!("stdin, buffer {number} at byte {at}: {error}"));
        let (first, after) = flat::first(rest).map_err(wrong)?;
        let text = flat::decode_as(table, Framing::SizePrefixed, first).map_err(wrong)?;
        output.extend(line(text));
        rest = after;
    }
    Ok(output)
}

fn subject(name: &str) -> Result<Subject, String> {
    Subject::named(name).ok_or_else(|| {
        let names: Vec<_> = Subject::all().map(Subject::name).collect();
        format!("it is one of {}", names.join(", "))
    })
}
