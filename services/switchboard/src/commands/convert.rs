//! `switchboard convert`: MCP messages between JSON and FlatBuffers.
//!
//! Invariant: invalid input produces no output.

use std::{
    io::{Read as _, Write as _},
    process::ExitCode,
};

use switchboard_mcp_flatbuffers::{self as flat, Framing, RootType};

use crate::{exit::Failure, files};

/// Maximum size of a stream, which is held in memory until all of it is validated.
const MAX_STREAM_BYTES: usize = 256 * 1024 * 1024;

/// Converts MCP messages between JSON and FlatBuffers (schema mcp.fbs).
///
/// Stdin is one message, and stdout the same in the other format. With --stream it is a sequence of
/// messages: one per line in JSON, each preceded by its size (4 bytes, little-endian) in FlatBuffers.
/// If any message is invalid, nothing is written.
///
/// Exit codes: 0 converted, 1 invalid input, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Format of stdin
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Format,
    /// Format of stdout
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// Table of the schema to convert, for example Message for JSON-RPC messages or Tool
    #[arg(long, value_name = "NAME", default_value = "Message", value_parser = subject)]
    table: RootType,
    /// Convert a sequence of messages
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
            "--from and --to are the same format: set one to json and the other to flatbuffers",
        ));
    }
    let input = read(if stream {
        MAX_STREAM_BYTES
    } else {
        flat::MAX_BYTES
    })?;
    let output = match (from, stream) {
        (Format::Json, false) => flat::encode_as(table, Framing::Unprefixed, &input)
            .map_err(|error| Failure::general(format!("stdin: {error}")))?,
        (Format::Flatbuffers, false) => flat::decode_as(table, Framing::Unprefixed, &input)
            .map(line)
            .map_err(|error| Failure::general(format!("stdin: {error}")))?,
        (Format::Json, true) => encode_lines(table, &input)?,
        (Format::Flatbuffers, true) => decode_stream(table, &input)?,
    };
    let mut out = std::io::stdout().lock();
    out.write_all(&output)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::general(format!("cannot write to stdout: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn read(limit: usize) -> Result<Vec<u8>, Failure> {
    files::hint_stdin("the message");
    let mut input = Vec::new();
    let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    std::io::stdin()
        .lock()
        .take(one_more)
        .read_to_end(&mut input)
        .map_err(|error| Failure::general(format!("cannot read stdin: {error}")))?;
    if input.len() > limit {
        let text = format!("stdin: more than {limit} bytes, which is the limit");
        return Err(Failure::general(text));
    }
    Ok(input)
}

fn line(text: String) -> Vec<u8> {
    let mut line = text.into_bytes();
    line.push(b'\n');
    line
}

/// Encodes each non-blank line, preceded by its size.
fn encode_lines(table: RootType, input: &[u8]) -> Result<Vec<u8>, Failure> {
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

/// Decodes each buffer of the stream to one line.
fn decode_stream(table: RootType, input: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut output = Vec::new();
    let mut rest = input;
    let mut number = 0_usize;
    while !rest.is_empty() {
        number = number.saturating_add(1);
        let at = input.len().saturating_sub(rest.len());
        let wrong =
            |error| Failure::general(format!("stdin, buffer {number} at byte {at}: {error}"));
        let (first, after) = flat::split_first(rest).map_err(wrong)?;
        let text = flat::decode_as(table, Framing::SizePrefixed, first).map_err(wrong)?;
        output.extend(line(text));
        rest = after;
    }
    Ok(output)
}

fn subject(name: &str) -> Result<RootType, String> {
    RootType::named(name).ok_or_else(|| {
        let names: Vec<_> = RootType::all().map(RootType::name).collect();
        format!("expected one of {}", names.join(", "))
    })
}
